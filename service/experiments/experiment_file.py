"""The file of experiments, in TOML, and the thread that watches it and the kill switch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from listwright.ranking.experiments import bounds
from listwright.ranking.plain_file import from_toml
from listwright.service.bundles.routing_switch import look
from listwright.service.participation import Kind
from listwright.service.problems import describe, fields_at
from listwright.service.settings import PREFIX, Settings
from listwright.service.watched_file import LookThread, WatchedFile, WatchedFileError

MOST = 32
"""Experiments of a file: each has series of metrics."""

ROUNDING = 1e-9
"""Tolerance for the sum of the shares of a control, which may exceed 1 by it."""

STALE_S = 2.0
"""Seconds after which a look at the kill switch counts as failed."""

MOST_BYTES = 2**18

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_BUNDLE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99})?$"
_OWN = {"split": {"challenger_share"}, "explore": {"swap_share", "k"}, "shadow": {"core_share"}, "interleave": set()}
_RANKS = {"max_failures"}  # of those with a challenger

BundleName = Annotated[str, Field(pattern=_BUNDLE, description="NAME, NAME/VERSION or an alias")]

_OFF = f"the file of {PREFIX}EXPERIMENTS_OFF_FILE"
_switch = partial(look, what=_OFF)

_log = logging.getLogger("listwright.experiments")


class ExperimentFileError(WatchedFileError):
    """Error for a file of experiments that cannot be used."""


class Definition(BaseModel):
    """One experiment, as the file has it.

    Args:
        name: Name of the experiment, unique in the file; metrics, answers and served records have it.
        kind: Kind of the experiment.
        control: Name of the bundle whose requests take part.
        challenger: Name of the bundle that is compared with control; None for ``explore``.
        share: Share of control's traffic that takes part, by hash of the unit.
        salt: Salt of the random draws; None: the name.
        max_failures: Number of failures in a row after which the challenger is not asked again.
        challenger_share: Share of the participating units that the challenger answers; ``split``.
        swap_share: Share of the participating lists that have a swap; ``explore``.
        k: Number of places from the top that a swap may move; ``explore``.
        core_share: Share of one core's time that the challenger may take in the background; ``shadow``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=_NAME)]
    kind: Kind
    control: BundleName
    challenger: BundleName | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    salt: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    max_failures: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    challenger_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    swap_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    k: Annotated[int, Field(ge=2, le=1000)] = 10
    core_share: Annotated[float, Field(gt=0, le=1)] = 0.005

    @model_validator(mode="after")
    def _fits_kind(self) -> Definition:
        if self.kind == "explore" and self.challenger is not None:
            raise ValueError("kind explore has no challenger: remove it")
        if self.kind != "explore" and self.challenger is None:
            raise ValueError(f"kind {self.kind} needs a challenger: name a served bundle")
        own = _OWN[self.kind] | (set() if self.kind == "explore" else _RANKS)
        foreign = sorted(self.model_fields_set & (set().union(*_OWN.values()) | _RANKS) - own)
        if foreign:
            raise ValueError(f"kind {self.kind} has no {', '.join(foreign)}: remove what it cannot use")
        return self

    @property
    def draw_salt(self) -> str:
        """Salt of its draws."""
        return self.name if self.salt is None else self.salt


class ExperimentFile(BaseModel):
    """Content of the file of experiments.

    Args:
        salt: Salt of the assignment of traffic to experiments.
        experiment: Experiments in order; those of one control have one range of its traffic after the other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    salt: Annotated[str, Field(max_length=200)] = ""
    experiment: Annotated[list[Definition], Field(max_length=MOST)] = []

    @model_validator(mode="after")
    def _names_and_shares(self) -> ExperimentFile:
        names = [definition.name for definition in self.experiment]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two experiments are named {twice[0]!r}: give each a name of its own")
        for control in {definition.control for definition in self.experiment}:
            total = bounds([definition.share for definition in self.experiment if definition.control == control])[-1]
            if total > 1.0 + ROUNDING:
                raise ValueError(f"shares of the traffic of {control} add up to {total:g}: lower them to 1 at most")
        return self


def parse(content: bytes) -> ExperimentFile:
    """Return the file's content, checked.

    Raises:
        ExperimentFileError: with the place and the remedy.
    """
    try:
        return ExperimentFile.model_validate(from_toml(content))
    except ValidationError as error:
        raise ExperimentFileError("; ".join(_describe(fault, content) for fault in error.errors()[:3])) from error
    except ValueError as error:
        raise ExperimentFileError(f"is no TOML: {error}") from error


def _describe(fault: object, content: bytes) -> str:
    """Describe one fault of pydantic, with the experiment's name for its place in the list."""
    assert isinstance(fault, dict)
    place = list(fault["loc"])
    message = describe(fault | {"fields": partial(fields_at, ExperimentFile, place[:-1])})
    if place[:1] == ["experiment"] and len(place) > 1:
        definition = from_toml(content)["experiment"][place[1]]
        name = definition.get("name") if isinstance(definition, dict) else None
        place[:2] = [f"experiment {place[1] + 1}" if not isinstance(name, str) else f"experiment {name[:100]!r}"]
    return ": ".join([*map(str, place), message])


class Watch:
    """Watcher of the file. A daemon thread looks: a file system that hangs holds that thread, and no request.

    Args:
        settings: Settings that name the file and the kill switch.
        after_look: Function that is called in the thread after each look.
        clock: Clock in seconds.
    """

    def __init__(
        self, settings: Settings, after_look: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        assert settings.experiments is not None
        self._off, self._clock = settings.experiments_off_file, clock
        self.file = WatchedFile(
            settings.experiments,
            MOST_BYTES,
            parse,
            content=(absent := ExperimentFile()),
            absent=absent,
            describe=lambda file: ", ".join(f"{d.name} ({d.kind})" for d in file.experiment) or "no experiment",
            log=_log,
            clock=clock,
        )
        self._after_look = after_look
        self._thread = LookThread("experiments", self._look_on, _log)
        self.start, self.stop = self._thread.start, self._thread.stop
        self._kill: tuple[float, str | None] = (-STALE_S, None)

    def reason_killed(self) -> str | None:
        """Return why no experiment may run at this moment; None if they may.

        Convention: a kill switch that cannot be looked for counts as there.
        """
        if self._off is None:
            return None
        at, reason = self._kill
        if self._clock() - at > STALE_S:
            return f"{_OFF} cannot be looked for: its file system does not answer"
        return reason

    def look(self) -> None:
        """Look once at both files."""
        if self._off is not None:
            self._kill = (self._clock(), _switch(self._off))
        self.file.look()

    def _look_on(self) -> None:
        self.look()
        self._after_look()
