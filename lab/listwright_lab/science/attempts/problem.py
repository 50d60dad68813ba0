"""Problem that every attempt is measured on: a fold of a data set, a seed, and the scores of the attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.features import UNKNOWN_CODE, Feature, FeatureSchema
from listwright.ranking.metrics import ndcg
from listwright.ranking.relative import NUMBER_KINDS, RelativeColumn, RelativeColumns
from listwright.training.data.dataset import Dataset, Splits, fit_schema
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart, Recipe
from listwright.training.recipe.data import SyntheticData
from listwright_lab.science import curve

CUTOFF = 10
PLANTED_QUERIES = 1000
PLANTED = ("context", "shifted", "flights")
REAL = ("airline", "mq2008", "ohsumed", "tafeng")
LARGE = ("tafeng",)
"""Sets with one split, by time. Each seed draws :data:`SAMPLED_LISTS` training lists; two folds score them."""

SAMPLED_LISTS = 8_000


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one attempt for the rows of the three splits.

    Args:
        train: ``(R,)`` out-of-fold scores of the training rows; None where an attempt has none.
        valid: ``(S,)`` scores of the validation rows.
        test: ``(tested,)`` scores of the test rows.
        facts: Facts of the fit by name: trees, epochs, weights.
    """

    train: Float[np.ndarray, " R"] | None
    valid: Float[np.ndarray, " S"]
    test: Float[np.ndarray, " tested"]
    facts: dict[str, list[float]]


