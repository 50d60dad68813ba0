"""A folder of shards: the rows of whole queries in files of moderate size, and the data of the whole set.

==================  ================================================================================
``shards.json``     written last: sizes and SHA-256 of all files, and the source's facts
``rows-00001.f32``  float32, row by row; as wide as the widest row in it
``rows-00001.npz``  labels, list lengths, query ids, and weights and goals if there are some
==================  ================================================================================

The folder is written under another name, so that what has its name is whole. Rows are read and not mapped: a file that
was cut is then an error with a name, and no signal ends the process.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.errors import DataError
from listwright.ranking.plain_file import read_object
from listwright.training.data.shards.rows import JoinedRows, Rows, runs

FORMAT = 1
"""Format of the folder. Raise it with every change that an older Listwright would read wrongly."""

SHARD_BYTES = 2**28
"""Bytes of the rows of one file; a shard ends with the query that reaches this."""

FACTS, STATE = "shards.json", "state.json"

_GOAL = "goal "
"""Beginning of the name of a goal's array."""

_AGAIN = "delete the folder, and the same command makes it again"


class QueryBlock(NamedTuple):
    """The rows of some whole queries: fields of a dataset, with the lengths of the lists in place of offsets."""

    features: Float[np.ndarray, "R D"]
    labels: Int[np.ndarray, " R"]
    lengths: Int[np.ndarray, " N"]
    qids: Sequence[str]
    weights: Float[np.ndarray, " R"] | None = None
    goals: Mapping[str, Float[np.ndarray, " R"]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Stored:
    """The contents of a folder of shards: fields of a dataset, and the facts that its writer gave."""

    features: Rows
    labels: Int[np.ndarray, " R"]
    offsets: Int[np.ndarray, " O"]
    qids: tuple[str, ...]
    weights: Float[np.ndarray, " R"] | None
    goals: Mapping[str, Float[np.ndarray, " R"]]
    facts: dict[str, Any]


class _ShardRows(Rows):
    """The rows of one file, padded with zeros where other files are wider."""

    def __init__(self, path: Path, count: int, own: int, width: int) -> None:
        super().__init__(count, width)
        self._path, self._own = path, own

    def pick(self, rows: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        """Return some rows by their numbers; neighbours are read at once. See :meth:`Rows.pick`."""
        values = np.empty((len(rows), self._own), dtype=np.float32)
        try:
            file = os.open(self._path, os.O_RDONLY)
            try:
                for first, last in runs(rows):
                    self._read(file, values[first:last], 4 * self._own * int(rows[first]))
            finally:
                os.close(file)
        except OSError as error:
            raise DataError(self._path, f"cannot be read: {error.strerror or error}: {_AGAIN}") from error
        if self._own == self.shape[1]:
            return values
        return np.pad(values, ((0, 0), (0, self.shape[1] - self._own)))

    def _read(self, file: int, into: Float[np.ndarray, "M D"], place: int) -> None:
        left = into.reshape(-1).view(np.uint8).data
        while len(left):
            count = os.preadv(file, [left], place)
            if count == 0:
                raise DataError(self._path, f"is shorter than it was written: {_AGAIN}")
            left, place = left[count:], place + count


class ShardWriter:
    """Writer of a folder's files; in a folder with some complete shards, it goes on after them.

    Args:
        folder: Folder for the files.

    Attributes:
        place: Position in the source after the last complete shard, from :meth:`add`; None at the beginning.
        rows: Number of written rows.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blocks: list[QueryBlock] = []
        self._held = 0
        state = folder / STATE
        known = read_object(state) if state.exists() else {"shards": [], "place": None}
        self._shards: list[dict[str, Any]] = known["shards"]
        self.place: Any = known["place"]
        self._last_place: Any = self.place
        self.rows = sum(shard["rows"] for shard in self._shards)

    @property
    def total_rows(self) -> int:
        """Rows of all blocks, those that wait to be written among them."""
        return int(self.rows) + sum(len(block.labels) for block in self._blocks)

    def qids(self) -> Iterator[str]:
        """Yield the ids of the queries in complete shards."""
        for number in range(1, len(self._shards) + 1):
            with np.load(_files(self._folder, number)[1], allow_pickle=False) as arrays:
                yield from json.loads(arrays["qids"].tobytes())

    def add(self, block: QueryBlock, place: Any) -> None:
        """Add some whole queries, which follow all earlier ones.

        Args:
            block: Whole queries.
            place: Position in the source after the queries, as a JSON value.
        """
        self._blocks.append(block)
        self._last_place = place
        self._held += 4 * block.features.size
        if self._held >= SHARD_BYTES:
            self._write(place)

    def _write(self, place: Any) -> None:
        blocks, self._blocks, self._held = self._blocks, [], 0
        rows, beside = _files(self._folder, len(self._shards) + 1)
        width = max(block.features.shape[1] for block in blocks)
        digest = hashlib.sha256()
        with rows.open("wb") as file:
            for block in blocks:
                wide = np.zeros((len(block.features), width), dtype=np.float32)
                wide[:, : block.features.shape[1]] = block.features
                digest.update(wide.data)
                file.write(wide.data)
            file.flush()
            os.fsync(file.fileno())
        qids = json.dumps([qid for block in blocks for qid in block.qids]).encode()
        arrays: dict[str, Any] = {
            "labels": np.concatenate([block.labels for block in blocks]),
            "lengths": np.concatenate([block.lengths for block in blocks]),
            "qids": np.frombuffer(qids, dtype=np.uint8),
        }
        weights = [block.weights for block in blocks if block.weights is not None]
        if weights:
            arrays["weights"] = np.concatenate(weights)
        for name in blocks[0].goals:
            arrays[_GOAL + name] = np.concatenate([block.goals[name] for block in blocks])
        with beside.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        count = len(arrays["labels"])
        shard = {"rows": count, "width": width, "sha256": digest.hexdigest(), "beside": _sha256(beside)}
        self._shards.append(shard)
        self.place, self.rows = place, self.rows + count
        atomic_write(self._folder / STATE, json.dumps({"shards": self._shards, "place": place}), sync=True)

    def finish(self, facts: dict[str, Any]) -> None:
        """Write the rest, and the files that complete the folder.

        Args:
            facts: Values of :attr:`Stored.facts`.
        """
        if self._blocks:
            self._write(self._last_place)
        whole = {"format": FORMAT, "shards": self._shards, "facts": facts}
        atomic_write(self._folder / FACTS, json.dumps(whole | {"sha256": _of(whole)}), sync=True)
        (self._folder / STATE).unlink(missing_ok=True)


def open_shards(folder: Path, *, check: bool = True) -> Stored:
    """Open a folder of shards.

    Args:
        folder: Folder of a finished :class:`ShardWriter`.
        check: Whether to compare the SHA-256 of the rows, which reads them all.

    Raises:
        DataError: if something in it is not as it was written; names the file.
    """
    try:
        whole = read_object(folder / FACTS)
        sealed, shards = whole.pop("sha256"), whole["shards"]
    except (DataError, KeyError) as error:
        raise DataError(folder / FACTS, f"cannot be read ({error}): {_AGAIN}") from error
    if sealed != _of(whole):
        raise DataError(folder / FACTS, f"is not what was written: {_AGAIN}")
    if whole["format"] != FORMAT:
        raise DataError(folder, f"has format {whole['format']}, this Listwright reads {FORMAT}: {_AGAIN}")
    width = max(1, *(shard["width"] for shard in shards))
    parts, beside = [], []
    for number, shard in enumerate(shards, start=1):
        rows, arrays_file = _files(folder, number)
        size, expected = rows.stat().st_size if rows.is_file() else 0, 4 * shard["rows"] * shard["width"]
        if size != expected:
            raise DataError(rows, f"has {size} bytes, {expected} were written: {_AGAIN}")
        if check:
            _check_digest(rows, shard["sha256"])
        _check_digest(arrays_file, shard["beside"])
        parts.append(_ShardRows(rows, shard["rows"], shard["width"], width))
        with np.load(arrays_file, allow_pickle=False) as arrays:
            beside.append(dict(arrays))
    lengths = np.concatenate([arrays["lengths"] for arrays in beside])
    return Stored(
        features=JoinedRows(parts),
        labels=np.concatenate([arrays["labels"] for arrays in beside]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        qids=tuple(qid for arrays in beside for qid in json.loads(arrays["qids"].tobytes())),
        weights=np.concatenate([arrays["weights"] for arrays in beside]) if "weights" in beside[0] else None,
        goals={
            name.removeprefix(_GOAL): np.concatenate([arrays[name] for arrays in beside])
            for name in beside[0]
            if name.startswith(_GOAL)
        },
        facts=whole["facts"],
    )


def _files(folder: Path, number: int) -> tuple[Path, Path]:
    return folder / f"rows-{number:05d}.f32", folder / f"rows-{number:05d}.npz"


def _check_digest(path: Path, sha256: str) -> None:
    if not path.is_file() or _sha256(path) != sha256:
        raise DataError(path, f"is not what was written: {_AGAIN}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _of(whole: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
