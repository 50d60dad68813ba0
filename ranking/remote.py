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
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from listwright.ranking.errors import BundleError, ListwrightError
from listwright.ranking.manifest import MAX_MANIFEST_BYTES, BundleFile, parse
from listwright.ranking.stages import MANIFEST

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

OBJECT_STORES = ("s3", "gs", "az")
"""Schemes of stores that can be listed and written."""

SCHEMES = (*OBJECT_STORES, "hf", "https", "http")

SMALL_WITHIN_S = 4.0
"""Seconds for a pointer or a manifest."""

IDLE_S = 30.0
"""Seconds without a byte after which a download is broken off."""

COPY_WITHIN_S = 540.0
"""Seconds for all files of a bundle."""

UNUSED_S = 7 * 86_400.0
"""Seconds after its last use at which a copy is removed from the cache."""

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT",),
    "hf": ("HF_ENDPOINT",),
}
"""Variables that name the server of a scheme, by precedence."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(.*)", re.DOTALL)
_STATUS = re.compile(r"status code: (\d{3}) ")
_SILENCE = re.compile(r"error sending request|timed out|response body|connection", re.IGNORECASE)

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
        content: its bytes; None if they are those of the ``etag`` that was sent.
        etag: of this content, where the store gives one.
        fault: why it is not read; empty if it is.
    """

    content: bytes | None
    etag: str | None
    fault: str = ""


