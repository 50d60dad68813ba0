"""LETOR sets in the layouts of publishers and users: which file is which split, and reading them through the cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Int

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.console.progress import NO_TASK, SILENT, Progress, Task
from listwright.training.data import cache
from listwright.training.data.dataset import Dataset, Splits, dataset_of
from listwright.training.data.letor import text as letor
from listwright.training.data.letor.fast import Block
from listwright.training.data.letor.text import EMPTY, GROUPS_DIFFER, blocks_of, comes_back
from listwright.training.data.shards.rows import map_rows
from listwright.training.data.shards.shards import QueryBlock, ShardWriter
from listwright.training.data.sources import (
    SPLIT_SOURCES,
    SPLITS,
    Container,
    check_exists,
    check_kind,
    file_digest,
    files_by_split,
    is_archive,
    open_plain,
    path_of,
)
from listwright.training.data.split import by_query, check_fold, checked, distinguish_ids, merged, set_aside
from listwright.training.recipe.data import LetorData

_ROLE_OF = {
    "train": "train",
    "trainingset": "train",
    "vali": "valid",
    "valid": "valid",
    "validationset": "valid",
    "test": "test",
    "testset": "test",
}

_SPLIT_FILE = re.compile(rf"(?P<set>[^/]+\.)??(?P<role>{'|'.join(_ROLE_OF)})\.txt(?:\.gz)?")

_FOLD_FOLDER = re.compile(r"Fold(\d+)")

_Folds = dict[int, dict[str, str]]
"""Fold (0 where the set has none) -> split -> name of its file."""


def load(
    spec: LetorData,
    sources: Sequence[str],
    *,
    fold: int,
    rng: np.random.Generator,
    progress: Progress = SILENT,
    on_disk: bool = False,
) -> Splits:
    """Read a LETOR set in the layout that its sources have.

    One folder or archive is searched for, in this order: the publisher's folds (``Fold1/train.txt`` …, also as LETOR
    3.0 spells them), the recipe's part files, one ``train.txt`` / ``vali.txt`` / ``test.txt`` (Istella-S; also with the
    set's name before it, ``set1.train.txt``, as Yahoo has them). Anything else are files: ``train=FILE valid=FILE
    test=FILE`` names the splits, otherwise all queries are split. With ``on_disk``, rows stay on disk, in shards.

    Raises:
        RecipeError: if the sources make no sense together, or there is no such fold.
        DataError: if files are missing or wrong.
    """
    for source in sources:
        check_kind(path_of(source))
    reader = Reader(progress, on_disk=on_disk)
    files = files_by_split(sources)
    if files is not None:
        check_fold(fold, 1, SPLIT_SOURCES)
        train, valid, test = as_wide([reader.file(Path(file)) for file in files.values()])
        return checked(train, valid, test, ", ".join(f"{split} {file}" for split, file in files.items()))
    for source in sources:
        check_exists(source)
    paths = [Path(source) for source in sources]
    if len(paths) == 1 and (paths[0].is_dir() or is_archive(paths[0])):
        container = Container(paths[0])
        splits = _container(spec, container, fold=fold, rng=rng, reader=reader)
        known = {_part(container, part) for part in spec.parts or ()}
        known.update(name for files in _published(container).values() for name in files.values())
        others = [name for name in container.names if name not in known and not name.endswith(".query")]
        note = f"{paths[0]}: {len(others)} files left out, of other names than a set's: {', '.join(others[:10])}"
        return replace(splits, notes=(*splits.notes, note)) if others else splits
    if any(path.is_dir() or is_archive(path) for path in paths):
        raise RecipeError(f"--data takes one folder or archive, or files, or {SPLIT_SOURCES}")
    check_fold(fold, spec.split.parts, ", ".join(sources))
    dataset = concatenate([reader.file(path) for path in paths])
    return by_query(dataset, spec.split, fold=fold, rng=rng, source=", ".join(sources))


def _container(spec: LetorData, container: Container, *, fold: int, rng: np.random.Generator, reader: Reader) -> Splits:
    folds = _published(container)
    if folds and 0 not in folds:
        return _fold(container, folds, fold=fold, reader=reader)
    if spec.parts and (part_files := [_part(container, part) for part in spec.parts]) and None not in part_files:
        return _parts(spec, container, [name for name in part_files if name], fold=fold, reader=reader)
    if folds:
        return _single(spec, container, folds[0], fold=fold, rng=rng, reader=reader)
    listed = ", ".join(container.names[:8]) or "nothing"
    expected = "Fold1/train.txt, or train.txt and test.txt" + (f", or {', '.join(spec.parts)}" if spec.parts else "")
    raise DataError(
        container.path,
        f"expected {expected}; found {listed}{' …' if len(container.names) > 8 else ''}; "
        "or name the files: --data train=A valid=B test=C",
    )


def _published(container: Container) -> _Folds:
    """Find the publisher's files, wherever they are in the container; empty if there is no training file."""
    sets: dict[str, _Folds] = {}
    for name in container.names:
        *folders, file = name.split("/")
        match = _SPLIT_FILE.fullmatch(file)
        if match is None:
            continue
        fold = _FOLD_FOLDER.fullmatch(folders[-1]) if folders else None
        home = "/".join([*(folders[:-1] if fold else folders), (match["set"] or "")])
        files = sets.setdefault(home, {}).setdefault(int(fold[1]) if fold else 0, {})
        files.setdefault(_ROLE_OF[match["role"]], name)
    whole = {home: folds for home, folds in sets.items() if any("train" in files for files in folds.values())}
    if len(whole) > 1:
        homes = ", ".join(repr(home.rstrip("/.")) for home in whole)
        raise DataError(container.path, f"holds several sets ({homes}): name the folder of one, or {SPLIT_SOURCES}")
    folds = next(iter(whole.values()), {})
    return {number: files for number, files in folds.items() if number} or folds


