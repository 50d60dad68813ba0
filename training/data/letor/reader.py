"""Reads the single files of a LETOR set: through the cache, with their group sizes, showing how far it has come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int

from listwright.ranking.errors import DataError
from listwright.training.data import cache
from listwright.training.data.container import Container, file_digest, open_plain
from listwright.training.data.dataset import Dataset
from listwright.training.data.letor import text as letor
from listwright.training.data.split import merged
from listwright.training.progress import SILENT, Progress, Task
from listwright.training.stored.rows import mapped


class Reader:
    """Reads files; each is parsed once and then comes from the cache.

    Args:
        progress: gets one task for each file that has to be parsed, in kilobytes.
    """

    def __init__(self, progress: Progress = SILENT) -> None:
        self._progress = progress

    def file(self, path: Path) -> Dataset:
        """A file on disk, with the group sizes in ``FILE.query`` beside it if there are such.

        Raises:
            DataError: if the file, or its group file, cannot be read.
        """

        def parse(groups: Int[np.ndarray, " N"] | None) -> Dataset:
            with open_plain(path) as (stream, size):
                return letor.read(stream, str(path), groups=groups, task=_reading(self._progress, path.name, size))

        group_file = next((p for p in _group_files(path) if p.is_file()), None)
        if group_file is None:
            return cache.cached(file_digest(path), path.name, lambda: parse(None))
        digest = f"{file_digest(path)}/{file_digest(group_file)}"
        dataset = cache.cached(digest, path.name, lambda: parse(_read_groups(group_file)))
        # Such queries have no ids of their own. The same file elsewhere has the same entry in the cache.
        return replace(dataset, qids=tuple(f"{path}#{n}" for n in range(1, len(dataset) + 1)))

    def member(self, container: Container, name: str) -> Dataset:
        """A file of a folder or archive.

        Raises:
            DataError: if it cannot be read.
        """
        if container.path.is_dir():
            return self.file(container.path / name)

        def parse() -> Dataset:
            with container.open(name) as (stream, size):
                return letor.read(stream, f"{container.path}:{name}", task=_reading(self._progress, name, size))

        return cache.cached(container.digest(name), f"{container.path.name}:{name}", parse)


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
