"""Loading what the settings name, verified and warm: at the start, and again whenever something new is to be served."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import BundleError, ListwrightError, UnknownStrategyError
from listwright.ranking.remote import OBJECT_STORES, Url, local_copy
from listwright.service.bundles import folder
from listwright.service.bundles.models import Models, Refusal, models_of
from listwright.service.settings import ALL_MODELS, PREFIX, Settings

WARM_UP_LENGTHS = (1, 10, 100)

FIRST_PAUSE_S, LONGEST_PAUSE_S, SHARE = 1.0, 60.0, 0.1
"""After a refusal: pauses double from the first to the longest, and attempts take this share of the time at most."""

ARRIVAL_S = 60.0
"""Seconds for which an incomplete folder of bundles is retried at the start: its files may still be being copied."""

WARM_UPS = 2
"""Rankings of each length: the first takes unusually long; the second gives the expected times of the stages."""

SIDE_BY_SIDE = 4
"""Loads at a time."""

_log = logging.getLogger("listwright.service")

Paths = Mapping[str, Path]
"""The bundle's folder of each name."""


@dataclass(frozen=True, slots=True)
class BundleFolders:
    """Folders of the bundles of one worker process, as they are sent to others.

    Args:
        current: Folders of the bundles that the worker serves, by name.
        previous: Folders of the bundles that it served before and keeps for a rollback, by name.
    """

    current: Paths
    previous: Paths

    @classmethod
    def of(cls, models: Models) -> BundleFolders:
        """Return the folders of models."""
        return cls(
            *({name: bundle.path for name, bundle in bundles.items()} for bundles in (models.current, models.previous))
        )


def next_pause_s(last_s: float, took_s: float) -> float:
    """Return the seconds until a refused bundle is tried again: its files may still be being copied.

    Args:
        last_s: Seconds of the pause before this attempt; 0 before the first.
        took_s: Seconds that the attempt took; after a long one, which hashes gigabytes, the pause is longer.
    """
    shortest = max(FIRST_PAUSE_S, took_s / SHARE)
    return min(max(shortest, 2.0 * last_s), max(LONGEST_PAUSE_S, 10.0 * shortest))


