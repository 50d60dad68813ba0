"""The feature schema: the columns that a bundle was fitted on, their order, and the meaning of a missing value."""

from __future__ import annotations

import hashlib
import json
import math
import re
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Literal, TypeVar

import numpy as np
from jaxtyping import Float, Int
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, model_validator

UNKNOWN_CODE = 0
"""Code of a category that training never saw."""

MISSING_CODE = -0.0
"""Code of a missing category: it equals :data:`UNKNOWN_CODE`, and no model tells them apart. Counts do, by the sign."""

FLOAT32_MAX = float(np.finfo(np.float32).max)

MAX_NAME = 220
"""Characters of a feature's name."""

_SPACES = "".join(map(chr, range(0x2000, 0x200B)))
PADDING = f" \t\n\r\v\f\x85\xa0\u1680{_SPACES}\u2028\u2029\u202f\u205f\u3000\ufeff"
"""Characters that are no part of a cell where they stand at its ends."""

MISSING_WORDS = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "nat", "null", "none", "\\n"})
"""Texts that stand for a missing value, in lower case; a cell may have them in any case."""

WHOLE = r"-?(?:0|[1-9][0-9]*)\.0+"
"""What a whole number looks like after a program that knows only fractions, such as pandas where some are missing."""

_IS_WHOLE = re.compile(WHOLE)


def spelled(value: object) -> str | None:
    """Return the name of a category or an id, however a file or a request holds it; None where it is missing.

    Text keeps its spelling: ``01234`` and ``1234`` are two names. But padding is no part of it, ``True`` in any case is
    ``true``, and ``12.0`` is ``12``. A number has the digits that a person would write: 2 and 2.0 are ``2``.

    Args:
        value: Text, a boolean, or a number of any type; None, NaN and :data:`MISSING_WORDS` are missing.
    """
    match value:
        case bool() | np.bool_():
            return str(value).lower()
        case int():
            return str(value)
        case float() | np.floating() | Decimal():
            return _digits(value)
        case _:
            return _spelled_text(str(value))  # also of None, and of pandas' NA and NaT


def _digits(value: float | np.floating | Decimal) -> str | None:
    if value != value:  # noqa: PLR0124 - NaN
        return None
    if math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(float(value) if isinstance(value, Decimal) else value)


def _spelled_text(text: str) -> str | None:
    name = text.strip(PADDING)
    lower = name.lower()
    if lower in MISSING_WORDS:
        return None
    if lower in ("true", "false"):
        return lower
    name = name.partition(".")[0] if _IS_WHOLE.fullmatch(name) else name
    return "0" if name == "-0" else name


QUANTILE_LEVELS = (0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999)
"""Levels of :attr:`Feature.quantiles`."""


Item = TypeVar("Item")
Many = Annotated[tuple[Item, ...], Field(fail_fast=True)]
"""Items of which the first that is wrong is named: a list of every fault would take seconds to make."""


def _are_quantiles(values: tuple[float, ...]) -> tuple[float, ...]:
    if len(values) != len(QUANTILE_LEVELS):
        raise ValueError(f"there are {len(QUANTILE_LEVELS)} quantiles, not {len(values)}")
    if list(values) != sorted(values):
        raise ValueError(f"quantiles never fall from one level to the next, found {values}")
    return values


