"""The models folder, on disk or at a URL: ``NAME/VERSION/`` are bundles, and a pointer file per name selects one.

``NAME/CURRENT``
    its text is the version that is served.
``NAME/ALIAS``
    its text is the name of a bundle: ``NAME`` is another name of that one.

An alias is a pointer file like ``CURRENT``, and not a setting, so that it can be changed while the service runs, in the
same way and as atomically.

At a URL only the pointers are polled, by their ETag. Names are listed every :data:`LIST_EVERY_S`. Stores that cannot be
listed (``hf://`` and ``https://``) serve one name: the URL is that of ``NAME``.
"""

from __future__ import annotations

import errno
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from listwright.ranking import plain_file
from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.errors import ListwrightError
from listwright.ranking.plain_file import NotPlainError
from listwright.ranking.remote import OBJECT_STORES, Index, SmallFile, Store, StoreError, Url, copy_bundle

CURRENT = "CURRENT"
ALIAS = "ALIAS"

LIST_EVERY_S = 60.0
"""Seconds between two listings of the names at a URL, which cost more than looking at pointers."""

_AT_A_TIME = 16
"""Pointers that are polled at a time."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MAX_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Pointers:
    """Content of the models folder.

    Args:
        versions: Version to serve, by name.
        aliases: Name that each alias stands for.
        faults: Reason why a pointer cannot be followed, by name.
        outage: Reason why the store gave no answer, so that these are the last known pointers; empty if they are its
            own.
    """

    versions: Mapping[str, str]
    aliases: Mapping[str, str]
    faults: Mapping[str, str]
    outage: str = ""


class PointerError(ValueError):
    """Error for a pointer file that cannot be followed."""


def read(folder: Path | Url, *, afresh: bool = False) -> Pointers:
    """Read all pointers. A folder without one is not served; nor is one whose name no bundle could have.

    Args:
        folder: Models folder, on disk or at a URL.
        afresh: True to list the names at a URL now.

    Raises:
        OSError: if the folder cannot be listed.
        ListwrightError: if a URL cannot be used at all.
    """
    if isinstance(folder, Url):
        return remote_models(folder).read(afresh=afresh)
    names = (entry.name for entry in os.scandir(folder) if entry.is_dir())
    return _follow(names, lambda name, kind: _pointer(folder, name, kind))


def _follow(names: Iterable[str], pointer_of: Callable[[str, str], str | None]) -> Pointers:
    versions, aliases, faults = {}, {}, {}
    for name in sorted(name for name in names if NAME.fullmatch(name)):
        try:
            version, alias = pointer_of(name, CURRENT), pointer_of(name, ALIAS)
            if version is not None and alias is not None:
                raise PointerError(f"there are {CURRENT} and {ALIAS}: remove one")
        except PointerError as error:
            faults[name] = str(error)
            continue
        if version is not None:
            versions[name] = version
        if alias is not None:
            aliases[name] = alias
    for name in [name for name, target in aliases.items() if target not in versions.keys() | faults.keys()]:
        faults[name] = f"{ALIAS} says {aliases.pop(name)!r}, which is the name of no bundle here"
    return Pointers(versions, aliases, faults)


def state(folder: Path | Url, name: str, version: str) -> tuple[object, ...]:
    """Return a state that changes when the pointer or the bundle is written again: a reason to retry a refused one."""
    if isinstance(folder, Url):
        return (version, remote_models(folder).etag(name))
    return (version, _stamp(folder / name / CURRENT), _stamp(folder / name / version / "manifest.json"))


def point(folder: Path | Url, name: str, version: str) -> None:
    """Write ``CURRENT``, in one step.

    Raises:
        OSError: if the folder cannot be written.
    """
    if isinstance(folder, Url):
        remote_models(folder).point(name, version)
    else:  # its reader may be another user than its writer
        atomic_write(folder / name / CURRENT, version + "\n", mode=0o644, sync=True)


def _pointer(folder: Path, name: str, kind: str) -> str | None:
    """Read the name in a pointer file. No error repeats other content: it may be any file's, by a mistake."""
    try:
        content = plain_file.read(folder / name / kind, _MAX_BYTES, inside=(folder, folder / name))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotPlainError as error:
        raise PointerError(f"{kind} {error}: write the name into a plain file here, in one step") from error
    except OSError as error:
        raise PointerError(f"{kind} cannot be read: {error.strerror}") from error
    return _parse(content, kind)


def _parse(content: bytes, kind: str) -> str:
    try:
        text = plain_file.to_text(content).strip()
    except ValueError as error:
        raise PointerError(f"{kind} holds no name of a folder, but {len(content)} bytes: {error}") from error
    if not NAME.fullmatch(text):
        raise PointerError(f"{kind} holds no name of a folder, but {len(content)} bytes: write one, in one step")
    return text


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@cache
def remote_models(url: Url) -> RemoteModels:
    """Return the models folder at a URL, the same for all of this process."""
    return RemoteModels(url)


