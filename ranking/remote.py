"""Bundles at URLs: copied from object stores, Hugging Face and HTTP servers into a local cache, checked on the way.

``s3://BUCKET/PATH``, ``gs://BUCKET/PATH``, ``az://ACCOUNT/CONTAINER/PATH``
    the object stores of AWS (and what speaks its protocol), Google and Azure.
``hf://OWNER/REPOSITORY[@REVISION]/PATH``
    a repository of Hugging Face; ``HF_TOKEN`` opens private ones, ``HF_ENDPOINT`` names another hub.
``https://HOST/PATH``
    any server of static files.

Credentials come from the environment, where the library of the stores looks for them. None stands in a URL, so that
every URL can be logged. No message of the library is repeated, for these quote answers of the store.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import errno
import fcntl
import hashlib
import json
import logging
import math
import os
import re
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from pydantic import TypeAdapter, ValidationError

from listwright.ranking import plain_file
from listwright.ranking.atomic_file import atomic_folder, atomic_write, remove
from listwright.ranking.errors import AbandonedError, BundleError, ListwrightError
from listwright.ranking.manifest import MAX_MANIFEST_BYTES, BundleFile, parse
from listwright.ranking.plain_file import NotPlainError
from listwright.ranking.stages import MANIFEST

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

OBJECT_STORES = ("s3", "gs", "az")
"""Schemes of stores that can be listed and written."""

SCHEMES = (*OBJECT_STORES, "hf", "https", "http")

CONNECT_WITHIN_S = 3.0
"""Seconds for a connection."""

SMALL_WITHIN_S = 4.0
"""Seconds for a pointer or a manifest."""

IDLE_S = 10.0
"""Seconds without a byte after which a download is broken off."""

MOST_BYTES = 8 * 2**20
"""Bytes of an answer, beyond those of the small file that it holds: of a listing, of an error, of TLS."""

MOST_NAMES = 1_000
"""Folders in a folder of bundles."""

COPY_WITHIN_S = 540.0
"""Seconds for all files of a bundle; less for a small one, which comes with :data:`SLOWEST`."""

SLOWEST = 2**18
"""Bytes a second, below which a bundle is not copied."""

MOST_COPIED = 16 * 2**30
"""Bytes of a bundle that is copied."""

UNUSED_S = 7 * 86_400.0
"""Seconds after its last use at which a copy is removed from the cache."""

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT",),
    "hf": ("HF_ENDPOINT",),
}
"""Variables that name the server of a scheme, by precedence."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(.*)", re.DOTALL)
_VARIABLES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_", "hf": "HF_"}
"""How the names of a scheme's variables begin."""

_AUTHORITIES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
"""Variables that name files of certificates, beside SSL_CERT_FILE, which the library reads itself."""

_FILES = re.compile(
    r"(AWS|AZURE)_\w+_FILE|GOOGLE_(APPLICATION_CREDENTIALS|SERVICE_ACCOUNT(_PATH)?)|\w+_CA_BUNDLE|SSL_CERT_FILE"
)
"""Variables that name a file."""

_TOKENS_FROM = re.compile(
    r"AWS_(ENDPOINT_URL_STS|CONTAINER_CREDENTIALS_FULL_URI)|(AWS|GCE)_METADATA_(ENDPOINT|HOST)|"
    r"AZURE_(STORAGE_)?AUTHORITY_HOST|(AZURE_)?(IDENTITY|MSI)_ENDPOINT|AZURE_FABRIC_TOKEN_SERVICE_URL"
)
"""Variables that name a server of credentials."""

_TOKEN_HOSTS = re.compile(
    r"169\.254\.\d+\.\d+|metadata\.google\.internal|(accounts\.google|oauth2\.googleapis)\.com|"
    r"sts\.[a-z0-9-]+\.amazonaws\.com|login\.(microsoftonline\.(com|de|us)|chinacloudapi\.cn)"
)
"""Servers of credentials that need no variable."""