def start(
    settings: Settings,
    others: BundleFolders | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Models:
    """Load the initial models; a folder that is watched is retried for :data:`ARRIVAL_S`.

    Args:
        settings: Settings that name one bundle, or a folder of them.
        others: Folders of the other workers; None: a refusal is an error. A worker that is started again serves their
            version of a name whose current version is refused, as they serve on without it. It keeps the previous
            versions that they keep, so that all workers answer alike.
        clock: Clock in seconds.
        sleep: Function that waits for a number of seconds.

    Raises:
        BundleError: if there is nothing to serve, or a bundle is refused.
    """
    end, pause_s, last_message = clock() + ARRIVAL_S, 0.0, ""
    while True:
        began = clock()
        try:
            return _first(settings, others)
        except ListwrightError as error:
            pause_s = next_pause_s(pause_s, clock() - began)
            if settings.models is None or not settings.poll_s or clock() + pause_s > end:
                raise
            if str(error) != last_message:
                last_message = str(error)
                _log.warning("nothing is served yet; retrying for %.0f s: %s", max(0.0, end - clock()), error)
        sleep(pause_s)


def _first(settings: Settings, others: BundleFolders | None) -> Models:
    """Load the initial models, in one attempt."""
    if settings.models is None:
        assert settings.bundle is not None
        return models_of(_load(local_copy(settings.bundle, or_last=True), settings), settings.model_name)
    root = settings.models
    try:
        pointers = folder.read(root)
    except OSError as error:
        raise BundleError(root, f"cannot be read: {error.strerror}") from error
    if pointers.outage:
        _log.warning("%s: %s; the bundles of its last answer are served", root, pointers.outage)
    of_name = isinstance(root, Url) and root.scheme not in OBJECT_STORES
    errors: dict[str, ListwrightError] = {
        n: BundleError(root if of_name else root / n, reason) for n, reason in pointers.faults.items()
    }
    current = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        loads = {n: threads.submit(load_named, root, n, version, settings) for n, version in pointers.versions.items()}
    for name, load in loads.items():
        try:
            current[name] = load.result()
        except ListwrightError as error:
            errors[name] = error
    refused = {}
    for name, fault in errors.items():
        if others is None:
            raise fault
        refused[name] = refusal(name, pointers.versions.get(name, ""), reason_of(fault))
        _log.error("refused %s/%s: %s", name, refused[name].version, refused[name].reason)
        if name in others.current:
            current[name] = _load(others.current[name], settings)
    if not current:
        raise BundleError(
            root,
            f"holds no NAME/{folder.CURRENT}, so there is nothing to serve: write a version into one, e.g. "
            "listwright publish BUNDLE NAME/VERSION --current",
        )
    previous, peers = {}, others or BundleFolders({}, {})
    for name, ready in current.items():  # what the other workers keep, or will
        path = peers.previous.get(name) if peers.current.get(name) == ready.path else peers.current.get(name)
        if path is not None and path != ready.path and (previous_bundle := load_previous(path, settings)) is not None:
            previous[name] = previous_bundle
    return Models(current, previous, pointers.aliases, refused)


def load_previous(path: Path, settings: Settings) -> Bundle | None:
    """Load a version that other workers keep; None, and a line in the log, if it cannot be loaded any more."""
    try:
        return _load(path, settings)
    except ListwrightError as error:
        _log.warning("%s/%s is not kept for a rollback: %s", path.parent.name, path.name, reason_of(error))
        return None


def load_named(
    root: Path | Url, name: str, version: str, settings: Settings, abandoned: Callable[[], bool] = bool
) -> Bundle:
    """Load the bundle at ``NAME/VERSION``, and check that its manifest has that name and version.

    Raises:
        AbandonedError: if ``abandoned`` returns that nobody waits for it any more.
        BundleError: naming the file at fault and why.
    """
    path = folder.remote_models(root).copy(name, version, abandoned) if isinstance(root, Url) else root / name / version
    found_bundle = _load(path, settings)
    names = (found_bundle.manifest.name, found_bundle.manifest.version)
    if names != (name, version):
        raise BundleError(
            found_bundle.path / "manifest.json", f"says {'/'.join(names)}: a bundle lies under its own name"
        )
    return found_bundle


def _load(path: Path, settings: Settings) -> Bundle:
    new_bundle = bundle.load(path)
    name = new_bundle.manifest.name
    strategy = settings.strategies.get(name, settings.strategies.get(ALL_MODELS))
    if strategy is not None:
        try:
            new_bundle.reranker.answer_with(strategy)
        except UnknownStrategyError as error:
            raise BundleError(path, f"{PREFIX}STRATEGY says {strategy} for {name}: {error}") from error
    _warm_up(new_bundle, settings.max_candidates)
    return new_bundle


def _warm_up(ready: Bundle, max_candidates: int) -> None:
    """Rank lists of every size class, so that the first caller does not pay for allocations."""
    width = len(ready.reranker.schema)
    cutoff = {stage.cutoff for stage in ready.manifest.second_stages}
    for length in sorted({*WARM_UP_LENGTHS, *cutoff, max_candidates}):
        if length <= max_candidates:
            candidates = CandidateList(np.zeros((length, width), dtype=np.float32))
            for strategy in ("auto", *ready.manifest.strategies) * WARM_UPS:
                ranking = ready.reranker.rerank(candidates, strategy=strategy)
                if ranking.degraded:
                    raise BundleError(
                        ready.path, f"cannot rank {length} candidates of zeros by {strategy}: {ranking.reason}"
                    )


def refusal(name: str, version: str, reason: str) -> Refusal:
    """Return a refusal with the present time."""
    return Refusal(name, version, reason, datetime.now(UTC))


def reason_of(error: ListwrightError) -> str:
    """Return the file at fault and the reason, without the folder."""
    return f"{error.file.name}: {error.reason}" if isinstance(error, BundleError) else str(error)
