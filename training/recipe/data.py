"""The data part of a recipe: where candidates come from, how queries are split, and files of propensities."""

from __future__ import annotations

import argparse
import math
import reprlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError, model_validator

from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import from_json
from listwright.ranking.stages import MOST_GOALS, GoalName

Positive = Annotated[int, Field(ge=1)]

Share = Annotated[float, Field(ge=0.0, le=1.0)]

LEAST_GAIN, MOST_GAIN = 1e-6, 1e12
"""Bounds of the gain of a label above 0: sums of gains keep their digits."""

Default = bool | int | float | str

LABEL = "label"
"""Name of the label as a goal, where the options do not name its column."""

Number = Annotated[float, Field(gt=0.0, le=1e6)]

Finite = Annotated[float, Field(allow_inf_nan=False)]


class RecipePart(BaseModel):
    """A value that never changes, and refuses fields that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _by_name(table: object) -> tuple[tuple[str, Default], ...]:
    """Return names and values, of a table as TOML has them or as they are stored here."""
    values = dict(table) if isinstance(table, tuple) else table
    if not isinstance(values, Mapping):
        raise ValueError("expected a table of names and values")
    for name, value in values.items():
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name} = {value!r}: expected a number, text, true or false")
    return tuple((str(name), value) for name, value in values.items())


Defaults = Annotated[tuple[tuple[str, Default], ...], PlainValidator(_by_name), PlainSerializer(dict)]
"""Values by name: a table in TOML and JSON, pairs in memory, so that a recipe can be hashed."""


def _directions(table: object) -> tuple[tuple[str, int], ...]:
    """Return names of features, with 1, -1 or 0 for each."""
    directions = []
    for name, value in _by_name(table):
        if not isinstance(value, int) or isinstance(value, bool) or value not in (-1, 0, 1):
            choices = "1 (a larger value never lowers the score), -1 (never raises it) or 0 (free)"
            raise ValueError(f"{name} = {value!r}: expected {choices}")
        directions.append((name, value))
    return tuple(directions)


Monotone = Annotated[tuple[tuple[str, int], ...], PlainValidator(_directions), PlainSerializer(dict)]
"""Directions by name of a feature: a table in TOML and JSON, pairs in memory, so that a recipe can be hashed."""


class AnyData(RecipePart):
    """Options of features, whatever the source of the data.

    Args:
        defaults: Values of features that a request by name leaves out: a number, or a category as a request spells it.
            Training never looks at them.
        gains: Gain of label 0, 1 and so on in LambdaMART's loss, the loss ``softmax``, and every NDCG; None for 2^y -
            1. The first is 0, and each is larger than the one before.
        drop_constant: Whether columns with one value in all training rows, missing ones too, become no features. What a
            given first stage needs stays.
    """

    defaults: Defaults = ()
    gains: tuple[float, ...] | None = None
    drop_constant: bool = True

    @model_validator(mode="after")
    def _gains_grow(self) -> AnyData:
        gains = self.gains
        if gains is None:
            return self
        if len(gains) < 2:
            raise ValueError(f"gains = {list(gains)}: expected two numbers or more, for label 0, label 1 and so on")
        if gains[0] != 0.0:
            raise ValueError(f"gains = {list(gains)}: label 0 is irrelevant and gains nothing: begin with 0")
        for label, (below, gain) in enumerate(pairwise(gains), start=1):
            if not below < gain < math.inf:
                raise ValueError(
                    f"gains = {list(gains)}: label {label} gains {gain:g}, label {label - 1} {below:g}: expected "
                    "finite numbers, each larger than the one before"
                )
            if not LEAST_GAIN <= gain <= MOST_GAIN:
                raise ValueError(
                    f"gains = {list(gains)}: label {label} gains {gain:g}: expected {LEAST_GAIN:g} to {MOST_GAIN:g}; "
                    "only ratios count, so multiply all of them"
                )
        return self


class Split(RecipePart):
    """A split by query into ``parts`` equal parts after one seeded shuffle.

    Fold ``k`` (1-based) tests on part ``k``, validates on the next one (cyclic) and trains on the rest: five parts are
    the papers' 60/20/20, and its five folds test every query once.
    """

    parts: Annotated[int, Field(ge=3)] = 5


class TableSplit(Split):
    """Split of a single table into training, validation and test queries; of no effect where there are three tables.

    Args:
        parts: Number of parts of a random split. By time, the newest of these parts tests, the one before it validates;
            where a column names no validation query, one part of the training queries is set aside.
        by: Criterion: ``random``; ``time``, that of a query's first row; or ``column``, which says ``train``, ``valid``
            or ``test``.
        column: Column with the time, or the name of the split; no feature. None for a random split.
    """

    by: Literal["random", "time", "column"] = "random"
    column: str | None = None

    @model_validator(mode="after")
    def _random_looks_at_no_column(self) -> TableSplit:
        if self.by == "random" and self.column is not None:
            raise ValueError(f"column {self.column!r} needs by = 'time' or by = 'column': a random split looks at none")
        return self


class LetorData(AnyData):
    """SVMrank / LETOR text.

    Args:
        parts: Names of the disjoint part files of a set that ships without folds; empty for anything else.
        valid_part, test_part: Offsets of the parts: fold k validates on part ``k + valid_part`` and tests on part ``k +
            test_part`` (1-based, cyclic); it trains on the remaining ones.
        split: Split where neither the files nor the archive say which query belongs where.
    """

    kind: Literal["letor"] = "letor"
    parts: tuple[str, ...] = ()
    valid_part: int = 3
    test_part: int = 4
    split: Split = Split()


class Propensity(RecipePart):
    """Probabilities that a shown place is looked at, for inverse-propensity weights.

    Args:
        column: Column with the shown place, from 1; no feature.
        values: Propensities of place 1, 2 and so on, relative to the first; deeper places have the last.
        clip: Smallest propensity that counts; it bounds the weights, at the cost of some bias.
    """

    column: str = "position"
    values: Annotated[tuple[Annotated[float, Field(gt=0.0, le=1e6)], ...], Field(min_length=1)]
    clip: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1


class TableData(AnyData):
    """CSV or Parquet, one row per candidate.

    Args:
        file: Name of the table inside the folder given by ``--data``; None where ``--data`` is the table itself.
        made_of: Name of a public table; ``--data`` then names the package that it is made of.
        qid, label: Names of the columns with query id and label.
        weight: Column with the weight of each row, a query's being the mean of its rows; no feature. None: all alike.
        goals: Columns with the values from 0 of the goals besides the label; no features.
        propensity: Propensities of shown places, where labels are clicks; None where they are judgements.
        categorical: Columns to treat as categories whatever their type; text columns always are.
        ignore: Columns that are no features.
        split: Split of the queries of a single table.
    """

    kind: Literal["table"] = "table"
    file: str | None = None
    made_of: Literal["tafeng", "car", "tuna", "orange-juice"] | None = None
    qid: str | None = None
    label: str | None = None
    weight: str | None = None
    goals: Annotated[tuple[GoalName, ...], Field(max_length=MOST_GOALS, exclude_if=lambda goals: not goals)] = ()
    propensity: Propensity | None = None
    categorical: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    split: TableSplit = TableSplit()

    @property
    def position(self) -> str | None:
        """Column with the shown place, if it is looked at."""
        return None if self.propensity is None else self.propensity.column


class SyntheticData(AnyData):
    """Data with a known truth (``training.data.synthetic.planted``).

    Args:
        queries: Number of lists.
        min_length, max_length: Bounds of the list length (log-uniform).
        numeric, categorical: Numbers of features of each kind.
        categories: Number of values of each categorical feature.
        groups: Number K of Plackett-Luce groups with their own weights.
        shift: Strength s: every query scales feature d by ``exp(N(0, 0.4 s))`` and shifts it by ``N(0, 2 s)``.
        anomalous: Share of queries whose s is tripled.
        missing: Share of numeric values that are missing (in the first third of the numeric features).
        levels: Number of relevance labels ``0 .. levels - 1``; ties abound.
        noise: Scale of the Gumbel noise on the utilities.
        observable: Share of queries whose group can be seen: a categorical feature ``kind``, the same for all of a
            query's candidates, names the group; for the others it names any. None leaves the feature out.
        decoy, similarity, cheapest: Strengths of the other candidates' effects on a candidate's utility
            (``training.data.synthetic.context_effects``); 0 for no such effect.
    """

    kind: Literal["synthetic"] = "synthetic"
    queries: Positive = 1500
    min_length: Positive = 1
    max_length: Positive = 60
    numeric: Positive = 12
    categorical: Annotated[int, Field(ge=0)] = 2
    categories: Annotated[int, Field(ge=2)] = 8
    groups: Positive = 1
    shift: Annotated[float, Field(ge=0.0)] = 0.5
    anomalous: Share = 0.05
    missing: Share = 0.05
    levels: Annotated[int, Field(ge=2)] = 5
    noise: Annotated[float, Field(ge=0.0)] = 0.5
    observable: Share | None = None
    decoy: Annotated[float, Field(ge=0.0)] = 0.0
    similarity: Annotated[float, Field(ge=0.0)] = 0.0
    cheapest: Annotated[float, Field(ge=0.0)] = 0.0
    split: Split = Split()

    @model_validator(mode="after")
    def _lengths_are_ordered(self) -> SyntheticData:
        if self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}")
        return self

    @model_validator(mode="after")
    def _effects_have_features(self) -> SyntheticData:
        if self.decoy > 0.0 and self.numeric < 2:
            raise ValueError(f"decoy = {self.decoy:g} compares two numeric features: raise numeric to 2 or more")
        for name in ("similarity", "cheapest"):
            strength: float = getattr(self, name)
            if strength > 0.0 and self.categorical == 0:
                raise ValueError(f"{name} = {strength:g} looks at the first category: raise categorical to 1 or more")
        return self


Data = Annotated[LetorData | TableData | SyntheticData, Field(discriminator="kind")]


class PlacePropensity(BaseModel):
    """Propensity of a place.

    Args:
        position: Place, from 1.
        propensity: Probability of a look, relative to the first place.
        low, high: Ends of the 95 % interval.
    """

    model_config = ConfigDict(frozen=True)

    position: Annotated[int, Field(ge=1)]
    propensity: Annotated[Number, Field(ge=1e-9)]
    low: Number | None = None
    high: Number | None = None


class PropensityFile(BaseModel):
    """Content of a file of propensities. Further fields, on where it comes from, are ignored.

    Args:
        format: Version of the format; a change that an older reader would misread raises it.
        positions: Propensities of the places in order, from 1.
        log_covariance: Covariance of the logarithms of the propensities, row by row; None where it is not known.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    format: Literal[1] = 1
    positions: Annotated[tuple[PlacePropensity, ...], Field(min_length=1)]
    log_covariance: tuple[tuple[Finite, ...], ...] | None = None