_NO_BUCKET = "<Code>(NoSuchBucket|ContainerNotFound)<"
_SILENCE = re.compile(
    r"error sending request|timed out|Range request not supported|response body|connection", re.IGNORECASE
)
_REASONS = {
    _NO_BUCKET: "its bucket or container does not exist: make it first",
    '<Code>(ExpiredToken|TokenRefreshRequired)|"invalid_grant"': "the credentials have expired: renew them",
    "<Code>(Invalid(Token|AccessKeyId|ClientTokenId|IdentityToken)|SignatureDoesNotMatch|AuthenticationF)": (
        "the store does not know the credentials in the environment, or they have expired: renew them"
    ),
    "<Code>RequestTimeTooSkewed<": "the clock of this machine differs from the store's: set it",
    "UnknownIssuer|invalid peer certificate|InvalidCertificate": (
        "its certificate is not trusted: SSL_CERT_FILE names a file of the authorities that are; a certificate that "
        "has expired, or is of another host, stays refused"
    ),
}
"""What errors of the library mean, by their text, which may hold the store's."""

_STATUS = re.compile(r"status code: (\d{3}) ")

_log = logging.getLogger("listwright.remote")

_Answer = TypeVar("_Answer")


class Url(str):
    """Address of a bundle, or of a folder of bundles, in a store. It holds no credentials."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self}/{name}") if name else self

    @property
    def scheme(self) -> str:
        """One of :data:`SCHEMES`."""
        return self.partition("://")[0]

    @property
    def name(self) -> str:
        """The last part."""
        return self.rpartition("/")[2]

    @property
    def parent(self) -> Url:
        """The URL without its last part."""
        return Url(self.rpartition("/")[0])

    @property
    def depth(self) -> int:
        """Number of folders below the root of the store."""
        return self.count("/") - 2 - (self.scheme in _SHAPES)


class StoreError(OSError):
    """A store gave no answer, or refused; ``strerror`` says which, without anything that the store sent."""


def as_location(value: str | Path) -> Url | Path:
    """Return the URL or the path that a text names.

    Raises:
        ValueError: if it is a URL of an unknown scheme, without a place in the store, or with credentials; the message
            does not repeat it.
    """
    match = _URL.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return Path(value)
    scheme, place = match[1].lower(), match[2].strip("/")
    if scheme not in SCHEMES:
        raise ValueError(f"{scheme}:// is no store that bundles are read from: use a folder, or {', '.join(SCHEMES)}")
    host, _, path = place.partition("/")
    if "@" in host or "?" in place or "#" in place:
        raise ValueError(
            "a URL with a user, a password or a query: leave them out and set the credentials in the environment, "
            "e.g. AWS_ACCESS_KEY_ID, AZURE_STORAGE_SAS_TOKEN, GOOGLE_APPLICATION_CREDENTIALS or HF_TOKEN"
        )
    if not place.isprintable() or " " in place or {"", ".", ".."} & set(place.split("/")):
        raise ValueError(f"{scheme}:// is followed by no plain path: write it without blanks, '//', '.' and '..'")
    if scheme in _SHAPES and (not path or path.startswith("@")):
        raise ValueError(f"{scheme}://{host} lacks its second part: {_SHAPES[scheme]}")
    return Url(f"{scheme}://{host}" + (f"/{path}" if path else ""))


_SHAPES = {"hf": "hf://OWNER/REPOSITORY/PATH", "az": "az://ACCOUNT/CONTAINER/PATH"}


def location_argument(text: str) -> Url | Path:
    """Return :func:`as_location` of an argument of a command line."""
    try:
        return as_location(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def cache_folder() -> Path:
    """Return the cache folder: ``$LISTWRIGHT_CACHE``, or ``listwright`` below ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Raises:
        ListwrightError: if the variable is empty, or is not set where the user has no home.
    """
    own = os.environ.get("LISTWRIGHT_CACHE")
    if own is not None:
        if not own.strip():
            raise ListwrightError("LISTWRIGHT_CACHE: is empty: name a folder, or do not set it")
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "listwright"
    except RuntimeError:  # of a user without a home, as containers have
        raise ListwrightError("LISTWRIGHT_CACHE: is not set, and this user has no home folder: name a folder") from None


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A small file in a store.

    Args:
        content: Bytes of the file; None if they are those of the ``etag`` that was sent.
        etag: Entity tag of this content, where the store gives one.
        fault: Reason for which the file is not read; empty if it is.
    """

    content: bytes | None
    etag: str | None
    fault: str = ""


