"""The models folder: ``NAME/VERSION/`` are bundles, and one pointer file per name selects the served version.

``NAME/CURRENT``
    its text is the version that is served.
``NAME/ALIAS``
    its text is the name of a bundle: ``NAME`` is another name of that one.

An alias is a pointer file like ``CURRENT``, and not a setting, so that it can be changed while the service runs, in the
same way and as atomically.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from listwright.ranking import plain_file
from listwright.ranking.plain_file import NotPlainError

CURRENT = "CURRENT"
ALIAS = "ALIAS"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MAX_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Pointers:
    """Content of the models folder.

    Args:
        versions: by name, the version to serve.
        aliases: names of names.
        faults: by name, why its pointer cannot be followed.
    """

    versions: Mapping[str, str]
    aliases: Mapping[str, str]
    faults: Mapping[str, str]


class PointerError(ValueError):
    """A pointer file cannot be followed."""


def read(folder: Path) -> Pointers:
    """Read all pointers. A folder without one is not served; nor is one whose name no bundle could have.

    Raises:
        OSError: if the folder cannot be listed.
    """
    versions, aliases, faults = {}, {}, {}
    for name in sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and _NAME.fullmatch(entry.name)):
        try:
            version, alias = _pointer(folder, name, CURRENT), _pointer(folder, name, ALIAS)
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


def state(folder: Path, name: str, version: str) -> tuple[object, ...]:
    """Return a state that changes when the pointer or the bundle is written again: a reason to retry a refused one."""
    return (version, _stamp(folder / name / CURRENT), _stamp(folder / name / version / "manifest.json"))


def point(folder: Path, name: str, version: str) -> None:
    """Write ``CURRENT``, in one step.

    Raises:
        OSError: if the folder cannot be written.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{CURRENT}.", dir=folder / name)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(version + "\n")
            os.fchmod(handle, 0o644)  # the reader may be another user than the writer
            file.flush()
            os.fsync(handle)
        Path(temporary).replace(folder / name / CURRENT)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


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
    text = content.decode("utf-8-sig", "replace").strip()
    if not _NAME.fullmatch(text):
        raise PointerError(f"{kind} holds no name of a folder, but {len(content)} bytes: write one, in one step")
    return text


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
