"""Reads the single files of a LETOR set: through the cache, with their group sizes, showing how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Int

from listwright.ranking.errors import DataError
from listwright.training.data import cache
from listwright.training.data.container import Container, file_digest, open_plain
from listwright.training.data.dataset import Dataset, dataset_of
from listwright.training.data.letor import text as letor
from listwright.training.data.letor.streamed import stream_into
from listwright.training.data.split import merged
from listwright.training.progress import SILENT, Progress, Task
from listwright.training.stored.rows import mapped
from listwright.training.stored.shards import ShardWriter


class Reader:
    """Reads files; each is parsed once and then comes from the cache.

    Args:
        progress: gets one task for each file that has to be parsed, in kilobytes.
        on_disk: whether rows stay on disk, in shards.
    """

    def __init__(self, progress: Progress = SILENT, *, on_disk: bool = False) -> None:
        self._progress, self._on_disk = progress, on_disk

    def file(self, path: Path) -> Dataset:
        """A file on disk, with the group sizes in ``FILE.query`` beside it if there are such.

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
        """A file of a folder or archive.

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
        """From the cache, or parsed; in memory or in shards."""

        def parse() -> Dataset:
            groups = None if group_file is None else _read_groups(group_file)
            with opened() as (stream, size):
                return letor.read(stream, source, groups=groups, task=_reading(self._progress, title, size))

        def write(writer: ShardWriter) -> cache.Beside:
            groups = None if group_file is None else _read_groups(group_file)
            with opened() as (stream, size):
                stream_into(writer, stream, source, groups=groups, task=_reading(self._progress, title, size))
            return {}

        if not self._on_disk:
            return cache.cached(digest, short, parse)
        found, _ = cache.stored(f"letor/{digest}", short, write)
        return dataset_of(found, letor.letor_schema(found.features.shape[1]))


def _reading(progress: Progress, name: str, size: int | None) -> Task:
    return progress.begin(f"Reading {name}, kB", None if size is None else size // 1000)


def as_wide(parts: list[Dataset]) -> list[Dataset]:
    """The parts, each as wide as the widest: an index that a whole file never names is 0.0 in it."""
    width = max(part.features.shape[1] for part in parts)
    return [_widened(part, width) for part in parts]


def together(parts: list[Dataset]) -> Dataset:
    """All queries of several files.

    Raises:
        DataError: if a query stands in two of them.
    """
    whole = merged(as_wide(parts))
    if len(set(whole.qids)) < len(whole.qids):
        seen: set[str] = set()
        twice = next(qid for qid in whole.qids if qid in seen or seen.add(qid))  # type: ignore[func-returns-value]
        raise DataError("--data", f"query {twice!r} stands in two of the files: a query belongs into one")
    return whole


def _widened(part: Dataset, width: int) -> Dataset:
    if part.features.shape[1] == width:
        return part
    more = ((0, 0), (0, width - part.features.shape[1]))
    features = mapped(part.features, width, lambda rows: np.pad(rows, more))
    return replace(part, features=features, schema=letor.letor_schema(width))


def _group_files(path: Path) -> tuple[Path, ...]:
    """``rank.train.query`` belongs to ``rank.train`` and to ``rank.train.gz``."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return (plain.with_name(plain.name + ".query"), path.with_name(path.name + ".query"))


def _read_groups(path: Path) -> Int[np.ndarray, " N"]:
    sizes = []
    with open_plain(path) as (stream, _):
        for number, line in enumerate(letor.whole(stream, str(path)).splitlines(), start=1):
            text = line.strip()
            if not text:
                continue
            if not text.isdigit() or int(text[:12]) == 0:
                shown = text[:40].decode("utf-8", "backslashreplace")
                raise DataError(path, f"expected the number of candidates of a query; found {shown!r}", line=number)
            sizes.append(int(text[:12]))
    if not sizes:
        raise DataError(path, "holds no group sizes")
    return np.array(sizes, dtype=np.int64)