class Store:
    """A folder in a store.

    Args:
        url: URL of the folder.

    Raises:
        ListwrightError: if the library of the stores is not installed, or cannot use the URL.
    """

    def __init__(self, url: Url) -> None:
        self.url = url
        quick: ClientConfig = {"timeout": f"{SMALL_WITHIN_S:g}s", "connect_timeout": f"{CONNECT_WITHIN_S:g}s"}
        patient: ClientConfig = {"timeout": f"{COPY_WITHIN_S:g}s", "read_timeout": f"{IDLE_S:g}s"}
        self._small = _Client(url, SMALL_WITHIN_S, MOST_BYTES, quick)
        self._large = _Client(url, COPY_WITHIN_S, math.inf, patient)

    def list_names(self) -> list[str]:
        """Return the names of the folders in this one.

        Raises:
            StoreError: if the store does not answer, or lists more than :data:`MOST_NAMES`.
        """
        from obstore import list_with_delimiter  # noqa: PLC0415 - an extra

        folders = self._small.ask(self.url, lambda store: list_with_delimiter(store)["common_prefixes"])
        if len(folders) > MOST_NAMES:
            raise StoreError(errno.E2BIG, f"has {len(folders)} folders; the limit is {MOST_NAMES}", self.url)
        return sorted(folder.rstrip("/").rpartition("/")[2] for folder in folders)

    def read_small(self, path: str, most: int, etag: str | None = None) -> SmallFile | None:
        """Return a small file; None if there is none.

        Args:
            path: Path of the file below the URL.
            most: Most bytes; a larger file is not read, and has a fault.
            etag: Entity tag of the content that the caller has; None if it has none.

        Raises:
            StoreError: if the store does not answer.
        """
        from obstore import get  # noqa: PLC0415 - an extra
        from obstore.exceptions import NotModifiedError  # noqa: PLC0415

        def read(store: ObjectStore) -> SmallFile | None:
            try:
                answer = get(store, path, options={} if etag is None else {"if_none_match": etag})
            except NotModifiedError:
                if etag is None:
                    raise
                return SmallFile(None, etag)
            except FileNotFoundError as error:
                if re.search(_NO_BUCKET, str(error)):
                    raise
                return None
            size, new_etag = answer.meta["size"], answer.meta["e_tag"]
            if size > most:
                return SmallFile(b"", new_etag, f"has {size} bytes; the limit is {most}")
            return SmallFile(bytes(answer.bytes()), new_etag)

        return self._small.ask(self.url / path, read, most)

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file, in the pieces that come.

        Raises:
            StoreError: if the store does not answer, or there is no such file.
        """
        from obstore import get  # noqa: PLC0415 - an extra

        pieces = iter(self._large.ask(self.url / path, lambda store: get(store, path)).stream(min_chunk_size=1))
        while (piece := self._large.ask(self.url / path, lambda _: next(pieces, None))) is not None:
            yield bytes(piece)

    def write(self, path: str, content: bytes | Path, *, new: bool = False) -> None:
        """Write a file, in one step.

        Args:
            path: Path of the file below the URL.
            content: Bytes of the file, if they are few, or the path of a local file.
            new: Whether to refuse to replace a file.

        Raises:
            FileExistsError: if ``new``, and there is one.
            StoreError: if the store does not take it.
        """
        from obstore import put  # noqa: PLC0415 - an extra
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        def write(store: ObjectStore) -> None:
            try:
                put(store, path, content, mode="create" if new else None)
            except AlreadyExistsError:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.url / path) from None
            except FileNotFoundError:
                raise StoreError(errno.ENOENT, _REASONS[_NO_BUCKET], self.url / path) from None

        (self._large if isinstance(content, Path) else self._small).ask(self.url / path, write)


class _Client:
    """A client of the library of the stores, and what it may reach and receive, by a proxy on the loopback interface.

    The library itself follows redirects with credentials, and reads answers of any length.
    """

    def __init__(self, url: Url, within_s: float, most: float, options: ClientConfig) -> None:
        try:
            from obstore.store import AzureStore, HTTPStore, from_url  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise ListwrightError(f"{url} needs obstore: pip install 'listwright[remote]'") from None
        _check_variables(url.scheme)
        variable, endpoint = _endpoint(url)
        if variable and not endpoint.startswith(("http://", "https://")):
            raise ListwrightError(f"{variable} begins with no http:// or https://: {url} cannot be read there")
        self._within_s, self._most, self._scheme = within_s, most, url.scheme
        self.left, self.end, self.fault = 0.0, 0.0, ""
        address, token = str(url), ""
        if url.scheme in OBJECT_STORES:
            address = address.replace("%", "%25")  # the library decodes it
        elif url.scheme == "hf":
            owner, repository, *path = address.removeprefix("hf://").split("/")
            repository, _, revision = repository.partition("@")
            endpoint, token = endpoint or "https://huggingface.co", os.environ.get("HF_TOKEN", "")
            address = "/".join([endpoint.rstrip("/"), owner, repository, "resolve", revision or "main", *path])
        self._first = _authority(endpoint) if endpoint and (token or url.scheme != "hf") else None
        self._last = self._first
        self._turns = threading.Semaphore(1 if token else 16)
        loop, relay = _loop(os.getpid()), partial(_relay, weakref.proxy(self))
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(relay, "127.0.0.1", 0), loop).result()
        weakref.finalize(self, loop.call_soon_threadsafe, server.close)
        options["proxy_url"] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        options["allow_http"] = address.startswith("http://") or endpoint.startswith("http://")
        if token:
            options["default_headers"] = {"authorization": f"Bearer {token}"}
        if token or options["allow_http"]:
            options["pool_max_idle_per_host"] = "0"  # so that each request is a connection, which the proxy looks at
        retry: RetryConfig = {"max_retries": 1, "retry_timeout": timedelta(seconds=within_s)}
        try:
            if files := [Path(file) for file in map(os.environ.get, _AUTHORITIES) if file and not Path(file).is_dir()]:
                options["root_certificate"] = b"\n".join(file.read_bytes() for file in files)
            if url.scheme == "az":
                account, _, place = address.removeprefix("az://").partition("/")
                self.store: ObjectStore = AzureStore.from_url(
                    f"az://{place}", config={"account_name": account}, client_options=options, retry_config=retry
                )
            elif url.scheme in OBJECT_STORES:
                self.store = from_url(address, config=None, client_options=options, retry_config=retry)
            else:
                self.store = HTTPStore.from_url(address, client_options=options, retry_config=retry)
        except BaseException as error:  # a panic of the library is no Exception
            raise ListwrightError(f"{url} cannot be used: {_fault(error, url).strerror}") from None

    def ask(self, url: Url, call: Callable[[ObjectStore], _Answer], most: int = 0) -> _Answer:
        """Return the answer of a store about a URL, or raise StoreError with a reason of our own words."""
        with self._turns:
            self.fault, self.end = "", time.monotonic() + 2 * self._within_s
            self.left = max(self.left, self._most + most)
            try:
                return wait_for(lambda: call(self.store))
            except (FileExistsError, StoreError, KeyboardInterrupt):
                raise
            except BaseException as error:  # a panic of the library is no Exception
                raise StoreError(errno.EIO, self.fault, url) if self.fault else _fault(error, url) from None

    def admits(self, place: tuple[str, int]) -> bool:
        """Return whether a request may go to a host and port: with credentials, the first that is no giver of these."""
        givers = (value for name, value in os.environ.items() if _TOKENS_FROM.fullmatch(name))
        if self._scheme in OBJECT_STORES:
            if _TOKEN_HOSTS.fullmatch(place[0]) or place in map(_authority, givers):
                return True
            self._first = self._first or place
            return place == self._first
        # the library takes the token off at a redirect to another server, and puts it on again at the next one
        last, self._last = self._last, place
        return self._first is None or self._first in (place, last)


def _check_variables(scheme: str) -> None:
    """Strip the variables of a scheme, as our own secrets are; raise ListwrightError where the library would panic."""
    for name, value in os.environ.items():
        if name.startswith(_VARIABLES.get(scheme, "=")) and name != "GOOGLE_SERVICE_ACCOUNT_KEY":
            os.environ[name] = value.strip()
            if not value.strip().isprintable():
                raise ListwrightError(f"{name}: holds a line break or another control character: set it again")


def _endpoint(url: Url) -> tuple[str, str]:
    """Return the variable that names the server of a URL, and its value; both empty if none does."""
    names = [name for name in _ENDPOINTS.get(url.scheme, ()) if name in os.environ]
    return (names[0], os.environ[names[0]]) if names else ("", "")


def _fault(error: BaseException, url: Url) -> StoreError:
    """Return an error of a store, or of its settings, in our own words."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError  # noqa: PLC0415 - an extra

    text, number = str(error), errno.EIO
    own = (_VARIABLES.get(url.scheme, "SSL_"), "SSL_", *_AUTHORITIES)
    files = {n: file for n, file in os.environ.items() if n.startswith(own) and _FILES.fullmatch(n) and file}
    absent = [n for n, file in files.items() if not os.access(file, os.R_OK)]
    reasons = [f"{n} names {files[n]}, which is not there, or cannot be read" for n in absent]
    reasons += [reason for pattern, reason in _REASONS.items() if re.search(pattern, text)]
    status = match[1] if (match := _STATUS.search(text)) else ""
    if reasons:
        reason = reasons[0]
    elif isinstance(error, FileNotFoundError):
        number, reason = errno.ENOENT, "does not exist"
    elif isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or status in ("401", "403"):
        number = errno.EACCES
        reason = "access is denied: check the credentials in the environment, and what they may read"
    elif status:
        reason = f"the store answers {status}"
    elif _SILENCE.search(text):
        reason = "the store does not answer"
    else:
        causes = ", ".join(("the URL, the endpoint, the region", *files))
        reason = f"the store's answer is not understood: check {causes}"
    return StoreError(number, reason, url)


