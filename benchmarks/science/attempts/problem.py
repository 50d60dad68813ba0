"""One problem: a fold of a data set with a seed, and the scores that every attempt gives its rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.metrics import ndcg
from listwright.ranking.relative import KINDS, RelativeColumn, RelativeColumns
from listwright.training.data.dataset import Dataset, Splits, fit_schema
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart, Recipe
from listwright.training.recipe.data import SyntheticData
from listwright.training.steps import load
from listwright.training.stored.rows import in_memory

CUTOFF = 10
PLANTED_QUERIES = 1000
PLANTED = ("context", "shifted")
REAL = ("airline", "mq2008", "ohsumed", "tafeng")
LARGE = ("tafeng",)
"""Sets with one split, by time, and without out-of-fold scores, which would take hours."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one attempt for the rows of the three splits.

    Args:
        train: ``(R,)`` each by a model that did not see its query; None where an attempt has no such scores.
        valid, test: ``(S,)`` and ``(tested,)``.
        facts: numbers worth knowing: trees, epochs, weights.
    """

    train: Float[np.ndarray, " R"] | None
    valid: Float[np.ndarray, " S"]
    test: Float[np.ndarray, " tested"]
    facts: dict[str, list[float]]


@dataclass(frozen=True)
class Problem:
    """A fold of a data set, and a seed.

    Args:
        name: of a recipe: one of :data:`REAL` or :data:`PLANTED`.
        fold: of the split; planted sets have fold 1 only.
        seed: of everything that is fitted; a planted set is drawn anew from it.
        data: the folder that holds a folder for each real set.
        work: where results are kept.
    """

    name: str
    fold: int
    seed: int
    data: Path
    work: Path

    @property
    def folder(self) -> Path:
        """Folder of this problem's results."""
        return self.work / self.name / f"fold-{self.fold}-seed-{self.seed}"

    @cached_property
    def recipe(self) -> Recipe:
        """The shipped recipe; of its first stage, only the settings are kept, and nothing is searched."""
        drawn = self.name in PLANTED
        recipe = config.load(self.name, fold=self.fold, seed=self.seed if drawn else 0)
        if isinstance(recipe.data, SyntheticData):
            recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"queries": PLANTED_QUERIES})})
        return recipe

    @property
    def first_stage(self) -> LambdaMart:
        """Settings of LightGBM."""
        spec = self.recipe.first_stage
        assert isinstance(spec, LambdaMart)
        return spec.model_copy(update={"trials": 1})

    @cached_property
    def plain(self) -> Splits:
        """Splits with the columns of the set."""
        return load(self.recipe, [] if self.name in PLANTED else [str(self.data / self.name)])

    @cached_property
    def wide(self) -> Splits:
        """Splits with ``z`` and ``rank`` of every numeric feature behind the columns of the set."""
        return widened(self.plain)

    @cached_property
    def extended(self) -> Splits:
        """Splits with what :func:`extend` adds behind the columns of ``wide``."""
        return extend(self.plain, self.wide)

    @cached_property
    def relative_only(self) -> Splits:
        """Splits with the categories and the list-relative columns, without the numbers that these compare."""
        splits, own = self.wide, set(self.plain.train.schema.names)
        index = [d for d, f in enumerate(splits.train.schema.features) if f.kind == "categorical" or f.name not in own]
        train, valid, test = (part.narrowed(np.array(index)) for part in (splits.train, splits.valid, splits.test))
        return replace(splits, train=train, valid=valid, test=test)

    def scores(self, name: str, make: Callable[[], Scores]) -> Scores:
        """Return the scores of an attempt: stored ones, or else new ones, stored with every test query's NDCG."""
        file = self.folder / f"{name}.npz"
        if not file.exists():
            started = time.perf_counter()
            scores = make()
            arrays = {"valid": scores.valid, "test": scores.test, "seconds": np.array(time.perf_counter() - started)}
            arrays |= {"ndcg": by_query(self.plain.test, scores.test)}
            arrays |= {f"fact {fact}": np.array(values) for fact, values in scores.facts.items()}
            if scores.train is not None:
                arrays["train"] = scores.train
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_suffix(".tmp.npz")
            np.savez(temporary, **arrays)  # type: ignore[arg-type]
            temporary.replace(file)
        with np.load(file) as archive:
            facts = {key.removeprefix("fact "): archive[key].tolist() for key in archive if key.startswith("fact ")}
            return Scores(archive.get("train"), archive["valid"], archive["test"], facts)


