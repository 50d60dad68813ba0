"""How LETOR sets are laid out by their publishers and by people, and which file is which split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.progress import Progress

from ranking.errors import DataError, RecipeError
from training.config import LetorData
from training.data import cache, letor
from training.data.container import Container, file_digest, is_archive, open_plain
from training.data.dataset import Dataset, Splits
from training.data.split import by_query, check_fold, checked, merged

_SPLIT_FILES = {
    "train": ("train.txt", "trainingset.txt"),
    "valid": ("vali.txt", "valid.txt", "validationset.txt"),
    "test": ("test.txt", "testset.txt"),
}
_ROLES = tuple(_SPLIT_FILES)


def load(
    spec: LetorData, sources: Sequence[str], *, fold: int, rng: np.random.Generator, progress: Progress | None = None
) -> Splits:
    """Read a LETOR set as it lies there.

    One folder or archive is searched for, in this order: the publisher's folds (``Fold1/train.txt`` …, also as LETOR
    3.0 spells them), the recipe's part files, one ``train.txt`` / ``vali.txt`` / ``test.txt`` (Istella-S). Anything
    else are files: ``train=FILE valid=FILE test=FILE`` says which is which, otherwise all queries are split.

    Raises:
        RecipeError: if the sources make no sense together, or there is no such fold.
        DataError: if files are missing or wrong.
    """
    reader = _Reader(progress)
    roles = [source.partition("=")[0] for source in sources]
    if all(role in _ROLES and "=" in source for role, source in zip(roles, sources, strict=True)):
        return _named_files(dict(source.split("=", 1) for source in sources), len(sources), reader)
    for source in sources:
        if not Path(source).exists():
            raise DataError(source, "does not exist")
    if len(sources) == 1 and (Path(sources[0]).is_dir() or is_archive(Path(sources[0]))):
        return _container(spec, Container(Path(sources[0])), fold=fold, rng=rng, reader=reader)
    if any(Path(source).is_dir() for source in sources):
        raise RecipeError("--data takes one folder or archive, or files, or train=FILE valid=FILE test=FILE")
    dataset = reader.together([reader.file(Path(source)) for source in sources])
    return by_query(dataset, spec.split, fold=fold, rng=rng, source=", ".join(sources))


def _named_files(named: dict[str, str], count: int, reader: _Reader) -> Splits:
    missing = [role for role in _ROLES if role not in named]
    if missing or count != len(_ROLES):
        wrong = f"no {missing[0]}=FILE" if missing else "a split twice"
        raise RecipeError(f"--data names {wrong}: give train=FILE valid=FILE test=FILE, each once")
    train, valid, test = reader.as_wide([reader.file(Path(named[role])) for role in _ROLES])
    how = ", ".join(f"{role} {named[role]}" for role in _ROLES)
    return checked(train, valid, test, how)


def _container(
    spec: LetorData, container: Container, *, fold: int, rng: np.random.Generator, reader: _Reader
) -> Splits:
    folds = sorted({int(match[1]) for name in container.names if (match := re.search(r"(?:^|/)Fold(\d+)/", name))})
    if folds and _find(container, f"Fold{folds[0]}", "train"):
        check_fold(fold, max(folds), str(container.path))
        names = [_find(container, f"Fold{fold}", role) for role in _ROLES]
        if None in names:
            raise DataError(container.path, f"Fold{fold} lacks {', '.join(_SPLIT_FILES[_ROLES[names.index(None)]])}")
        parts = reader.as_wide([reader.member(container, name) for name in names if name is not None])
        how = f"{container.path.name}, the publisher's fold {fold} of {max(folds)}"
        return checked(parts[0], parts[1], parts[2], how)
    if spec.parts and (found := [_part(container, part) for part in spec.parts]) and None not in found:
        return _parts(spec, container, [name for name in found if name], fold=fold, reader=reader)
    single = {role: name for role in _ROLES if (name := _find(container, "", role))}
    if "train" in single and "test" in single:
        return _single(spec, container, single, rng=rng, reader=reader)
    shown = ", ".join(container.names[:8]) or "nothing"
    wanted = "Fold1/train.txt, or train.txt and test.txt" + (f", or {', '.join(spec.parts)}" if spec.parts else "")
    raise DataError(container.path, f"expected {wanted}; found {shown}{' …' if len(container.names) > 8 else ''}")


def _parts(spec: LetorData, container: Container, names: list[str], *, fold: int, reader: _Reader) -> Splits:
    """Disjoint parts, rotated: see :class:`training.config.LetorData`."""
    count = len(names)
    check_fold(fold, count, str(container.path))
    valid, test = (fold - 1 + spec.valid_part) % count, (fold - 1 + spec.test_part) % count
    parts = reader.as_wide([reader.member(container, name) for name in names])
    train = [part for p, part in enumerate(parts) if p not in (valid, test)]
    how = f"{container.path.name}, fold {fold} of {count} (valid {names[valid]}, test {names[test]})"
    return checked(merged(train), parts[valid], parts[test], how)


def _single(
    spec: LetorData, container: Container, names: dict[str, str], *, rng: np.random.Generator, reader: _Reader
) -> Splits:
    """One split by the publisher; validation queries are taken from training where none are published."""
    parts = reader.as_wide([reader.member(container, name) for name in names.values()])
    by_role = dict(zip(names, parts, strict=True))
    how = f"{container.path.name}, the publisher's split"
    if "valid" not in by_role:
        order = rng.permutation(len(by_role["train"]))
        count = max(1, len(order) // spec.split.parts)
        whole = by_role["train"]
        by_role |= {"train": whole.select(np.sort(order[count:])), "valid": whole.select(np.sort(order[:count]))}
        how += f" (it has no validation file: {count} training queries were set aside)"
    return checked(by_role["train"], by_role["valid"], by_role["test"], how)


def _find(container: Container, folder: str, role: str) -> str | None:
    """The file of one split, directly inside a folder of that name, wherever that folder is."""
    inside = f"{folder}/" if folder else ""
    for file in _SPLIT_FILES[role]:
        pattern = re.compile(rf"(?:^|.*/){re.escape(inside + file)}(?:\.gz)?")
        for name in container.names:
            if pattern.fullmatch(name):
                return name
    return None


def _part(container: Container, part: str) -> str | None:
    return next((name for name in container.names if Path(name).name in (part, f"{part}.gz")), None)


class _Reader:
    """Reads single files, through the cache, and shows how far it has come."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def file(self, path: Path) -> Dataset:
        """A file on disk, with the group sizes in ``FILE.query`` beside it if there are such."""
        group_file = next((p for p in _group_files(path) if p.is_file()), None)
        if group_file is None:
            return cache.cached(file_digest(path), path.name, lambda: self._parse(path))
        groups = _read_groups(group_file)
        digest = f"{file_digest(path)}/{file_digest(group_file)}"
        return cache.cached(digest, path.name, lambda: self._parse(path, groups))

    def member(self, container: Container, name: str) -> Dataset:
        """A file of a folder or archive."""
        if container.path.is_dir():
            return self.file(container.path / name)

        def parse() -> Dataset:
            with container.open(name) as stream:
                return letor.read(stream, f"{container.path}:{name}", on_bytes=self._bar(name))

        return cache.cached(container.digest(name), f"{container.path.name}:{name}", parse)

    def _parse(self, path: Path, groups: np.ndarray | None = None) -> Dataset:
        with open_plain(path) as stream:
            return letor.read(stream, str(path), groups=groups, on_bytes=self._bar(path.name))

    def _bar(self, name: str) -> _Bar:
        return _Bar(self._progress, name)

    @staticmethod
    def as_wide(parts: list[Dataset]) -> list[Dataset]:
        """The parts, each as wide as the widest: an index that a whole file never names is 0.0 in it."""
        width = max(part.features.shape[1] for part in parts)
        return [_widened(part, width) for part in parts]

    def together(self, parts: list[Dataset]) -> Dataset:
        """All queries of several files; a query may stand in one of them only."""
        whole = merged(self.as_wide(parts))
        if len(set(whole.qids)) < len(whole.qids):
            seen: set[str] = set()
            twice = next(qid for qid in whole.qids if qid in seen or seen.add(qid))  # type: ignore[func-returns-value]
            raise DataError("--data", f"query {twice!r} stands in two of the files: a query belongs into one")
        return whole


class _Bar:
    """Counts parsed megabytes on a progress bar, if there is one; the total is unknown for compressed text."""

    def __init__(self, progress: Progress | None, name: str) -> None:
        self._progress, self._bytes = progress, 0
        self._task = None if progress is None else progress.add_task(f"Reading {name}, MB", total=None)

    def __call__(self, count: int) -> None:
        self._bytes += count
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._bytes // 1_000_000)


def _widened(part: Dataset, width: int) -> Dataset:
    if part.features.shape[1] == width:
        return part
    features = np.zeros((part.rows, width), dtype=np.float32)
    features[:, : part.features.shape[1]] = part.features
    return Dataset(features, part.labels, part.offsets, part.qids, letor.letor_schema(width))


def _group_files(path: Path) -> tuple[Path, ...]:
    """``rank.train.query`` belongs to ``rank.train`` and to ``rank.train.gz``."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return (plain.with_name(plain.name + ".query"), path.with_name(path.name + ".query"))


def _read_groups(path: Path) -> np.ndarray:
    sizes = []
    with open_plain(path) as stream:
        for number, line in enumerate(stream.read().splitlines(), start=1):
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
