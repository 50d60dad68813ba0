"""The file of experiments and their kill switch, looked at by a thread that nobody waits for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from listwright.ranking import plain_file
from listwright.ranking.plain_file import NotPlainError
from listwright.service.bundles.loading import next_pause_s
from listwright.service.experiments.definition import ExperimentFile, ExperimentFileError, parse
from listwright.service.settings import PREFIX, Settings

LOOK_S = 0.2
"""Between two looks at the files."""

STALE_S = 2.0
"""A look that takes longer says that the kill switch cannot be looked for."""

MOST_BYTES = 2**18

_OFF = f"the file of {PREFIX}EXPERIMENTS_OFF_FILE"
_NONE = ExperimentFile()

_log = logging.getLogger("listwright.experiments")


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the file said when it last was right.

    Args:
        file: its content; without experiments where there is no file.

    Equality: by identity, so that a file that is written again counts as another one.
    """

    file: ExperimentFile


class Watch:
    """Keeps what the file says. A daemon thread looks: a file system that hangs holds that thread, and no request.

    Args:
        settings: name the file and the kill switch.
        looked: called in the thread after each look.
        clock: seconds.
    """

    def __init__(
        self, settings: Settings, looked: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        assert settings.experiments is not None
        self._file, self._off = settings.experiments, settings.experiments_off_file
        self._looked, self._clock = looked, clock
        self._stamp: object = ()
        self._pause_s, self._again_at = 0.0, 0.0
        self._kill: tuple[float, str | None] = (-STALE_S, None)
        self._first, self._end = threading.Event(), threading.Event()
        self.seen = Seen(_NONE)
        """Replaced whole, in one assignment."""
        self.refused: str | None = None
        """Why the file as it is now is not used."""

    def start(self) -> None:
        """Begin to look, and wait for the first look, but not for long."""
        threading.Thread(target=self._look_on, name="experiments", daemon=True).start()
        self._first.wait(STALE_S)

    def stop(self) -> None:
        """Look no more."""
        self._end.set()

    def killed(self) -> str | None:
        """Why no experiment may run at this moment; None if they may.

        Convention: a kill switch that cannot be looked for counts as there.
        """
        if self._off is None:
            return None
        at, reason = self._kill
        if self._clock() - at > STALE_S:
            return f"{_OFF} cannot be looked for: its file system does not answer"
        return reason

    def look(self) -> None:
        """One look at both files."""
        if self._off is not None:
            self._kill = (self._clock(), _switch(self._off))
        stamp = _stamp(self._file)
        if stamp == self._stamp and (self.refused is None or self._clock() < self._again_at):
            return
        self._pause_s = 0.0 if stamp != self._stamp else self._pause_s
        self._stamp = stamp
        self._read(stamp)

    def _read(self, stamp: object) -> None:
        """Read the file. One that cannot be used is tried again: what keeps it from being read may pass."""
        try:
            if isinstance(stamp, str):
                raise ExperimentFileError(f"cannot be read: {stamp}")
            file = _NONE if stamp is None else _parsed(self._file)
        except ExperimentFileError as error:
            self._pause_s = next_pause_s(self._pause_s, 0.0)
            self._again_at = self._clock() + self._pause_s
            before, self.refused = self.refused, f"{self._file.name} {error}"
            if self.refused == before:
                return
            names = ", ".join(one.name for one in self.seen.file.experiment) or "no experiment"
            _log.error("refused %s: %s; %s stays as it was", self._file, error, names)
            return
        self.seen, self.refused = Seen(file), None
        names = ", ".join(f"{one.name} ({one.kind})" for one in file.experiment) or "none"
        _log.info("experiments of %s: %s", self._file.name, names if stamp is not None else "none, as there is no file")

    def _look_on(self) -> None:
        while not self._end.is_set():
            try:
                self.look()
                self._looked()
            except Exception:  # no caller waits for this thread, so the log has it
                _log.exception("looking at the file of experiments failed; what runs stays")
            self._first.set()
            self._end.wait(LOOK_S)


def _parsed(path: Path) -> ExperimentFile:
    try:
        return parse(plain_file.read(path, MOST_BYTES))
    except NotPlainError as error:
        raise ExperimentFileError(str(error)) from error
    except FileNotFoundError:  # removed since it was looked at
        return _NONE
    except OSError as error:
        raise ExperimentFileError(f"cannot be read: {error.strerror}") from error


def _stamp(path: Path) -> tuple[int, ...] | str | None:
    """Changes when the file is written again; None where there is none, words where that cannot be said."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return error.strerror or type(error).__name__
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino  # ctime: also of its permissions


def _switch(file: Path) -> str | None:
    """Why the kill switch, as it is now, forbids experiments; None if it does not."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"{_OFF} cannot be looked for: {error.strerror}"
    return f"{_OFF} exists"