class Store:
    """A folder in a store.

    Args:
        url: of the folder.

    Raises:
        ListwrightError: if the library of the stores is not installed, or cannot use the URL.
    """

    def __init__(self, url: Url) -> None:
        self.url = url
        once: RetryConfig = {"max_retries": 1, "retry_timeout": timedelta(seconds=SMALL_WITHIN_S)}
        self._small = _open(url, {"timeout": f"{SMALL_WITHIN_S:g}s", "connect_timeout": "3s"}, once)
        long = timedelta(seconds=COPY_WITHIN_S)
        self._large = _open(url, {"timeout": long, "read_timeout": f"{IDLE_S:g}s"}, {"retry_timeout": long})

    def list_names(self) -> list[str]:
        """Return the names of the folders in this one.

        Raises:
            StoreError: if the store does not answer.
        """
        from obstore import list_with_delimiter  # noqa: PLC0415 - an extra

        folders = _ask(self.url, lambda: list_with_delimiter(self._small)["common_prefixes"])
        return sorted(folder.rstrip("/").rpartition("/")[2] for folder in folders)

    def read_small(self, path: str, most: int, etag: str | None = None) -> SmallFile | None:
        """Return a small file; None if there is none.

        Args:
            path: below the URL.
            most: bytes; a larger file is not read, and has a fault.
            etag: of a content that the caller has.

        Raises:
            StoreError: if the store does not answer.
        """
        from obstore import get  # noqa: PLC0415 - an extra
        from obstore.exceptions import NotModifiedError  # noqa: PLC0415

        def read() -> SmallFile | None:
            try:
                answer = get(self._small, path, options={} if etag is None else {"if_none_match": etag})
            except NotModifiedError:
                if etag is None:
                    raise
                return SmallFile(None, etag)
            except FileNotFoundError:
                return None
            size, new_etag = answer.meta["size"], answer.meta["e_tag"]
            if size > most:
                return SmallFile(b"", new_etag, f"has {size} bytes; the limit is {most}")
            return SmallFile(bytes(answer.bytes()), new_etag)

        return _ask(self.url / path, read)

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file, in pieces.

        Raises:
            StoreError: if the store does not answer, or there is no such file.
        """
        from obstore import get  # noqa: PLC0415 - an extra

        pieces = iter(_ask(self.url / path, lambda: get(self._large, path)).stream(min_chunk_size=2**18))
        while (piece := _ask(self.url / path, lambda: next(pieces, None))) is not None:
            yield bytes(piece)

    def write(self, path: str, content: bytes | Path, *, new: bool = False) -> None:
        """Write a file, in one step.

        Args:
            path: below the URL.
            content: its bytes, if they are few, or a local file.
            new: refuse to replace a file.

        Raises:
            FileExistsError: if ``new``, and there is one.
            StoreError: if the store does not take it.
        """
        from obstore import put  # noqa: PLC0415 - an extra
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        def write() -> None:
            store = self._large if isinstance(content, Path) else self._small
            try:
                if new:
                    put(store, path, content, mode="create")
                else:
                    put(store, path, content)
            except AlreadyExistsError:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.url / path) from None
            except FileNotFoundError:
                fault = "cannot be written: its bucket or container does not exist: make it first"
                raise StoreError(errno.ENOENT, fault, self.url / path) from None

        _ask(self.url / path, write)


def _open(url: Url, client: ClientConfig, retry: RetryConfig) -> ObjectStore:
    try:
        from obstore.store import AzureStore, HTTPStore, from_url  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise ListwrightError(f"{url} needs obstore: pip install 'listwright[remote]'") from None
    variable, endpoint = _endpoint(url)
    if variable and not endpoint.startswith(("http://", "https://")):
        raise ListwrightError(f"{variable} begins with no http:// or https://: {url} cannot be read there")
    address = str(url)
    if url.scheme == "hf":
        owner, repository, *path = address.removeprefix("hf://").split("/")
        repository, _, revision = repository.partition("@")
        hub = endpoint or "https://huggingface.co"
        address = "/".join([hub.rstrip("/"), owner, repository, "resolve", revision or "main", *path])
        if token := os.environ.get("HF_TOKEN"):
            client = {**client, "default_headers": {"authorization": f"Bearer {token}"}}
    client = {**client, "allow_http": address.startswith("http://") or endpoint.startswith("http://")}
    try:
        if url.scheme == "az":
            account, _, place = address.removeprefix("az://").partition("/")
            return AzureStore.from_url(
                f"az://{place}", config={"account_name": account}, client_options=client, retry_config=retry
            )
        if url.scheme in OBJECT_STORES:
            return from_url(address, config=None, client_options=client, retry_config=retry)
        return HTTPStore.from_url(address, client_options=client, retry_config=retry)
    except Exception as error:
        raise ListwrightError(
            f"{url} cannot be used ({type(error).__name__}): check the URL and its settings"
        ) from None


def _endpoint(url: Url) -> tuple[str, str]:
    """Return the variable that names the server of a URL, and its value; both empty if none does."""
    names = [name for name in _ENDPOINTS.get(url.scheme, ()) if name in os.environ]
    return (names[0], os.environ[names[0]]) if names else ("", "")


def _ask(url: Url, call: Callable[[], _Answer]) -> _Answer:
    """Return the answer of a store, or raise StoreError with a reason of our own words."""
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError  # noqa: PLC0415 - an extra

    try:
        return _wait_for(call)
    except (FileExistsError, StoreError):
        raise
    except FileNotFoundError:
        raise StoreError(errno.ENOENT, "does not exist", url) from None
    except (PermissionDeniedError, UnauthenticatedError):
        reason = "access is denied: check the credentials in the environment, and what they may read"
        raise StoreError(errno.EACCES, reason, url) from None
    except (BaseError, OSError, ValueError) as error:
        status = _STATUS.search(str(error))
        if status is not None:
            denied = status[1] in ("401", "403")
            answer = f"the store answers {status[1]}" + (": check the credentials in the environment" if denied else "")
        elif _SILENCE.search(str(error)):
            answer = "the store does not answer"
        else:
            answer = "the store's answer is not understood: check the URL, the endpoint and the region"
        raise StoreError(errno.EIO, answer, url) from None


def _wait_for(call: Callable[[], _Answer]) -> _Answer:
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


def copy_bundle(store: Store, path: str = "", *, or_last: bool = False) -> Path:
    """Return the local copy of a bundle, after copying what the cache lacks.

    A copy lies under the SHA-256 of its manifest, which has those of all other files. Each is checked on the way, and
    when a copy is used again.

    Args:
        store: that holds it.
        path: of the bundle, below the store's URL; empty if that is the bundle's.
        or_last: where the store does not answer, return the copy that this path had the last time.

    Raises:
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
        bundles.mkdir(parents=True, exist_ok=True)
        with _lock(bundles / f".{digest}.lock", fcntl.LOCK_EX):
            place = _whole_copy(bundles / digest, manifest)
            if place is None:
                _remove_unused(bundles)
                for damaged in (partial, bundles / digest):
                    shutil.rmtree(damaged, ignore_errors=True)
                try:
                    copy = _copy(store, path, manifest, partial)
                    partial.rename(bundles / digest)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
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