@cache
def _loop(_process: int) -> asyncio.AbstractEventLoop:
    """Return the event loop of the proxies of this process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="stores", daemon=True).start()
    return loop


def _authority(address: str) -> tuple[str, int]:
    """Return the host and the port of an address."""
    url = urlsplit(address if "//" in address else f"//{address}")
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


async def _relay(client: _Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass a connection of a client on, if it leads where the client may go."""
    with suppress(OSError, EOFError, ValueError, ReferenceError, asyncio.LimitOverrunError), closing(writer):
        line, rest = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)
        method, target, version = line.split()
        address = target.decode() if target.startswith(b"http") else f"https://{target.decode()}"
        if not client.admits(place := _authority(address)):
            client.fault = (
                "the store redirects to another server, which is not followed: check the endpoint, the region"
            )
            writer.write(b"HTTP/1.1 421 Misdirected Request\r\ncontent-length: 0\r\n\r\n")
            return
        proxies = {} if proxy_bypass(f"{place[0]}:{place[1]}") else getproxies()  # those of the environment
        proxy = proxies.get(urlsplit(address).scheme, proxies.get("all", ""))
        async with asyncio.timeout(CONNECT_WITHIN_S):
            tls = proxy.startswith("https:") or None
            source, sink = await asyncio.open_connection(*(_authority(proxy) if proxy else place), ssl=tls)
        with closing(sink):
            if proxy:
                user = base64.b64encode(unquote(urlsplit(proxy).netloc.rpartition("@")[0]).encode())
                sink.write(line + b"\r\n" + (b"proxy-authorization: basic " + user + b"\r\n" if user else b"") + rest)
            elif method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                sink.write(b" ".join((method, b"/" + target.split(b"/", 3)[3], version)) + b"\r\n" + rest)
            pumps = [asyncio.create_task(pump) for pump in (_pump(source, writer, client), _pump(reader, sink))]
            ended: set[asyncio.Task[None]] = set()
            while not ended and (left_s := client.end - time.monotonic()) > 0:
                ended, _ = await asyncio.wait(pumps, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                client.fault = "the store's answer does not end"
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, client: _Client | None = None) -> None:
    """Pass on what comes, to a client as much as it may receive."""
    while piece := await source.read(2**16):
        if client is not None:
            client.left -= len(piece)
            if client.left < 0:
                client.fault = "the store's answer is too long"
                return
        sink.write(piece)
        await sink.drain()


