"""File locks, and file access in threads: a file system that hangs holds a thread, and nothing else.

The threads are daemons, which the process does not wait for at its end.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

_Read = TypeVar("_Read")

_log = logging.getLogger("listwright.service")


class Disk:
    """Calls that may hang, one at a time. For one event loop.

    Args:
        what: Name of the file system, for errors.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._hung: threading.Thread | None = None

    @property
    def hangs(self) -> bool:
        """Whether a call that was given up has still not come back."""
        return self._hung is not None and self._hung.is_alive()

    async def run(self, call: Callable[[], _Read], within_s: float) -> _Read:
        """Return what a call returns, or raise what it raises; it runs in a thread of its own.

        Args:
            call: Function that reads or writes files.
            within_s: Seconds after which the call is given up. Its thread stays until it returns; its result is lost.

        Raises:
            OSError: ETIMEDOUT, if it takes longer, or one that was given up still hangs.
        """
        if self.hangs:
            raise OSError(errno.ETIMEDOUT, f"{self._what} still does not answer")
        future, thread = _start(call)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), within_s)
        except TimeoutError as error:
            if future.done() and not future.cancelled():  # the call itself raised it
                raise
            self._hung = thread
            raise OSError(errno.ETIMEDOUT, f"{self._what} does not answer within {within_s:g} s") from error
        except asyncio.CancelledError:
            self._hung = thread
            raise


def _start(call: Callable[[], _Read]) -> tuple[Future[_Read], threading.Thread]:
    future: Future[_Read] = Future()

    def work() -> None:
        try:
            result = call()
        except BaseException as error:
            _settle(future.set_exception, error)
        else:
            _settle(future.set_result, result)

    thread = threading.Thread(target=work, name="disk", daemon=True)
    thread.start()
    return future, thread


def _settle(settle: Callable[[_Read], None], value: _Read) -> None:
    with suppress(Exception):  # no caller waits any more: the future was cancelled, or its event loop is closed
        settle(value)


@contextmanager
def locked(path: Path) -> Iterator[int | None]:
    """Open and lock a file; yield its descriptor, or None if it is locked already, gone, or cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if path.exists():
            _log.warning("%s cannot be opened, and stays: %s", path, error.strerror)
        yield None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = path.stat().st_ino == os.fstat(descriptor).st_ino
    except OSError:
        there = False
    try:
        yield descriptor if there else None
    finally:
        os.close(descriptor)
