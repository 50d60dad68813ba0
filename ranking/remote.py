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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from listwright.ranking.errors import BundleError, ListwrightError
from listwright.ranking.manifest import BundleFile, parse
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

UNUSED_S = 7 * 86_400.0
"""Seconds after its last use at which a copy is removed from the cache."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z ]+)")

_log = logging.getLogger("listwright.remote")

_Answer = TypeVar("_Answer")


class Url(str):
    """Address of a bundle, or of a folder of bundles, in a store. It holds no credentials."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self}/{name}")

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
    if scheme in ("hf", "az") and len(place.split("/")) < 2:
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
        ListwrightError: if the variable is empty.
    """
    own = os.environ.get("LISTWRIGHT_CACHE")
    if own is not None:
        if not own.strip():
            raise ListwrightError("LISTWRIGHT_CACHE: is empty: name a folder, or do not set it")
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "listwright"


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
        self._large = _open(url, {"timeout": "1day", "read_timeout": f"{IDLE_S:g}s"}, {"max_retries": 5})

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

        pieces = iter(_ask(self.url / path, lambda: get(self._large, path)).stream())
        while (piece := _ask(self.url / path, lambda: next(pieces, None))) is not None:
            yield bytes(piece)

    def write(self, path: str, content: bytes | Path, *, new: bool = False) -> None:
        """Write a file, in one step.

        Args:
            path: below the URL.
            content: its bytes, or a local file.
            new: refuse to replace a file.

        Raises:
            FileExistsError: if ``new``, and there is one.
            StoreError: if the store does not take it.
        """
        from obstore import put  # noqa: PLC0415 - an extra
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        def write() -> None:
            try:
                if new:
                    put(self._large, path, content, mode="create")
                else:
                    put(self._large, path, content)
            except AlreadyExistsError:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.url / path) from None

        _ask(self.url / path, write)


def _open(url: Url, client: ClientConfig, retry: RetryConfig) -> ObjectStore:
    try:
        from obstore.store import HTTPStore, from_url  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise ListwrightError(f"{url} needs obstore: pip install 'listwright[remote]'") from None
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    address = str(url)
    if url.scheme == "hf":
        owner, repository, *path = address.removeprefix("hf://").split("/")
        repository, _, revision = repository.partition("@")
        hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        address = "/".join([hub, owner, repository, "resolve", revision or "main", *path])
        if token := os.environ.get("HF_TOKEN"):
            client = {**client, "default_headers": {"authorization": f"Bearer {token}"}}
    allow_http = address.startswith("http://") or (url.scheme == "s3" and endpoint.startswith("http://"))
    client = {**client, "allow_http": allow_http}
    try:
        if url.scheme in OBJECT_STORES:
            return from_url(address, config=None, client_options=client, retry_config=retry)
        return HTTPStore.from_url(address, client_options=client, retry_config=retry)
    except Exception as error:
        raise ListwrightError(
            f"{url} cannot be used ({type(error).__name__}): check the URL and its settings"
        ) from None


def _ask(url: Url, call: Callable[[], _Answer]) -> _Answer:
    """Return the answer of a store, or raise StoreError with a reason of our own words."""
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError  # noqa: PLC0415 - an extra

    try:
        return call()
    except (StoreError, FileExistsError):
        raise
    except FileNotFoundError:
        raise StoreError(errno.ENOENT, "does not exist", url) from None
    except (PermissionDeniedError, UnauthenticatedError):
        reason = "access is denied: check the credentials in the environment, and what they may read"
        raise StoreError(errno.EACCES, reason, url) from None
    except (BaseError, OSError, ValueError) as error:
        status = _STATUS.search(str(error))
        answer = "the store does not answer" if status is None else f"the store answers {status[1].strip()}"
        raise StoreError(errno.EIO, answer, url) from None


_MAX_MANIFEST = 64 * 2**20


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
    url = _below(store.url, path)
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
    try:
        with _lock(bundles, digest):
            place = _whole_copy(bundles / digest, manifest)
            if place is None:
                shutil.rmtree(bundles / digest, ignore_errors=True)
                with tempfile.TemporaryDirectory(dir=bundles, prefix=".", ignore_cleanup_errors=True) as own:
                    copy = _copy(store, path, manifest, Path(own) / "copy")
                    (Path(own) / "copy").rename(bundles / digest)
                place = bundles / digest / copy.parent.name / copy.name
                _remove_unused(bundles)
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
    url = _below(store.url, path) / MANIFEST
    manifest = store.read_small(f"{path}/{MANIFEST}".lstrip("/"), _MAX_MANIFEST)
    if manifest is None:
        raise BundleError(url, "does not exist: a bundle is a folder NAME/VERSION; name a version")
    if manifest.content is None or manifest.fault:
        raise BundleError(url, manifest.fault)
    return manifest.content


def _below(url: Url, path: str) -> Url:
    return url / path if path else url


def _copy(store: Store, path: str, manifest: bytes, out: Path) -> Path:
    """Copy the files of a bundle to ``NAME/VERSION`` below a folder, and return that."""
    checked = parse(manifest, _below(store.url, path) / MANIFEST)
    folder = out / checked.name / checked.version
    folder.mkdir(parents=True)
    for entry in checked.files:
        _copy_file(store, f"{path}/{entry.name}".lstrip("/"), entry, folder / entry.name)
    (folder / MANIFEST).write_bytes(manifest)
    return folder


def _copy_file(store: Store, path: str, entry: BundleFile, out: Path) -> None:
    hashed, size = hashlib.sha256(), 0
    with out.open("wb") as file:
        for piece in store.stream(path):
            size += len(piece)
            if size > entry.size:
                break
            hashed.update(piece)
            file.write(piece)
    if size != entry.size:
        more = "more than" if size > entry.size else f"{size} bytes instead of"
        raise BundleError(store.url / path, f"has {more} {entry.size}: truncated or replaced; publish it again")
    if hashed.hexdigest() != entry.sha256:
        raise BundleError(store.url / path, "does not match its sha256 in the manifest: altered; publish it again")


def _whole_copy(copy: Path, manifest: bytes) -> Path | None:
    """Return the folder of a copy if it is what was copied, else None; disks and people alter caches."""
    if not copy.is_dir():
        return None
    checked = parse(manifest, copy / MANIFEST)
    folder = copy / checked.name / checked.version
    for entry in checked.files:
        try:
            with (folder / entry.name).open("rb") as file:
                intact = hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256
        except OSError:
            intact = False
        if not intact:
            _log.warning("%s was altered since it was copied: the bundle is copied again", folder / entry.name)
            return None
    return folder


def _remove_unused(bundles: Path) -> None:
    for entry in bundles.iterdir():
        with suppress(OSError):
            if entry.stat().st_mtime < time.time() - UNUSED_S:
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()


@contextmanager
def _lock(folder: Path, name: str) -> Iterator[None]:
    """Hold a lock against other processes of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Index:
    """What a URL held when it was last read, on disk: a process that starts while the store is down goes on from it.

    Args:
        url: of the store.
    """

    def __init__(self, url: Url) -> None:
        self._file = cache_folder() / "stores" / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"

    def copy_of(self, path: str) -> Path | None:
        """Return the copy that a path had the last time; None if it is not in the cache any more."""
        place = self._read()["copies"].get(path)
        return Path(place) if place is not None and Path(place, MANIFEST).is_file() else None

    def record_copy(self, path: str, place: Path) -> None:
        """Record the copy of a path; of one name, only the last two versions are recorded."""
        content = self._read()
        copies = content["copies"]
        copies.pop(path, None)
        same = [other for other in copies if other.rpartition("/")[0] == path.rpartition("/")[0]]
        for other in same[:-1]:
            del copies[other]
        copies[path] = str(place)
        self._write(content)

    def pointers(self) -> dict[str, str]:
        """Return the pointers that were recorded last, by path."""
        return dict(self._read()["pointers"])

    def record_pointers(self, pointers: dict[str, str]) -> None:
        """Record the pointers, and that the recorded copies are still in use."""
        content = self._read()
        for place in content["copies"].values():
            with suppress(OSError):
                os.utime(Path(place).parents[1])
        if content["pointers"] != pointers:
            content["pointers"] = pointers
            self._write(content)

    def _read(self) -> dict[str, dict[str, str]]:
        content = {}
        with suppress(OSError, ValueError):
            content = json.loads(self._file.read_bytes())
        return {"pointers": content.get("pointers", {}), "copies": content.get("copies", {})}

    def _write(self, content: dict[str, dict[str, str]]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self._file.parent)
        with os.fdopen(handle, "w") as file:
            json.dump(content, file)
        Path(temporary).replace(self._file)
