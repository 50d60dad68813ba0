"""Parsed data in binary form, stored under the hash of their source."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from listwright.ranking.errors import DataError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.plain_file import read_object
from listwright.ranking.remote import cache_folder
from listwright.training.data.dataset import Dataset
from listwright.training.data.shards.shards import FACTS, FORMAT, ShardWriter, Stored, open_shards
from listwright.training.data.sources import file_digest
from listwright.training.job_folder import disk_full_as_data_error

PARSER_VERSION = 7
"""Raise it whenever the parser gives another result for the same text: older entries are then ignored."""

_FACTS = "facts.json"

FULL = "make some, or set LISTWRIGHT_CACHE to a folder on another disk; the same command goes on where it was"
"""Remedy where shards have no room."""

_log = logging.getLogger(__name__)

Extras = dict[str, list[Any]]
"""A parser's results besides the dataset: lists of text and numbers by name."""


def cached(digest: str, source: str, parse: Callable[[], Dataset]) -> Dataset:
    """Return a parsed file, from the cache if its source has not changed; see :func:`cached_with`."""
    return cached_with(digest, source, lambda: (parse(), {}))[0]


def cached_with(digest: str, source: str, parse: Callable[[], tuple[Dataset, Extras]]) -> tuple[Dataset, Extras]:
    """Return a parsed file and its further results, from the cache if its source has not changed.

    Args:
        digest: Hash of everything that the result depends on.
        source: Name of the source, recorded in the cache.
        parse: Function that reads the source; its result is stored only when it is whole.

    Convention: an entry is written to a temporary folder and renamed. An entry that is not bit for bit what was
    written is parsed again; a cache that cannot be written is one warning, not an error.
    """
    entry = cache_folder() / hashlib.sha256(f"{PARSER_VERSION}/{digest}".encode()).hexdigest()
    known = _read(entry, digest)
    if known is not None:
        return known
    parsed = parse()
    _write(entry, digest, source, *parsed)
    return parsed


def _read(entry: Path, digest: str) -> tuple[Dataset, Extras] | None:
    try:
        if not entry.exists():
            return None
        facts = read_object(entry / _FACTS)
        schema = FeatureSchema.model_validate(facts["schema"])
        qids, beside = facts["qids"], facts["beside"]
        if facts["digest"] != digest or facts["sha256"] != _hashes(entry, qids, schema, beside):
            raise ValueError("not what was written")
        arrays = {name: np.load(entry / f"{name}.npy", allow_pickle=False) for name in _arrays(entry)}
        goals = dict(zip(beside.pop("goals", ()), arrays.pop("goals", ()), strict=True))
        return Dataset(**arrays, qids=tuple(qids), schema=schema, goals=goals), beside
    except (DataError, OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("cache entry %s is damaged (%s): reading the source again", entry, error)
        if isinstance(error, FileNotFoundError) or not isinstance(error, OSError):  # not for want of a file handle
            shutil.rmtree(entry, ignore_errors=True)
        return None


def _write(entry: Path, digest: str, source: str, dataset: Dataset, beside: Extras) -> None:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=entry.parent))
        try:
            arrays = {array: getattr(dataset, array) for array in ("features", "labels", "offsets", "weights")}
            if dataset.goals:
                arrays["goals"] = np.stack(list(dataset.goals.values()))
                beside = {**beside, "goals": list(dataset.goals)}
            for array, values in arrays.items():
                if values is not None:
                    np.save(temporary / f"{array}.npy", values, allow_pickle=False)
            facts = {
                "digest": digest,
                "source": source,
                "sha256": _hashes(temporary, list(dataset.qids), dataset.schema, beside),
                "qids": dataset.qids,
                "schema": dataset.schema.model_dump(mode="json"),
                "beside": beside,
            }
            (temporary / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
            if not entry.exists():  # or another process was faster, and may be reading it
                temporary.rename(entry)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        _warn_once(f"nothing is cached in {entry.parent}: {error.strerror or error}")


def _arrays(entry: Path) -> list[str]:
    return sorted(path.stem for path in entry.glob("*.npy"))


def _hashes(entry: Path, qids: list[str], schema: FeatureSchema, beside: Extras) -> dict[str, str]:
    hashes = {array: file_digest(entry / f"{array}.npy") for array in _arrays(entry)}
    hashes |= {
        name: hashlib.sha256(json.dumps(part).encode()).hexdigest()
        for name, part in (("qids", qids), ("beside", beside))
    }
    return hashes | {"schema": schema.fingerprint}


def stored(digest: str, source: str, write: Callable[[ShardWriter], Extras]) -> Stored:
    """Return a source as a folder of shards, written if missing; an interrupted writing goes on after its last shard.

    Args:
        digest: Hash of everything that the result depends on.
        source: Name of the source, recorded in the cache.
        write: Function that streams the source from :attr:`ShardWriter.place` on, and returns the results besides the
            rows: ``beside`` of the facts.

    Raises:
        DataError: if there is no room; what is written stays for the next run.

    Convention: a folder that is not bit for bit what was written is written again.
    """
    name = hashlib.sha256(f"shards/{FORMAT}/{PARSER_VERSION}/{digest}".encode()).hexdigest()
    entry, partial = cache_folder() / name, cache_folder() / f".{name}.partial"
    with disk_full_as_data_error(cache_folder(), FULL):
        cache_folder().mkdir(parents=True, exist_ok=True)
        with FileLock(cache_folder() / f".{name}.lock"):
            if entry.exists():
                try:
                    return open_shards(entry)
                except DataError as error:
                    _log.warning("%s: reading the source again", error)
                    shutil.rmtree(entry)
            partial.mkdir(exist_ok=True)
            if not (partial / FACTS).exists():  # or it was stopped just before its name
                writer = ShardWriter(partial)
                beside = write(writer)
                writer.finish({"source": source, "beside": beside})
            partial.rename(entry)
    return open_shards(entry, check=False)


@functools.cache
def _warn_once(fault: str) -> None:
    _log.warning("%s (set LISTWRIGHT_CACHE to a folder that can be written)", fault)