def by_query(data: Dataset, scores: Float[np.ndarray, " R"]) -> Float[np.ndarray, " N"]:
    """Return ``(N,)`` NDCG@10; 0 for a query without a relevant candidate."""
    rows = (data.slice(n) for n in range(len(data)))
    return np.nan_to_num([ndcg(scores[r], data.labels[r], cutoff=CUTOFF) for r in rows])


def widened(splits: Splits) -> Splits:
    """Add the list-relative columns that vary over the training rows, under the schema that these fix."""
    schema = splits.train.schema
    numeric = [d for d in range(len(schema)) if d not in schema.categorical]
    spread = np.nanstd(splits.train.features[:, numeric], axis=0, dtype=np.float64)
    columns = [
        RelativeColumn(feature=schema.names[d], kind=kind, scale=float(np.nan_to_num(scale)))
        for kind in KINDS
        for d, scale in zip(numeric, spread, strict=True)
    ]
    relative = RelativeColumns(columns, schema)
    train, valid, test = (_widened(part, relative) for part in (splits.train, splits.valid, splits.test))
    varies = np.nanmin(in_memory(train.features), axis=0) < np.nanmax(in_memory(train.features), axis=0)
    varies[: len(schema)] = True
    train, valid, test = (part.narrowed(np.flatnonzero(varies)) for part in (train, valid, test))
    fixed: FeatureSchema = fit_schema(train)
    return replace(splits, train=train.with_schema(fixed), valid=valid.with_schema(fixed), test=test.with_schema(fixed))


def extend(plain: Splits, wide: Splits) -> Splits:
    """Add the gap to the list's lowest and highest value of every number, its place between them, and the list length.

    Args:
        plain: columns of the set; every number that varies over the training rows gets such columns.
        wide: the same queries, with columns that stay in front.
    """
    numeric = np.array([d for d, f in enumerate(plain.train.schema.features) if f.kind == "numeric"])
    values = in_memory(plain.train.features)[:, numeric]
    numeric = numeric[np.nanmin(values, axis=0) < np.nanmax(values, axis=0)]
    parts = [
        _extend(getattr(plain, part), getattr(wide, part), numeric.tolist()) for part in ("train", "valid", "test")
    ]
    fixed = fit_schema(parts[0])
    train, valid, test = (part.with_schema(fixed) for part in parts)
    return replace(wide, train=train, valid=valid, test=test)


def _extend(plain: Dataset, wide: Dataset, numeric: list[int]) -> Dataset:
    values = in_memory(plain.features)[:, numeric].astype(np.float64)
    starts, lengths = plain.offsets[:-1], plain.lengths
    low, high = (np.repeat(end.reduceat(values, starts, axis=0), lengths, axis=0) for end in (np.fmin, np.fmax))
    spread = high - low
    place = np.where(
        spread > 0.0, (values - low) / np.where(spread > 0.0, spread, 1.0), np.where(spread == 0, 0.5, spread)
    )
    parts = {"place": place, "above lowest": values - low, "below highest": high - values}
    names = [plain.schema.names[d] for d in numeric]
    more = [Feature(name=f"{name} ({kind} in list)") for kind in parts for name in names]
    features = np.column_stack(
        [in_memory(wide.features), *(part.astype(np.float32) for part in parts.values()), np.repeat(lengths, lengths)]
    ).astype(np.float32)
    schema = FeatureSchema(features=(*wide.schema.features, *more, Feature(name="candidates in list")))
    return replace(wide, features=features, schema=schema)


def _widened(data: Dataset, relative: RelativeColumns) -> Dataset:
    features = np.concatenate([relative.widened(features) for features, _ in data.lists()])
    return replace(data, features=features, schema=relative.schema)