@dataclass(frozen=True)
class Problem:
    """Fold of a data set, and a seed.

    Args:
        name: Name of the recipe: one of :data:`REAL` or :data:`PLANTED`.
        fold: Number of the fold, from 1; planted sets have fold 1 only.
        seed: Seed of everything that is fitted; a planted set is drawn anew from it.
        data: Folder with a folder for each real set.
        work: Folder for results.
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
        """Shipped recipe; its first stage keeps the settings only, and searches nothing."""
        planted = self.name in PLANTED
        name = "context" if self.name == "flights" else self.name  # whose settings are the defaults
        recipe = config.load(name, fold=self.fold, seed=self.seed if planted else 0)
        if isinstance(recipe.data, SyntheticData):
            recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"queries": PLANTED_QUERIES})})
        return recipe

    @property
    def first_stage(self) -> LambdaMart:
        """Settings of LightGBM with its usual objective, ``lambdarank``."""
        spec = self.recipe.first_stage
        assert isinstance(spec, LambdaMart)
        settings = spec.settings.model_copy(update={"objective": "lambdarank"})
        folds = 2 if self.name in LARGE else spec.folds
        return spec.model_copy(update={"trials": 1, "folds": folds, "settings": settings})

    @cached_property
    def plain(self) -> Splits:
        """Splits with the columns of the set."""
        if self.name == "flights":
            return flights(self.seed)
        splits = load(self.recipe, [] if self.name in PLANTED else [str(self.data / self.name)])
        if self.name not in LARGE:
            return splits
        splits, tests = curve.in_time(splits)
        rng, share = np.random.default_rng(self.seed), SAMPLED_LISTS / len(splits.train)
        train, valid = (part.select(curve.sample(rng, len(part), share)) for part in (splits.train, splits.valid))
        return replace(splits, train=train, valid=valid, test=tests["usual"])

    @cached_property
    def wide(self) -> Splits:
        """Splits with ``z`` and ``rank`` of every numeric feature behind the columns of the set."""
        return widened(self.plain)

    @cached_property
    def extended(self) -> Splits:
        """Splits with what :func:`extend` adds behind the columns of ``wide``."""
        return extend(self.plain, self.wide)

    @cached_property
    def grouped(self) -> Splits:
        """Splits with what :func:`group` adds behind the columns of ``wide``."""
        return group(self.plain, self.wide)

    @cached_property
    def piecewise(self) -> Splits:
        """Splits with what :func:`bend` adds behind the columns of ``wide``."""
        return bend(self.plain, self.wide)

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
            with atomic_file(file) as to:
                np.savez(to, **arrays)  # type: ignore[arg-type]
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
        for kind in NUMBER_KINDS
        for d, scale in zip(numeric, spread, strict=True)
    ]
    relative = RelativeColumns(columns, schema)
    train, valid, test = (_widened(part, relative) for part in (splits.train, splits.valid, splits.test))
    varies = np.nanmin(train.features[:], axis=0) < np.nanmax(train.features[:], axis=0)
    varies[: len(schema)] = True
    train, valid, test = (part.narrowed(np.flatnonzero(varies)) for part in (train, valid, test))
    fixed: FeatureSchema = fit_schema(train)
    return replace(splits, train=train.with_schema(fixed), valid=valid.with_schema(fixed), test=test.with_schema(fixed))


def extend(plain: Splits, wide: Splits) -> Splits:
    """Add the gap to the list's lowest and highest value of every number, its place between them, and the list length.

    Args:
        plain: Splits with the columns of the set; every number that varies over the training rows gets such columns.
        wide: Splits of the same queries, whose columns stay in front.
    """
    numeric = _varying(plain.train)

    def columns(part: Dataset) -> Iterator[tuple[str, Values]]:
        starts, lengths = part.offsets[:-1], part.lengths
        for d in numeric:
            values, name = part.features[:, d].astype(np.float64), part.schema.names[d]
            low, high = (np.repeat(end.reduceat(values, starts), lengths) for end in (np.fmin, np.fmax))
            spread = high - low
            place = (values - low) / np.where(spread > 0.0, spread, 1.0)
            yield f"{name} (place in list)", np.where(spread > 0.0, place, np.where(spread == 0, 0.5, spread))
            yield f"{name} (above lowest in list)", values - low
            yield f"{name} (below highest in list)", high - values
        yield "candidates in list", np.repeat(lengths, lengths).astype(np.float64)

    return _with_columns(plain, wide, columns)


def group(plain: Splits, wide: Splits) -> Splits:
    """Compare every number within the candidates of a list that share a category: rank, gap to the lowest, and count.

    Args:
        plain: Splits with the columns of the set; categories that differ within a list are taken one by one.
        wide: Splits of the same queries, whose columns stay in front.
    """
    numeric, names = _varying(plain.train), plain.train.schema.names
    categories = groupings(plain.train)

    def columns(part: Dataset) -> Iterator[tuple[str, Values]]:
        features = part.features[:]
        for c in categories:
            label, count = group_of(part, [c])
            yield f"candidates of this {names[c]}", count[label].astype(np.float64)
            frame = pd.DataFrame(features[:, numeric].astype(np.float64)).groupby(label)
            ranks, lowest, present = frame.rank(), frame.transform("min"), frame.transform("count")
            places = ((ranks - 1) / (present - 1).where(present > 1, 1)).where((present > 1) | ranks.isna(), 0.5)
            for k, d in enumerate(numeric):
                yield f"{names[d]} (rank in this {names[c]})", places[k].to_numpy()
                yield f"{names[d]} (above lowest of this {names[c]})", features[:, d] - lowest[k].to_numpy()

    return _with_columns(plain, wide, columns)


def groupings(data: Dataset) -> list[int]:
    """Return the categorical columns that differ within some list."""
    features, starts = data.features[:], data.offsets[:-1]
    return [
        d
        for d in data.schema.categorical
        if np.any(np.fmax.reduceat(features[:, d], starts) > np.fmin.reduceat(features[:, d], starts))
    ]


def group_of(data: Dataset, categories: Sequence[int]) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " groups"]]:
    """Return ``(R,)`` numbers of the groups of a list's candidates with these categories, and each group's size."""
    keys = np.nan_to_num(data.features[:, list(categories)], nan=UNKNOWN_CODE).astype(np.int64)
    keys = np.column_stack([np.repeat(np.arange(len(data)), data.lengths), keys])
    _, label, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    return label.reshape(-1), count


PIECES = 8


def bend(plain: Splits, wide: Splits) -> Splits:
    """Add the piecewise-linear encoding of every number: its place in each of :data:`PIECES` bins of equal counts.

    Gorishniy, Rubachev, Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning", 2022, eq. (1).
    """
    numeric = _varying(plain.train)
    rows, levels = plain.train.features[:], np.linspace(0.0, 1.0, PIECES + 1)
    edges = {d: np.unique(np.nanquantile(rows[:, d].astype(np.float64), levels)) for d in numeric}

    def columns(part: Dataset) -> Iterator[tuple[str, Values]]:
        for d in numeric:
            values = part.features[:, d].astype(np.float64)
            for k, (low, high) in enumerate(pairwise(edges[d])):
                yield f"{part.schema.names[d]} (piece {k})", np.clip((values - low) / (high - low), 0.0, 1.0)

    return _with_columns(plain, wide, columns)


Values = Float[np.ndarray, " R"]


def _varying(data: Dataset) -> list[int]:
    """Return the numeric columns that vary over the rows."""
    numeric = np.array([d for d in range(len(data.schema)) if d not in data.schema.categorical])
    values = data.features[:, numeric]
    varying: list[int] = numeric[np.nanmin(values, axis=0) < np.nanmax(values, axis=0)].tolist()
    return varying


def _with_columns(plain: Splits, wide: Splits, columns: Callable[[Dataset], Iterator[tuple[str, Values]]]) -> Splits:
    """Return ``wide`` with more numeric columns behind, made of the parts of ``plain``."""

    def widen(old: Dataset, data: Dataset) -> Dataset:
        names, values = zip(*((name, column.astype(np.float32)) for name, column in columns(old)), strict=True)
        schema = FeatureSchema(features=(*data.schema.features, *(Feature(name=name) for name in names)))
        return replace(data, features=np.column_stack([data.features[:], *values]), schema=schema)

    parts = [widen(getattr(plain, part), getattr(wide, part)) for part in ("train", "valid", "test")]
    fixed = fit_schema(parts[0])
    train, valid, test = (part.with_schema(fixed) for part in parts)
    return replace(wide, train=train, valid=valid, test=test)


CARRIERS = 12


def flights(seed: int) -> Splits:
    """Draw lists of flights in which the others of the same carrier matter; one flight of each list is chosen.

    A list has 10 to 40 flights of :data:`CARRIERS` carriers, and a level of prices of its own. The utility falls with
    price, duration and stops. It rises for the cheapest flight of its carrier, and falls with each cheaper flight of
    the same carrier that leaves within an hour. Gumbel noise makes the choice a logit.
    """
    rng = np.random.default_rng([seed, 40])
    schema = FeatureSchema(
        features=(
            *(Feature(name=name) for name in ("price", "duration", "stops", "departure")),
            Feature(name="carrier", kind="categorical", categories=tuple(f"c{n}" for n in range(CARRIERS))),
        )
    )

    def draw(queries: int) -> Dataset:
        lengths = rng.integers(10, 41, queries)
        rows, labels = [], []
        for length in lengths:
            carrier, stops = rng.integers(1, CARRIERS + 1, length), rng.integers(0, 3, length)
            dear = np.exp(0.3 * rng.normal(size=length) - 0.15 * stops)
            duration, departure = 2 + 2 * stops + rng.gamma(2.0, 1.0, length), rng.uniform(5, 23, length)
            same = carrier[:, None] == carrier
            cheaper = same & (dear[None, :] < dear[:, None])
            near = cheaper & (np.abs(departure[:, None] - departure) < 1.0)
            utility = -4.0 * dear - 0.3 * duration - 0.5 * stops
            utility += 1.5 * ~cheaper.any(axis=1) - 1.5 * near.sum(axis=1)
            price = dear * 300.0 * np.exp(rng.normal())
            rows.append(np.column_stack([price, duration, stops, departure, carrier]))
            labels.append(np.arange(length) == np.argmax(utility + rng.gumbel(size=length)))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        qids = tuple(str(n) for n in range(queries))
        features = np.concatenate(rows).astype(np.float32)
        return Dataset(features, np.concatenate(labels).astype(np.int32), offsets, qids, schema)

    share = PLANTED_QUERIES // 5
    return Splits(draw(3 * share), draw(share), draw(share), "drawn")


def _widened(data: Dataset, relative: RelativeColumns) -> Dataset:
    features = np.concatenate([relative.widened(features) for features, _ in data.lists()])
    return replace(data, features=features, schema=relative.schema)
