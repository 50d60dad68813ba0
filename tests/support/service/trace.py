"""Which files of the service a request enters, in order."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import listwright.service

SERVICE = Path(listwright.service.__file__).resolve().parent


class Trace:
    """The entries of all threads, in order: each is a file below ``service/`` and the function that was called.

    A file is entered when a function of it is called from another file, whatever libraries stand between them. Several
    such calls, one after the other, are one entry; so is a coroutine, however often it goes on.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []
        self._frames: dict[int, FrameType] = {}  # kept, so that no other frame gets the id of one that has ended
        self._files: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Python's hook (``sys.setprofile``)."""
        if event != "call" or (file := self._file(frame)) is None or id(frame) in self._frames:
            return
        self._frames[id(frame)] = frame
        last = self.entries[-1][0] if self.entries else None
        if file not in (self._caller(frame), last):
            self.entries.append((file, frame.f_code.co_qualname))

    def _caller(self, frame: FrameType) -> str | None:
        """The file of the service that has called, with libraries between."""
        before = frame.f_back
        while before is not None and self._file(before) is None:
            before = before.f_back
        return None if before is None else self._file(before)

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if name not in self._files:
            path = Path(name).resolve()
            inside = path.is_relative_to(SERVICE)
            self._files[name] = str(path.relative_to(SERVICE)) if inside else None
        return self._files[name]


@contextmanager
def traced() -> Iterator[Trace]:
    """What this thread, and threads that begin meanwhile, enter."""
    trace, before = Trace(), sys.getprofile()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
