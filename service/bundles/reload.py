"""Reload of the models folder: look, load, verify, warm up, swap in one assignment."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import move_on_after

from listwright.ranking.bundle import Bundle
from listwright.ranking.errors import ListwrightError
from listwright.ranking.remote import Url, hold_copies
from listwright.service.bundles import folder
from listwright.service.bundles.loading import (
    SIDE_BY_SIDE,
    Paths,
    load_named,
    load_previous,
    next_pause_s,
    reason_of,
    refusal,
)
from listwright.service.bundles.models import Current, Models, Refusal
from listwright.service.disk import Disk
from listwright.service.errors import ReloadRefusedError
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry

EVERYTHING = "*"
"""Name of the refusal where the models folder itself cannot be read."""

FIXED = "LISTWRIGHT_BUNDLE serves one bundle for good: serve a folder of them with LISTWRIGHT_MODELS"

LOOK_WITHIN_S = 10.0
"""Seconds for reading the pointers, which are a few bytes each."""

WARN_EVERY_S = 60.0
"""Seconds between two warnings that the store of the models folder gives no answer."""

LOAD_WITHIN_S = 600.0
"""Seconds for loading a bundle: gigabytes may have to come over a network."""

RELOAD_WITHIN_S, FOLLOW_WITHIN_S = 30.0, 3.0
"""Seconds for which a reload that someone asked for, and any other, wait for loads; later ones
are served when they are ready."""

_log = logging.getLogger("listwright.service")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The last attempt to load the version of a pointer, which was refused."""

    state: object  # of the pointer and the manifest; a change leads to an attempt at once
    pause_s: float  # until the next attempt, where there is no change
    ended: float  # when the pause began


@dataclass(frozen=True, slots=True)
class _Load:
    """A load that goes on, of the version of a pointer; ``attempt.ended`` is when it began."""

    version: str
    attempt: _Attempt
    abandoned: threading.Event
    task: asyncio.Task[Bundle]