def propensity_from(options: argparse.Namespace) -> Propensity | None:
    """Return the propensities of ``--propensities``, ``--position`` and ``--clip``; None without these options.

    Raises:
        RecipeError: if the file cannot be used, or none is named.
    """
    if options.propensities is None:
        for option in ("position", "clip"):
            if (value := getattr(options, option)) is not None:
                raise RecipeError(f"--{option} {value}: says how --propensities FILE is used; name the file")
        return None
    clip = Propensity.model_fields["clip"].default if options.clip is None else options.clip
    return read_propensity(options.propensities, column=options.position or "position", clip=clip)


def read_propensity(path: Path, *, column: str, clip: float) -> Propensity:
    """Read the propensities of a file.

    Args:
        path: Path of the file.
        column: Column of the data with the shown place.
        clip: Smallest propensity that counts.

    Raises:
        RecipeError: see :func:`read_propensity_file`; if the clip is none.
    """
    file = read_propensity_file(path)
    if not 0.0 < clip <= 1.0:
        raise RecipeError(f"--clip {clip:g}: expected a propensity above 0, at most 1")
    return Propensity(column=column, values=tuple(place.propensity for place in file.positions), clip=clip)


def read_propensity_file(path: Path) -> PropensityFile:
    """Read a file of propensities.

    Raises:
        RecipeError: if it cannot be read, or its places are not 1, 2 and so on; names the remedy.
    """
    advice = "make it with listwright propensity ROWS --out FILE"
    try:
        file = PropensityFile.model_validate(from_json(path.read_bytes()))
    except OSError as error:
        raise RecipeError(f"--propensities {path} cannot be read: {error.strerror or error}; {advice}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RecipeError(
            f"--propensities {path}: {place}: {first['msg']} (got {reprlib.repr(first['input'])}); {advice}"
        ) from error
    except ValueError as error:
        raise RecipeError(f"--propensities {path}: no JSON: {error}; {advice}") from error
    places = [place.position for place in file.positions]
    if places != list(range(1, len(places) + 1)):
        raise RecipeError(f"--propensities {path}: expected positions 1 to {len(places)} in order, found {places}")
    covariance = file.log_covariance
    if covariance is not None and {len(covariance), *map(len, covariance)} != {len(places)}:
        fault = f"log_covariance: expected {len(places)} rows of as many numbers, a row for each place"
        raise RecipeError(f"--propensities {path}: {fault}; {advice}")
    return file
