"""How LETOR sets are laid out by their publishers and by people, and which file is which split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.container import Container, is_archive
from listwright.training.data.dataset import Splits
from listwright.training.data.letor.reader import Reader, as_wide, together
from listwright.training.data.sources import NAMED, SPLITS, check_exists, files_by_split
from listwright.training.data.split import apart, by_query, check_fold, checked, merged, set_aside
from listwright.training.progress import SILENT, Progress
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
    """Read a LETOR set as it lies there.

    One folder or archive is searched for, in this order: the publisher's folds (``Fold1/train.txt`` …, also as LETOR
    3.0 spells them), the recipe's part files, one ``train.txt`` / ``vali.txt`` / ``test.txt`` (Istella-S; also with the
    set's name before it, ``set1.train.txt``, as Yahoo has them). Anything else are files: ``train=FILE valid=FILE
    test=FILE`` says which is which, otherwise all queries are split. With ``on_disk``, rows stay on disk, in shards.

    Raises:
        RecipeError: if the sources make no sense together, or there is no such fold.
        DataError: if files are missing or wrong.
    """
    reader = Reader(progress, on_disk=on_disk)
    named = files_by_split(sources)
    if named is not None:
        check_fold(fold, 1, NAMED)
        return _named_files(named, reader)
    for source in sources:
        check_exists(source)
    paths = [Path(source) for source in sources]
    if len(paths) == 1 and (paths[0].is_dir() or is_archive(paths[0])):
        return _container(spec, Container(paths[0]), fold=fold, rng=rng, reader=reader)
    if any(path.is_dir() or is_archive(path) for path in paths):
        raise RecipeError(f"--data takes one folder or archive, or files, or {NAMED}")
    dataset = together([reader.file(path) for path in paths])
    return by_query(dataset, spec.split, fold=fold, rng=rng, source=", ".join(sources))


def _named_files(named: dict[str, str], reader: Reader) -> Splits:
    train, valid, test = as_wide([reader.file(Path(file)) for file in named.values()])
    return checked(train, valid, test, ", ".join(f"{split} {file}" for split, file in named.items()))


def _container(spec: LetorData, container: Container, *, fold: int, rng: np.random.Generator, reader: Reader) -> Splits:
    folds = _published(container)
    if folds and 0 not in folds:
        return _fold(container, folds, fold=fold, reader=reader)
    if spec.parts and (found := [_part(container, part) for part in spec.parts]) and None not in found:
        return _parts(spec, container, [name for name in found if name], fold=fold, reader=reader)
    if folds:
        return _single(spec, container, folds[0], fold=fold, rng=rng, reader=reader)
    shown = ", ".join(container.names[:8]) or "nothing"
    wanted = "Fold1/train.txt, or train.txt and test.txt" + (f", or {', '.join(spec.parts)}" if spec.parts else "")
    raise DataError(
        container.path,
        f"expected {wanted}; found {shown}{' …' if len(container.names) > 8 else ''}; "
        "or name the files: --data train=A valid=B test=C",
    )


def _published(container: Container) -> _Folds:
    """The publisher's files, wherever in the container they lie; empty if there is no training file."""
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
        raise DataError(container.path, f"holds several sets ({homes}): name the folder of one, or {NAMED}")
    folds = next(iter(whole.values()), {})
    return {number: files for number, files in folds.items() if number} or folds


def _fold(container: Container, folds: _Folds, *, fold: int, reader: Reader) -> Splits:
    check_fold(fold, max(folds), str(container.path))
    missing = [role for role in SPLITS if role not in folds.get(fold, {})]
    if missing:
        raise DataError(container.path, f"Fold{fold} has no {' and no '.join(missing)} file")
    train, valid, test = as_wide([reader.member(container, folds[fold][role]) for role in SPLITS])
    return checked(*apart(train, valid, test), f"{container.path.name}, the publisher's fold {fold} of {max(folds)}")


def _parts(spec: LetorData, container: Container, names: list[str], *, fold: int, reader: Reader) -> Splits:
    """Disjoint parts, rotated: see :class:`listwright.training.recipe.config.LetorData`."""
    count = len(names)
    check_fold(fold, count, str(container.path))
    valid, test = (fold - 1 + spec.valid_part) % count, (fold - 1 + spec.test_part) % count
    parts = as_wide([reader.member(container, name) for name in names])
    train = [part for p, part in enumerate(parts) if p not in (valid, test)]
    how = f"{container.path.name}, fold {fold} of {count} (valid {names[valid]}, test {names[test]})"
    return checked(merged(train), parts[valid], parts[test], how)


def _single(
    spec: LetorData,
    container: Container,
    names: dict[str, str],
    *,
    fold: int,
    rng: np.random.Generator,
    reader: Reader,
) -> Splits:
    """One split by the publisher; validation queries are taken from training where none are published."""
    check_fold(fold, 1, str(container.path))
    if "test" not in names:
        raise DataError(container.path, f"has {names['train']}, but no test file")
    how = f"{container.path.name}, the publisher's split"
    parts = as_wide([reader.member(container, name) for name in names.values()])
    by_role = dict(zip(names, parts, strict=True))
    train, test = by_role["train"], by_role["test"]
    if "valid" in by_role:
        return checked(*apart(train, by_role["valid"], test), how)
    train, valid = set_aside(train, spec.split, rng)
    how += f" (it has no validation file: {len(valid)} training queries were set aside)"
    return checked(*apart(train, valid, test), how)


def _part(container: Container, part: str) -> str | None:
    return next((name for name in container.names if Path(name).name in (part, f"{part}.gz")), None)