class Reloader:
    """Reloader that serves what the models folder names, and follows its changes. For one event loop.

    Args:
        serving: Holder of the served models, which are loaded before :meth:`run`.
        settings: Settings that name the folder.
        telemetry: Metrics that count swaps and refusals.
        on_swap: Function that is called with the served models after each swap.
        clock: Clock in seconds.
    """

    def __init__(
        self,
        serving: Current,
        settings: Settings,
        telemetry: Telemetry,
        on_swap: Callable[[Models], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._serving, self._settings, self._telemetry, self._on_swap = serving, settings, telemetry, on_swap
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        what = f"the {'store' if isinstance(settings.models, Url) else 'file system'} of the models folder"
        self._disk, self._disks = Disk(what), defaultdict[str, Disk](partial(Disk, what))
        self._woken, self._again = asyncio.Event(), False
        self._attempts: dict[str, _Attempt] = {}
        self._loads: dict[str, _Load] = {}
        self._side_by_side = asyncio.Semaphore(SIDE_BY_SIDE)
        self._warned = -math.inf

    @property
    def hangs(self) -> bool:
        """Whether a file system holds a thread of this process."""
        return any(disk.hangs for disk in (self._disk, *self._disks.values()))

    def wake(self) -> None:
        """Look now, and retry what was refused. From the event loop's thread."""
        self._again = True
        self._woken.set()

    async def run(self) -> None:
        """Look at intervals, when woken, and when a load has ended."""
        poll_s = self._settings.poll_s or None
        try:
            while True:
                with move_on_after(poll_s):
                    await self._woken.wait()
                again, self._again = self._again, False
                self._woken.clear()
                try:
                    await self._look(again=again)
                except Exception:
                    _log.exception("looking at the models folder failed; what is served stays")
        finally:
            self._abandon(self._loads.keys())

    async def reload(self, *, again: bool) -> Models:
        """Serve what the folder names; a bundle that fails its checks is refused, and what was served stays.

        Args:
            again: True to retry at once what was refused before.

        Returns:
            Models that are served now, refusals included.
        """
        models = await self._look(again=again)
        if again and self._loads:
            await asyncio.wait([load.task for load in self._loads.values()], timeout=RELOAD_WITHIN_S)
            models = await self._look(again=False)
        return models

    async def _look(self, *, again: bool) -> Models:
        async with self._one_at_a_time:
            root = self._root()
            before = self._now()
            try:
                pointers = await self._disk.run(partial(folder.read, root, afresh=again), LOOK_WITHIN_S)
            except OSError as error:
                if isinstance(root, Url):
                    self._telemetry.store_failures.inc()
                return self._all_stays(before, f"the models folder cannot be read: {error.strerror}")
            if not pointers.versions and not pointers.faults:
                return self._all_stays(before, f"the models folder holds no NAME/{folder.CURRENT}")
            listed = pointers.versions.keys() | pointers.faults.keys()
            current = {name: bundle for name, bundle in before.current.items() if name in listed}
            previous: dict[str, Bundle] = {}
            refused = {name: self._still_refused(before, name, reason) for name, reason in pointers.faults.items()}
            aliases = {n: t for n, t in before.aliases.items() if n in pointers.faults} | dict(pointers.aliases)
            if pointers.outage:
                self._telemetry.store_failures.inc()
                if self._clock() - self._warned >= WARN_EVERY_S:
                    self._warned = self._clock()
                    _log.warning("%s: %s; what is served stays", root, pointers.outage)
                refused[EVERYTHING] = before.refused.get(EVERYTHING) or refusal(EVERYTHING, "", pointers.outage)
                if refused[EVERYTHING].reason != pointers.outage:
                    refused[EVERYTHING] = refusal(EVERYTHING, "", pointers.outage)
            self._abandon(n for n, load in self._loads.items() if pointers.versions.get(n) != load.version)
            lookups = (self._find_bundle(before, n, version, again=again) for n, version in pointers.versions.items())
            for name, outcome in zip(pointers.versions, await asyncio.gather(*lookups), strict=True):
                if isinstance(outcome, Bundle):
                    current[name] = outcome
                elif outcome is not None:
                    refused[name] = outcome
            for name in current.keys() & before.current.keys():
                last = before.previous.get(name) if current[name] is before.current[name] else before.current[name]
                if last is not None:
                    previous[name] = last
            self._swap(before, Models(current, previous, aliases, refused))
            return self._now()

    async def rollback(self, model: str | None) -> Models:
        """Point a name back to the version that it served before, and serve that at once: it is in memory still.

        Raises:
            UnknownModelError: if there is no such name.
            ReloadRefusedError: if no version is kept, or the pointer cannot be written.
        """
        root, models = self._root(), self._now()
        name = models.choose(model, None).manifest.name
        if name not in models.previous:
            raise ReloadRefusedError(f"this process has served no other version of {name!r}: write {name}/CURRENT")
        version = models.previous[name].manifest.version
        try:
            await self._disk.run(partial(folder.point, root, name, version), LOOK_WITHIN_S)
        except OSError as error:
            raise ReloadRefusedError(
                f"{name}/CURRENT cannot be written ({error.strerror}): write {version!r} there yourself; that version "
                "is in memory still and answers as soon as the file says so"
            ) from error
        return await self.reload(again=False)

    async def keep(self, paths: Paths) -> None:
        """Keep for a rollback what the other workers keep; this one may have missed a version, or served another."""
        async with self._one_at_a_time:
            before = self._now()
            previous = dict(before.previous)
            for name, path in paths.items():
                if name not in before.current or path in [bundle.path for bundle in before.versions(name)]:
                    continue
                with suppress(OSError):  # the next look at the folder reports it
                    load = partial(load_previous, path, self._settings)
                    if (
                        kept_bundle := await self._disks[name].run(load, min(LOAD_WITHIN_S, RELOAD_WITHIN_S))
                    ) is not None:
                        previous[name] = kept_bundle
            self._swap(before, Models(before.current, previous, before.aliases, before.refused))

    def _now(self) -> Models:
        assert self._serving.models is not None  # loaded before the first reload
        return self._serving.models

    def _root(self) -> Path | Url:
        if self._settings.models is None:
            raise ReloadRefusedError(FIXED)
        return self._settings.models

    async def _find_bundle(self, before: Models, name: str, version: str, *, again: bool) -> Bundle | Refusal | None:
        """Return the bundle to serve under a name: a served or a new one; or its refusal; None while it is loading."""
        for ready in (before.current.get(name), before.previous.get(name)):
            if ready is not None and ready.manifest.version == version:
                return ready
        last, load = before.refused.get(name), self._loads.get(name)
        if last is not None and last.version != version:
            last = None
        within_s = 0.0
        if load is None:
            root, state = self._root(), None
            with suppress(OSError):  # the load will fail too, with the reason
                state = await self._disks[name].run(partial(folder.state, root, name, version), LOOK_WITHIN_S)
            attempt, began = self._attempts.get(name), self._clock()
            if again or last is None or attempt is None or attempt.state != state:
                attempt = _Attempt(state, 0.0, began)
            elif began < attempt.ended + attempt.pause_s:
                return last
            abandoned = threading.Event()
            task = asyncio.create_task(self._load(name, version, abandoned))
            load = self._loads[name] = _Load(version, _Attempt(state, attempt.pause_s, began), abandoned, task)
            within_s = FOLLOW_WITHIN_S
        if not (await asyncio.wait([load.task], timeout=within_s))[0]:
            if within_s:
                load.task.add_done_callback(lambda _: self._woken.set())
            return refusal(name, version, "is being loaded, and is served as soon as it is ready") if again else last
        del self._loads[name]
        try:
            return load.task.result()
        except ListwrightError as error:
            reason = reason_of(error)
        except OSError as error:
            reason = error.strerror or type(error).__name__
        except Exception as error:  # any fault of a new bundle leaves the served one as it is
            _log.exception("loading %s/%s failed", name, version)
            reason = f"loading raised {type(error).__name__}; the log has it all"
        ended, began = self._clock(), load.attempt.ended
        self._attempts[name] = _Attempt(load.attempt.state, next_pause_s(load.attempt.pause_s, ended - began), ended)
        if again:
            return self._refuse(before, name, version, reason)
        return self._still_refused(before, name, reason, version)

    async def _load(self, name: str, version: str, abandoned: threading.Event) -> Bundle:
        load = partial(load_named, self._root(), name, version, self._settings, abandoned.is_set)
        with move_on_after(FOLLOW_WITHIN_S):
            while self._disks[name].hangs:  # of a load that was abandoned
                await asyncio.sleep(0.05)
        async with self._side_by_side:
            return await self._disks[name].run(load, LOAD_WITHIN_S)

    def _abandon(self, names: Iterable[str]) -> None:
        """Give loads up; a thread that hangs stays."""
        for load in [self._loads.pop(name) for name in list(names)]:
            load.abandoned.set()
            load.task.cancel()

    def _still_refused(self, before: Models, name: str, reason: str, version: str = "") -> Refusal:
        """Return the last refusal if nothing has changed, else a new one, which is logged: repeats are not."""
        last = before.refused.get(name)
        if last is not None and (last.version, last.reason) == (version, reason):
            return last
        return self._refuse(before, name, version, reason)

    def _refuse(self, before: Models, name: str, version: str, reason: str) -> Refusal:
        self._telemetry.reloads.labels(name, "refused").inc()
        serves = before.current.get(before.name_of(name))
        goes_on = "nothing is served under that name" if serves is None else f"{serves.manifest.version} serves on"
        if name == EVERYTHING:
            _log.error("%s; what is served stays", reason)
        else:
            _log.error("refused %s/%s: %s; %s", name, version, reason, goes_on)
        return refusal(name, version, reason)

    def _all_stays(self, before: Models, reason: str) -> Models:
        refused = {EVERYTHING: self._still_refused(before, EVERYTHING, reason)}
        self._swap(before, Models(before.current, before.previous, before.aliases, refused))
        return self._now()

    def _swap(self, before: Models, after: Models) -> None:
        if after == before:
            return
        self._serving.models = after  # the one assignment
        hold_model_copies(after, self._settings)
        count_models(self._telemetry, after)
        for name in sorted(after.current.keys() | before.current.keys()):
            old, new = (m.current[name].manifest.version if name in m.current else None for m in (before, after))
            if old != new:
                self._telemetry.reloads.labels(name, "swapped").inc()
                _log.info("serving %s/%s instead of %s", name, new, old)
        if EVERYTHING in before.refused and EVERYTHING not in after.refused:
            _log.info("the models folder is read again")
        if self._on_swap is not None:
            self._on_swap(after)


def hold_model_copies(models: Models, settings: Settings) -> None:
    """Hold the local copies of served bundles that are at a URL; a folder needs none."""
    if isinstance(settings.models or settings.bundle, Url):
        hold_copies(bundle.path for bundle in (*models.current.values(), *models.previous.values()))


def count_models(telemetry: Telemetry, models: Models) -> None:
    """Set the metrics of served bundles."""
    telemetry.set_bundles(
        {
            (bundle.manifest.name, bundle.manifest.version): bundle.reranker.first_stage.engine
            for bundle in models.current.values()
        },
        ((bundle.manifest.name, bundle.manifest.version) for bundle in models.previous.values()),
        ((refusal.model, refusal.version, refusal.reason) for refusal in models.refused.values()),
    )