def _fold(container: Container, folds: _Folds, *, fold: int, reader: Reader) -> Splits:
    check_fold(fold, max(folds), str(container.path))
    missing = [role for role in SPLITS if role not in folds.get(fold, {})]
    if missing:
        raise DataError(container.path, f"Fold{fold} has no {' and no '.join(missing)} file")
    train, valid, test = as_wide([reader.member(container, folds[fold][role]) for role in SPLITS])
    return checked(
        *distinguish_ids(train, valid, test), f"{container.path.name}, the publisher's fold {fold} of {max(folds)}"
    )


def _parts(spec: LetorData, container: Container, names: list[str], *, fold: int, reader: Reader) -> Splits:
    """Split into disjoint parts, rotated: see :class:`listwright.training.recipe.config.LetorData`."""
    count = len(names)
    check_fold(fold, count, str(container.path))
    valid, test = (fold - 1 + spec.valid_part) % count, (fold - 1 + spec.test_part) % count
    parts = as_wide([reader.member(container, name) for name in names])
    train = [part for p, part in enumerate(parts) if p not in (valid, test)]
    how = f"{container.path.name}, fold {fold} of {count} (valid {names[valid]}, test {names[test]})"
    return checked(merged(train), parts[valid], parts[test], how)


def _single(
    spec: LetorData, container: Container, names: dict[str, str], *, fold: int, rng: np.random.Generator, reader: Reader
) -> Splits:
    """Return the publisher's only split; validation queries are taken from training where none are published."""
    check_fold(fold, 1, str(container.path))
    if "test" not in names:
        raise DataError(container.path, f"has {names['train']}, but no test file")
    how = f"{container.path.name}, the publisher's split"
    parts = as_wide([reader.member(container, name) for name in names.values()])
    by_role = dict(zip(names, parts, strict=True))
    train, test = by_role["train"], by_role["test"]
    if "valid" in by_role:
        return checked(*distinguish_ids(train, by_role["valid"], test), how)
    train, valid = set_aside(train, spec.split, rng)
    how += f" (it has no validation file: {len(valid)} training queries were set aside)"
    return checked(*distinguish_ids(train, valid, test), how)


def _part(container: Container, part: str) -> str | None:
    return next((name for name in container.names if Path(name).name in (part, f"{part}.gz")), None)