class RemoteModels:
    """The models folder at a URL, as it was last read. For one thread at a time.

    Args:
        url: URL of the folder; where a store cannot be listed, of one ``NAME`` in it.
        clock: Clock in seconds.

    Raises:
        ListwrightError: if the URL cannot be used.
    """

    def __init__(self, url: Url, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._index, self._clock = Store(url), Index(url), clock
        self._only = None if url.scheme in OBJECT_STORES else url.name
        if self._only and not url.depth:
            raise ListwrightError(f"{url} cannot be listed: name the folder of one model in it, the one with {CURRENT}")
        self._names: list[str] = []
        self._files: dict[str, SmallFile] = {}
        self._recorded: dict[str, str] = {}
        self._listed = -math.inf

    def read(self, *, afresh: bool) -> Pointers:
        """Read the pointers that have changed; while the store gives no answer, return those of the last time.

        Args:
            afresh: True to list the names now.

        Raises:
            StoreError: if the store gives no answer, and none is known from an earlier time.
        """
        outage = None
        if afresh or self._clock() - self._listed >= LIST_EVERY_S:
            try:
                self._list()
            except StoreError as error:
                outage = error
        faults = self._poll()
        if faults and len(faults) == len(self._files):
            outage = next(iter(faults.values()))
        if outage is not None and not any(file.content for file in self._files.values()):
            known = self._index.pointers()
            if not known:
                raise outage
            self._files = {path: SmallFile(text.encode(), None) for path, text in known.items()}
            self._names = sorted({self._only or path.rpartition("/")[0] for path in known})
        if outage is None:
            self._files |= {path: SmallFile(b"", None, f"cannot be read: {f.strerror}") for path, f in faults.items()}
        return replace(_follow(self._names, self._pointer), outage=str(outage.strerror) if outage else "")

    def copy(self, name: str, version: str, abandoned: Callable[[], bool]) -> Path:
        """Return the local copy of a bundle, as :func:`~listwright.ranking.remote.copy_bundle`."""
        return copy_bundle(self._store, self._path(name, version), or_last=True, abandoned=abandoned)

    def etag(self, name: str) -> str | None:
        """Return the ETag of ``CURRENT``."""
        file = self._files.get(self._path(name, CURRENT))
        return None if file is None else file.etag

    def point(self, name: str, version: str) -> None:
        """Write ``CURRENT``.

        Raises:
            StoreError: if the store does not take it.
        """
        self._store.write(self._path(name, CURRENT), f"{version}\n".encode())

    def _list(self) -> None:
        listed = [self._only] if self._only else self._store.list_names()
        self._names = [name for name in listed if NAME.fullmatch(name)]
        paths = [self._path(name, kind) for name in self._names for kind in (CURRENT, ALIAS)]
        self._files = {path: self._files.get(path, _UNREAD) for path in paths}
        self._listed = self._clock()

    def _poll(self) -> dict[str, StoreError]:
        """Read all pointers that have changed; return why others cannot be read."""
        faults = {}

        def read(path: str) -> SmallFile | None:
            last = self._files[path]
            try:
                file = self._store.read_small(path, _MAX_BYTES, last.etag)
            except StoreError as error:
                faults[path] = error
                return last
            return last if file is not None and file.content is None else file

        with ThreadPoolExecutor(_AT_A_TIME, "pointers") as threads:
            answers = dict(zip(self._files, threads.map(read, self._files), strict=True))
        for path in [path for path, error in faults.items() if error.errno == errno.EACCES]:
            own, other_name = (ALIAS, CURRENT) if path.endswith(ALIAS) else (CURRENT, ALIAS)
            other = answers.get(path.removesuffix(own) + other_name)
            if other is not None and other.content:  # what is not there may be denied, not missing
                del faults[path]
                answers[path] = None
        self._files = {path: file for path, file in answers.items() if file is not None}
        texts = {path: file.content.decode("utf-8", "replace") for path, file in self._files.items() if file.content}
        if not faults and texts != self._recorded:
            with suppress(OSError):  # a later start while the store is down goes without them
                self._index.record_pointers(texts)
                self._recorded = texts
        return faults

    def _pointer(self, name: str, kind: str) -> str | None:
        file = self._files.get(self._path(name, kind))
        if file is None or file is _UNREAD or file.content is None:
            return None
        if file.fault:
            raise PointerError(f"{kind} {file.fault}")
        return _parse(file.content, kind)

    def _path(self, name: str, entry: str) -> str:
        return entry if self._only else f"{name}/{entry}"


_UNREAD = SmallFile(b"", None)
"""Value of a pointer that may exist and has not been read."""
