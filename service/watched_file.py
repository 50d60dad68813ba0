"""Small files that are read again when they change, such as those of experiments and of rules."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from listwright.ranking import plain_file
from listwright.ranking.errors import ListwrightError
from listwright.ranking.plain_file import NotPlainError
from listwright.service.bundles.loading import next_pause_s

LOOK_S = 0.2
"""Seconds between two looks at a file."""

START_S = 2.0
"""Seconds that a start waits for the first look."""

Content = TypeVar("Content")


class WatchedFileError(ListwrightError):
    """Error for a file that cannot be used; the message goes on behind its name."""


class WatchedFile(Generic[Content]):
    """The last valid content of a file.

    Args:
        path: Path of the file.
        most_bytes: Largest size of the file, in bytes.
        parse: Function that returns the content of bytes, or raises :class:`WatchedFileError`.
        content: Content before the first look.
        absent: Content where there is no file; None: the last one stays.
        describe: Function that describes a content, for the log.
        log: Logger of the caller.
        clock: Clock in seconds.
    """

    def __init__(
        self,
        path: Path,
        most_bytes: int,
        parse: Callable[[bytes], Content],
        *,
        content: Content,
        absent: Content | None,
        describe: Callable[[Content], str],
        log: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._most_bytes, self._parse = path, most_bytes, parse
        self._absent, self._describe, self._log, self._clock = absent, describe, log, clock
        self._stamp: object = ()
        self._new_stamp: object = ()
        self._pause_s, self._again_at = 0.0, 0.0
        self.content = content
        """Another object after each change, replaced in one assignment."""
        self.refused: str | None = None
        """Why the file as it is now is not used."""

    def look(self) -> None:
        """Read the file if it has changed, once it is the same at two looks: it may still be being written.

        A file that cannot be used is tried again: the cause may pass.
        """
        stamp = _stamp(self._path)
        if stamp == self._stamp and (self.refused is None or self._clock() < self._again_at):
            return
        if self._stamp != () and stamp not in (self._stamp, self._new_stamp):
            self._new_stamp = stamp
            return
        self._pause_s = 0.0 if stamp != self._stamp else self._pause_s
        self._stamp = stamp
        try:
            if isinstance(stamp, str):
                raise WatchedFileError(f"cannot be read: {stamp}")
            content = self.read()
        except WatchedFileError as error:
            self._pause_s = next_pause_s(self._pause_s, 0.0)
            self._again_at = self._clock() + self._pause_s
            before, self.refused = self.refused, f"{self._path.name} {error}"
            if self.refused != before:
                stays = self._describe(self.content)
                self._log.error("refused %s: %s; %s stays as it was", self._path, error, stays)
            return
        self.content, self.refused = content, None
        description = self._describe(content)
        self._log.info(
            "%s: %s", self._path.name, description if stamp is not None else f"{description}, as there is no file"
        )

    def read(self) -> Content:
        """Read the file.

        Raises:
            WatchedFileError: if it cannot be used.
        """
        try:
            return self._parse(plain_file.read(self._path, self._most_bytes))
        except NotPlainError as error:
            raise WatchedFileError(str(error)) from error
        except (FileNotFoundError, NotADirectoryError) as error:
            if self._absent is None:
                raise WatchedFileError("is not there") from error
            return self._absent
        except OSError as error:
            raise WatchedFileError(f"cannot be read: {error.strerror}") from error


def _stamp(path: Path) -> tuple[int, ...] | str | None:
    """Return a stamp that changes when the file is written again; None without one; the text of an error."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return error.strerror or type(error).__name__
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino  # ctime: also of its permissions


class LookThread:
    """A daemon thread that looks again and again: a file system that hangs holds this thread, and no request.

    Args:
        name: Name of the thread.
        look: Function that is called in the thread.
        log: Logger of errors.
    """

    def __init__(self, name: str, look: Callable[[], None], log: logging.Logger) -> None:
        self._name, self._look, self._log = name, look, log
        self._first, self._end = threading.Event(), threading.Event()

    def start(self) -> None:
        """Begin to look, and wait for the first look, but not for long."""
        threading.Thread(target=self._look_on, name=self._name, daemon=True).start()
        self._first.wait(START_S)

    def stop(self) -> None:
        """Stop looking."""
        self._end.set()

    def _look_on(self) -> None:
        while not self._end.is_set():
            try:
                self._look()
            except Exception:  # no caller waits for this thread, so the log has it
                self._log.exception("looking at the file of %s failed; what is in force stays", self._name)
            self._first.set()
            self._end.wait(LOOK_S)