class Reader:
    """Reader of files: each is parsed once and comes from the cache afterwards.

    Args:
        progress: Progress report, with one task for each file that has to be parsed, in kilobytes.
        on_disk: Whether rows stay on disk, in shards.
    """

    def __init__(self, progress: Progress = SILENT, *, on_disk: bool = False) -> None:
        self._progress, self._on_disk = progress, on_disk

    def file(self, path: Path) -> Dataset:
        """Read a file on disk, with the group sizes in ``FILE.query`` beside it if there is one.

        Raises:
            DataError: if the file, or its group file, cannot be read.
        """

        def opened() -> AbstractContextManager[tuple[BinaryIO, int | None]]:
            return open_plain(path)

        group_file = next((p for p in _group_files(path) if p.is_file()), None)
        if group_file is None:
            return self._read(opened, str(path), path.name, path.name, file_digest(path))
        digest = f"{file_digest(path)}/{file_digest(group_file)}"
        dataset = self._read(opened, str(path), path.name, path.name, digest, group_file)
        # Such queries have no ids of their own. The same file elsewhere has the same entry in the cache.
        return replace(dataset, qids=tuple(f"{path}#{n}" for n in range(1, len(dataset) + 1)))

    def member(self, container: Container, name: str) -> Dataset:
        """Read a file of a folder or archive.

        Raises:
            DataError: if it cannot be read.
        """
        if container.path.is_dir():
            return self.file(container.path / name)

        source, short = f"{container.path}:{name}", f"{container.path.name}:{name}"
        return self._read(lambda: container.open(name), source, name, short, container.digest(name))

    def _read(
        self,
        opened: Callable[[], AbstractContextManager[tuple[BinaryIO, int | None]]],
        source: str,
        title: str,
        short: str,
        digest: str,
        group_file: Path | None = None,
    ) -> Dataset:
        """Read a file from the cache, or parse it; in memory or as shards."""

        def parse() -> Dataset:
            groups = None if group_file is None else _read_groups(group_file)
            with opened() as (stream, size):
                return letor.read(stream, source, groups=groups, task=_reading(self._progress, title, size))

        def write(writer: ShardWriter) -> cache.Extras:
            groups = None if group_file is None else _read_groups(group_file)
            with opened() as (stream, size):
                _stream_into(writer, stream, source, groups=groups, task=_reading(self._progress, title, size))
            return {}

        if not self._on_disk:
            return cache.cached(digest, short, parse)
        shards = cache.stored(f"letor/{digest}", short, write)
        return dataset_of(shards, letor.letor_schema(shards.features.shape[1]))