def wait_for(call: Callable[[], _Answer]) -> _Answer:
    """Return what a call returns, or raise what it raises; the main thread can be interrupted meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    future: Future[_Answer] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # raised again in the main thread
            future.set_exception(error)

    threading.Thread(target=work, name="store", daemon=True).start()
    return future.result()


def copy_bundle(store: Store, path: str = "", *, or_last: bool = False, abandoned: Callable[[], bool] = bool) -> Path:
    """Return the local copy of a bundle, after copying what the cache lacks.

    A copy lies under the SHA-256 of its manifest, which has those of all other files. Each is checked on the way, and
    when a copy is used again.

    Args:
        store: Store that holds the bundle.
        path: Path of the bundle below the store's URL; empty if that is the bundle's.
        or_last: Whether the copy that this path had the last time is returned where the store does not answer.
        abandoned: Function that returns whether nobody waits for the copy any more.

    Raises:
        AbandonedError: if nobody waits for it.
        BundleError: if it is not there, is damaged, or cannot be copied.
    """
    url = store.url / path
    try:
        manifest = _read_manifest(store, path)
    except StoreError as error:
        last = Index(store.url).copy_of(path) if or_last else None
        if last is None:
            raise BundleError(url / MANIFEST, f"cannot be read: {error.strerror}") from None
        _log.warning("%s: %s; the copy of the last time is used", url, error.strerror)
        return last
    digest = hashlib.sha256(manifest).hexdigest()
    bundles = cache_folder() / "bundles"
    partial = bundles / f".{digest}.partial"
    try:
        _make_folder(bundles)
        with _lock(bundles / f".{digest}.lock", fcntl.LOCK_EX, abandoned):
            place = _whole_copy(bundles / digest, manifest)
            if place is None:
                _remove_unused(bundles)
                remove(bundles / digest)  # damaged
                with atomic_folder(bundles / digest, partial, mode=0o700):
                    copy = _copy(store, path, manifest, partial, abandoned)
                place = bundles / digest / copy.relative_to(partial)
            os.utime(bundles / digest)
        Index(store.url).record_copy(path, place)
    except StoreError as error:
        raise BundleError(error.filename, f"cannot be read: {error.strerror}") from None
    except OSError as error:
        fault = f"cannot be written: {error.strerror}: {url} is copied there; set LISTWRIGHT_CACHE to another folder"
        raise BundleError(error.filename or bundles, fault) from error
    return place


def local_copy(location: Url | Path, *, or_last: bool = False) -> Path:
    """Return the folder of a bundle: a path as it is, a URL as :func:`copy_bundle`.

    Raises:
        ListwrightError: as :func:`copy_bundle` and :class:`Store`.
    """
    return location if isinstance(location, Path) else copy_bundle(Store(location), or_last=or_last)


def download(url: Url, out: Path) -> Path:
    """Copy a bundle to ``NAME/VERSION`` below a folder, whatever the cache has, and return that.

    Raises:
        BundleError: if it is not there, or is damaged.
        OSError: if it cannot be written.
    """
    store = Store(url)
    try:
        return _copy(store, "", _read_manifest(store, ""), out)
    except StoreError as error:
        raise BundleError(error.filename, f"cannot be read: {error.strerror}") from None


def _read_manifest(store: Store, path: str) -> bytes:
    url = store.url / path / MANIFEST
    manifest = store.read_small(f"{path}/{MANIFEST}".lstrip("/"), MAX_MANIFEST_BYTES)
    if manifest is None:
        raise BundleError(url, "does not exist: a bundle is a folder NAME/VERSION; name a version")
    if manifest.content is None or manifest.fault:
        raise BundleError(url, manifest.fault)
    return manifest.content


def _copy(store: Store, path: str, manifest: bytes, out: Path, abandoned: Callable[[], bool] = bool) -> Path:
    """Copy the files of a bundle to ``NAME/VERSION`` below a folder, and return that."""
    content = parse(manifest, store.url / path / MANIFEST)
    total = sum(entry.size for entry in content.files)
    if total > MOST_COPIED:
        raise BundleError(store.url / path / MANIFEST, f"has files of {total} bytes; the limit is {MOST_COPIED}")
    folder = out / content.name / content.version
    folder.mkdir(parents=True)
    if total > (free := shutil.disk_usage(folder).free):
        raise OSError(errno.ENOSPC, f"{total} bytes are needed and {free} free", folder)
    within_s = min(COPY_WITHIN_S, IDLE_S + total / SLOWEST)
    end = time.monotonic() + within_s

    def check() -> None:
        if abandoned():
            raise AbandonedError(f"{store.url / path} is not copied any more")
        if time.monotonic() > end:
            raise BundleError(store.url / path, f"is not copied: it takes longer than {within_s:.0f} s")

    for entry in content.files:
        _copy_file(store, f"{path}/{entry.name}".lstrip("/"), entry, folder / entry.name, check)
    (folder / MANIFEST).write_bytes(manifest)
    return folder


def _copy_file(store: Store, path: str, entry: BundleFile, out: Path, check: Callable[[], None]) -> None:
    url, hashed, size = store.url / path, hashlib.sha256(), 0
    with out.open("xb") as file:
        for piece in store.stream(path):
            check()
            size += len(piece)
            if size > entry.size:
                break
            hashed.update(piece)
            file.write(piece)
    if size != entry.size:
        more = "more than" if size > entry.size else f"{size} bytes instead of"
        raise BundleError(url, f"has {more} {entry.size}: truncated or replaced; publish another version")
    if hashed.hexdigest() != entry.sha256:
        raise BundleError(url, "does not match its sha256 in the manifest: altered; publish another version")


def _whole_copy(copy: Path, manifest: bytes) -> Path | None:
    """Return the folder of a copy if it is what was copied, else None; disks and people alter caches."""
    if copy.is_symlink() or not copy.is_dir():
        return None
    content = parse(manifest, copy / MANIFEST)
    folder = copy / content.name / content.version
    digests = {entry.name: entry.sha256 for entry in content.files} | {MANIFEST: hashlib.sha256(manifest).hexdigest()}
    for name, digest in digests.items():
        try:
            with (folder / name).open("rb") as file:
                intact = hashlib.file_digest(file, "sha256").hexdigest() == digest
        except OSError:
            intact = False
        if not intact:
            _log.warning("%s was altered since it was copied: the bundle is copied again", folder / name)
            return None
    return folder


def _remove_unused(bundles: Path) -> None:
    """Remove copies that were not used for long, and that no process holds."""
    for entry in bundles.iterdir():
        with suppress(OSError):  # another process holds it
            if entry.is_dir() and entry.stat().st_mtime < time.time() - UNUSED_S:
                with _lock(bundles / f".{entry.name}.use", fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(entry, ignore_errors=True)


_held: dict[Path, int] = {}


def hold_copies(places: Iterable[Path]) -> None:
    """Hold copies in the cache for as long as this process serves them; those held before go.

    Args:
        places: Paths of all bundles that are served; those that lie elsewhere are left alone.
    """
    bundles = cache_folder() / "bundles"
    copies = {place.parents[1] for place in places if place.is_relative_to(bundles)}
    for copy in _held.keys() - copies:
        os.close(_held.pop(copy))
    for copy in copies - _held.keys():
        with suppress(OSError):  # of a cache that others fill, and this process may not write
            _held[copy] = _open_lock(bundles / f".{copy.name}.use")
            fcntl.flock(_held[copy], fcntl.LOCK_SH)


def _make_folder(folder: Path) -> None:
    """Make a folder of the cache for this user alone; raise OSError if it is a link."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)