def _copy(store: Store, path: str, manifest: bytes, out: Path) -> Path:
    """Copy the files of a bundle to ``NAME/VERSION`` below a folder, and return that."""
    checked = parse(manifest, store.url / path / MANIFEST)
    folder = out / checked.name / checked.version
    folder.mkdir(parents=True)
    end = time.monotonic() + COPY_WITHIN_S
    for entry in checked.files:
        _copy_file(store, f"{path}/{entry.name}".lstrip("/"), entry, folder / entry.name, end)
    (folder / MANIFEST).write_bytes(manifest)
    return folder


def _copy_file(store: Store, path: str, entry: BundleFile, out: Path, end: float) -> None:
    hashed, size = hashlib.sha256(), 0
    with out.open("wb") as file:
        for piece in store.stream(path):
            if time.monotonic() > end:
                raise BundleError(store.url / path, f"is not copied: the bundle takes longer than {COPY_WITHIN_S:g} s")
            size += len(piece)
            if size > entry.size:
                break
            hashed.update(piece)
            file.write(piece)
    if size != entry.size:
        more = "more than" if size > entry.size else f"{size} bytes instead of"
        raise BundleError(store.url / path, f"has {more} {entry.size}: truncated or replaced; publish another version")
    if hashed.hexdigest() != entry.sha256:
        raise BundleError(
            store.url / path, "does not match its sha256 in the manifest: altered; publish another version"
        )


def _whole_copy(copy: Path, manifest: bytes) -> Path | None:
    """Return the folder of a copy if it is what was copied, else None; disks and people alter caches."""
    if not copy.is_dir():
        return None
    checked = parse(manifest, copy / MANIFEST)
    folder = copy / checked.name / checked.version
    digests = {entry.name: entry.sha256 for entry in checked.files} | {MANIFEST: hashlib.sha256(manifest).hexdigest()}
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
        places: of all bundles that are served; those that lie elsewhere are left alone.
    """
    bundles = cache_folder() / "bundles"
    wanted = {place.parents[1] for place in places if place.is_relative_to(bundles)}
    for copy in _held.keys() - wanted:
        os.close(_held.pop(copy))
    for copy in wanted - _held.keys():
        with suppress(OSError):  # of a cache that others fill, and this process may not write
            _held[copy] = os.open(bundles / f".{copy.name}.use", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(_held[copy], fcntl.LOCK_SH)


@contextmanager
def _lock(file: Path, kind: int) -> Iterator[None]:
    """Hold a lock against other processes of this machine."""
    with file.open("w") as opened:
        fcntl.flock(opened, kind)
        yield


_INDEX = TypeAdapter(dict[str, dict[str, str]])


class Index:
    """What a URL held when it was last read, on disk: a process that starts while the store is down goes on from it.

    Args:
        url: of the store.
    """

    def __init__(self, url: Url) -> None:
        place = " ".join((url, *_endpoint(url)))
        self._file = cache_folder() / "stores" / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"

    def copy_of(self, path: str) -> Path | None:
        """Return the copy that a path had the last time; None if it is not in the cache any more."""
        place = self._read()["copies"].get(path)
        return Path(place) if place is not None and Path(place, MANIFEST).is_file() else None

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
        with suppress(OSError, ValueError, ValidationError):
            return {"pointers": {}, "copies": {}} | _INDEX.validate_json(self._file.read_bytes())
        return {"pointers": {}, "copies": {}}

    def _write(self, content: dict[str, dict[str, str]]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self._file.parent)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(content, file)
            Path(temporary).replace(self._file)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