def _reading(progress: Progress, name: str, size: int | None) -> Task:
    return progress.begin(f"Reading {name}, kB", None if size is None else size // 1000)


def as_wide(parts: list[Dataset]) -> list[Dataset]:
    """Return the parts, each as wide as the widest: an index that a file never names is 0.0 in it."""
    width = max(part.features.shape[1] for part in parts)
    return [_widened(part, width) for part in parts]


def concatenate(parts: list[Dataset]) -> Dataset:
    """Return all queries of several files.

    Raises:
        DataError: if a query stands in two of them.
    """
    whole = merged(as_wide(parts))
    if len(set(whole.qids)) < len(whole.qids):
        before: set[str] = set()
        twice = next(qid for qid in whole.qids if qid in before or before.add(qid))  # type: ignore[func-returns-value]
        raise DataError("--data", f"query {twice!r} stands in two of the files: a query belongs into one")
    return whole


def _widened(part: Dataset, width: int) -> Dataset:
    if part.features.shape[1] == width:
        return part
    more = ((0, 0), (0, width - part.features.shape[1]))
    features = map_rows(part.features, width, lambda rows: np.pad(rows, more))
    return replace(part, features=features, schema=letor.letor_schema(width))


def _group_files(path: Path) -> tuple[Path, ...]:
    """Return where group sizes may be: ``rank.train.query`` belongs to ``rank.train`` and to ``rank.train.gz``."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return (plain.with_name(plain.name + ".query"), path.with_name(path.name + ".query"))


def _read_groups(path: Path) -> Int[np.ndarray, " N"]:
    sizes = []
    with open_plain(path) as (stream, _):
        for number, line in enumerate(letor.read_all(stream, str(path)).splitlines(), start=1):
            text = line.strip()
            if not text:
                continue
            if not text.isdigit() or int(text[:12]) == 0:
                excerpt = text[:40].decode("utf-8", "backslashreplace")
                raise DataError(path, f"expected the number of candidates of a query; found {excerpt!r}", line=number)
            sizes.append(int(text[:12]))
    if not sizes:
        raise DataError(path, "holds no group sizes")
    return np.array(sizes, dtype=np.int64)


def _stream_into(
    writer: ShardWriter,
    stream: BinaryIO,
    source: str,
    *,
    groups: Int[np.ndarray, " N"] | None = None,
    task: Task = NO_TASK,
) -> None:
    """Parse a file behind the writer's last whole shard, and write every query when it is complete."""
    line, count = writer.place or (1, 0)
    began: dict[str, int | None] = dict.fromkeys(writer.qids())
    rest: Block | None = None
    for parsed in blocks_of(stream, source, with_qid=groups is None, first_line=line, task=task):
        if len(parsed.labels) == 0:
            continue
        block = parsed if rest is None else _append_block(rest, parsed)
        runs = block.runs if groups is None else _groups_in(groups[count:], len(block.labels))
        whole = len(runs) - 1 if groups is None else len(runs)  # the last query may go on
        qids = block.qids[:whole] if groups is None else [f"{source}#{count + n}" for n in range(1, whole + 1)]
        rows = int(runs[:whole].sum())
        _check_new(qids, runs, block, began, source)
        rest = _cut(block, rows, whole)
        count += whole
        line = int(block.lines[rows]) if rows < len(block.lines) else int(block.lines[-1]) + 1
        if whole:
            queries = QueryBlock(block.features[:rows], block.labels[:rows], runs[:whole], qids)
            writer.add(queries, (line, count))
    left = 0 if rest is None else len(rest.labels)
    if groups is not None and (left or count < len(groups)):
        raise DataError(source, GROUPS_DIFFER.format(writer.total_rows + left, groups.sum()))
    if rest is not None and left:
        _check_new(rest.qids, rest.runs, rest, began, source)
        end = (int(rest.lines[-1]) + 1, count + len(rest.runs))
        writer.add(QueryBlock(rest.features, rest.labels, rest.runs, rest.qids), end)
    if writer.total_rows == 0:
        raise DataError(source, EMPTY)


def _groups_in(sizes: Int[np.ndarray, " N"], rows: int) -> Int[np.ndarray, " M"]:
    """Return the sizes of the next queries that are complete in so many rows."""
    return sizes[: int(np.searchsorted(np.cumsum(sizes), rows, side="right"))]


def _check_new(
    qids: list[str], runs: Int[np.ndarray, " lists"], block: Block, began: dict[str, int | None], source: str
) -> None:
    """Raise DataError if a query had ended before."""
    row = 0
    for qid, count in zip(qids, runs.tolist(), strict=False):
        line = int(block.lines[row])
        if qid in began:
            raise DataError(source, comes_back(qid, began[qid]), line=line)
        began[qid] = line
        row += count


def _append_block(rest: Block, block: Block) -> Block:
    """Return the remaining rows, followed by those of the next block."""
    width = max(rest.features.shape[1], block.features.shape[1])
    features = np.zeros((len(rest.labels) + len(block.labels), width), dtype=np.float32)
    features[: len(rest.labels), : rest.features.shape[1]] = rest.features
    features[len(rest.labels) :, : block.features.shape[1]] = block.features
    qids, runs = [*rest.qids, *block.qids], np.concatenate([rest.runs, block.runs])
    if rest.qids and block.qids and rest.qids[-1] == block.qids[0]:
        qids.pop(0)
        runs = np.concatenate([[runs[0] + runs[1]], runs[2:]])
    labels = np.concatenate([rest.labels, block.labels])
    return Block(features, labels, qids, runs, np.concatenate([rest.lines, block.lines]))


def _cut(block: Block, rows: int, queries: int) -> Block:
    """Return what follows so many rows and queries, as a copy that outlives the block."""
    features, labels, lines = (part[rows:].copy() for part in (block.features, block.labels, block.lines))
    return Block(features, labels, block.qids[queries:], block.runs[queries:], lines)