def _open_lock(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


@contextmanager
def _lock(file: Path, kind: int, abandoned: Callable[[], bool] = bool) -> Iterator[None]:
    """Hold a lock against other processes of this machine."""
    descriptor = _open_lock(file)
    try:
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if kind & fcntl.LOCK_NB:
                    raise
                if abandoned():
                    raise AbandonedError(f"{file} is not waited for any more") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


_INDEX = TypeAdapter(dict[str, dict[str, str]])


class Index:
    """Record on disk of what a URL held when it was last read.

    A process that starts while the store is down goes on from it.

    Args:
        url: URL of the store.
    """

    def __init__(self, url: Url) -> None:
        place = " ".join((url, *_endpoint(url)))
        self._file = cache_folder() / "stores" / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"

    def copy_of(self, path: str) -> Path | None:
        """Return the copy that a path had the last time; None if it is not in the cache any more."""
        place, bundles = Path(self._read()["copies"].get(path, "")), cache_folder() / "bundles"
        below = place.resolve().is_relative_to(bundles.resolve())  # others may have written the record
        return place if below and (place / MANIFEST).is_file() else None

    def record_copy(self, path: str, place: Path) -> None:
        """Record the copy of a path, and forget those that the cache has no more."""
        content = self._read()
        content["copies"] = {other: copy for other, copy in content["copies"].items() if Path(copy).is_dir()}
        content["copies"][path] = str(place)
        self._write(content)

    def pointers(self) -> dict[str, str]:
        """Return the pointers that were recorded last, by path."""
        return dict(self._read()["pointers"])

    def record_pointers(self, pointers: dict[str, str]) -> None:
        """Record the pointers."""
        self._write(self._read() | {"pointers": pointers})

    def _read(self) -> dict[str, dict[str, str]]:
        with suppress(OSError, ValueError, ValidationError, NotPlainError):
            content = plain_file.read(self._file, MOST_BYTES, inside=[self._file.parent])
            return {"pointers": {}, "copies": {}} | _INDEX.validate_json(content)
        return {"pointers": {}, "copies": {}}

    def _write(self, content: dict[str, dict[str, str]]) -> None:
        _make_folder(self._file.parent)
        atomic_write(self._file, json.dumps(content), mode=0o600)