Quantiles = Annotated[Many[Annotated[float, Field(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]], AfterValidator(_are_quantiles)]
"""Of a column, at :data:`QUANTILE_LEVELS`: float32 numbers that never fall."""


class Feature(BaseModel):
    """One column of the feature matrix.

    Args:
        name: Name of the feature, unique in the schema.
        kind: ``numeric`` (a raw number, NaN means missing) or ``categorical`` (a code, see :meth:`code`).
        categories: The values that training saw, in code order (code 1 first); empty for numeric features.
        missing_in_training: Whether training data had missing values here. Where it had none, every model treats a
            missing value at serving time as 0.0, because LightGBM does.
        quantiles: Quantiles of the training values at :data:`QUANTILE_LEVELS`; None for categorical or all-missing
            features.
        default: The value of a candidate that is sent by name without the feature: a number, or one of the categories.
            None: it is missing. A ``null`` that is sent is missing in any case.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    kind: Literal["numeric", "categorical"] = "numeric"
    categories: Many[str] = ()
    missing_in_training: bool = False
    quantiles: Quantiles | None = None
    default: FiniteFloat | str | None = None

    def value_of(self, number: float) -> float | str | None:
        """Convert a number of the feature matrix to the value in a request; None for missing or unknown.

        Convention: the shortest decimal that is the same float32, 1.6 and not 1.600000023841858.
        """
        if self.kind == "numeric":
            return None if math.isnan(number) else float(str(np.float32(number)))
        code = UNKNOWN_CODE if math.isnan(number) else int(number)
        return self.categories[code - 1] if 0 < code <= len(self.categories) else None

    @model_validator(mode="after")
    def _values_fit_kind(self) -> Feature:
        name, default = self.name, self.default
        if self.kind == "numeric" and self.categories:
            raise ValueError(f"feature {name!r} is numeric and cannot have categories")
        if len(set(self.categories)) != len(self.categories):
            raise ValueError(f"feature {name!r} lists a category twice")
        if default is not None and self.kind == "categorical" and default not in self.categories:
            raise ValueError(f"the default of feature {name!r} is {default!r}, which is none of its categories")
        is_float32 = default is None or (isinstance(default, float) and abs(default) <= FLOAT32_MAX)
        if self.kind == "numeric" and not is_float32:
            raise ValueError(f"the default of feature {name!r} is {default!r}, which is no number of float32")
        return self

    @property
    def optional(self) -> bool:
        """Whether a request may leave the feature out: where training saw what missing means, or it has a default."""
        return self.missing_in_training or self.kind == "categorical" or self.default is not None

    @cached_property
    def absent(self) -> float:
        """Value in a feature matrix of a candidate that is sent by name without the feature: a number or a code.

        NaN where it is missing.
        """
        if self.kind == "categorical":
            return MISSING_CODE if self.default is None else self.code(str(self.default))
        return math.nan if self.default is None else float(self.default)

    @cached_property
    def _codes(self) -> dict[str | None, float]:
        exact: dict[str | None, float] = {category: code for code, category in enumerate(self.categories, start=1)}
        by_spelling = {spelled(category): code for category, code in exact.items()}
        return {**by_spelling, None: MISSING_CODE, **exact}

    def code(self, category: object) -> float:
        """Return the code of a category: 1 for the first in :attr:`categories`.

        Args:
            category: Name of the category, or any value that :func:`spelled` turns into it.

        Returns:
            :data:`UNKNOWN_CODE` for one that training never saw, :data:`MISSING_CODE` for a missing one.
        """
        known = self._codes.get(category) if isinstance(category, str) else None
        return self._codes.get(spelled(category), UNKNOWN_CODE) if known is None else known


class FeatureSchema(BaseModel):
    """The ordered features of a bundle: column ``d`` of every ``(L, D)`` array is ``features[d]``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    features: Annotated[tuple[Feature, ...], Field(min_length=1, fail_fast=True)]

    @model_validator(mode="after")
    def _names_are_unique(self) -> FeatureSchema:
        names: set[str] = set()
        for feature in self.features:
            if feature.name in names:
                raise ValueError(f"feature name {feature.name!r} appears twice")
            names.add(feature.name)
        return self

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Feature names in column order."""
        return tuple(feature.name for feature in self.features)

    @cached_property
    def index(self) -> dict[str, int]:
        """Column of each feature name."""
        return {name: column for column, name in enumerate(self.names)}

    @cached_property
    def categorical(self) -> tuple[int, ...]:
        """Columns of the categorical features."""
        return tuple(d for d, feature in enumerate(self.features) if feature.kind == "categorical")

    @cached_property
    def numeric(self) -> tuple[int, ...]:
        """Columns of the numeric features."""
        return tuple(d for d, feature in enumerate(self.features) if feature.kind == "numeric")

    @cached_property
    def spelling(self) -> int:
        """Bytes of the longest name and of the longest category together, in UTF-8."""
        names = max(len(name.encode()) for name in self.names)
        return names + max((len(c.encode()) for f in self.features for c in f.categories), default=0)

    @cached_property
    def training_range(self) -> Float[np.ndarray, "2 D"]:
        """Lowest and highest training quantile of every feature; infinite where it has none."""
        nowhere = (-math.inf, math.inf)
        ends = [nowhere if f.quantiles is None else (f.quantiles[0], f.quantiles[-1]) for f in self.features]
        return np.array(ends, dtype=np.float32).T

    @cached_property
    def required(self) -> frozenset[str]:
        """Names that every request must send."""
        return frozenset(feature.name for feature in self.features if not feature.optional)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over names, kinds, categories and missing policy in order; two equal ones take the same arrays.

        Defaults are left out: they say how arrays are made of names, not what arrays mean.
        """
        facts = [[f.name, f.kind, list(f.categories), f.missing_in_training] for f in self.features]
        text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


MOSTLY_UNKNOWN = 0.5
"""Share of a column's categories from which on it hardly says anything."""


def count_categories(codes: Float[np.ndarray, "L J"]) -> Int[np.ndarray, "2 J"]:
    """Count the categories in each column of codes, and how many of these the schema does not know."""
    at_zero = codes == UNKNOWN_CODE
    missing = at_zero & np.signbit(codes)
    return np.stack([(~missing).sum(axis=0), (at_zero & ~missing).sum(axis=0)])


def mostly_unknown(counts: Int[np.ndarray, "2 J"], schema: FeatureSchema) -> dict[str, str]:
    """Return a sentence, by name, on each column most of whose categories the schema does not know.

    Args:
        counts: Result of :func:`count_categories`, added up over any number of rows.
        schema: Schema that has the J categorical columns.
    """
    sentences = {}
    for column, there, unknown in zip(schema.categorical, *counts.tolist(), strict=True):
        if unknown > MOSTLY_UNKNOWN * there:
            feature = schema.features[column]
            known = ", ".join(map(repr, feature.categories[:5])) or "none"
            known += " …" if len(feature.categories) > 5 else ""
            sentences[feature.name] = (
                f"{feature.name!r} has {unknown:,} unknown categories in {there:,} values; known are {known}. "
                "Unknown ones all count as one: check how they are spelled, and that the column is the same"
            )
    return sentences
