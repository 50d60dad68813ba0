"""Rules of merchandising as a request or a file writes them: pin, exclude, cutoff, boost, bury, cap and diversify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from listwright.ranking.errors import CandidateError
from listwright.ranking.features import FLOAT32_MAX

MOST_RULES, MOST_RULES_OF_FILE = 100, 1000
"""Rules of a request, and of a model in a file."""

MOST_IDS, MOST_CONDITIONS, MOST_VALUES = 1000, 10, 100
"""Ids and conditions of a rule, and values of a condition."""

MOST_VALUES_OF_ALL, MOST_CAPS = 2000, 10
"""Values and ranges in the conditions of all rules of a request, or of a model in a file; and their caps."""

MOST_COMPARISONS = 500_000
"""Values and ranges in the conditions of a request's rules, and its rules, times the candidates of its list."""

MOST_PLACES, MOST_DIVERSE = 1000, 100
"""Deepest places that a cap, and that diversity reaches, which takes time for each place and candidate."""

_NAME = r"^[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]{1,100}$"
"""Names that are safe to show and to log: no control characters, no invisible ones, none that turn the direction."""


def is_number(value: object) -> bool:
    """Return whether a value is a number of float32."""
    return type(value) in (int, float) and abs(value) <= FLOAT32_MAX  # type: ignore[arg-type]


def convert_whole(value: Any) -> Any:
    """Convert whole floats to int: 3.0 is an integer in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _without_nulls(value: Any) -> Any:
    """Drop members that are null, which are as good as absent."""
    return {name: member for name, member in value.items() if member is not None} if isinstance(value, dict) else value


_VALUE = {"oneOf": [{"type": "number"}, {"type": "string"}, {"type": "boolean"}]}
Number = Annotated[float | None, Field(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]


class Condition(BaseModel):
    """What a feature must be: one of ``values``, or from ``min`` to ``max``; values may stand without the object."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    values: Annotated[
        list[Annotated[Any, WithJsonSchema(_VALUE)]] | None,
        Field(max_length=MOST_VALUES, description="numbers or categories; one of them is enough"),
    ] = None
    min: Annotated[Number, Field(description="the lowest number")] = None
    max: Annotated[Number, Field(description="the highest number")] = None

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return _without_nulls(value)
        return {"values": value if isinstance(value, list) else [value]}

    @model_validator(mode="after")
    def _one_form(self) -> Condition:
        if (self.values is None) == (self.min is None and self.max is None):
            raise ValueError("send either values, or a range: min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min is {self.min:g} and max is {self.max:g}: no number is between them")
        if not all(type(value) in (bool, str) or is_number(value) for value in self.values or ()):
            raise ValueError("expected numbers of float32, or categories")
        return self


Id = Annotated[str, Field(max_length=512)]
Places = Annotated[int, Field(ge=1, le=MOST_PLACES), BeforeValidator(convert_whole)]
By = Annotated[str, Field(max_length=200)]


class _Rule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str | None, Field(pattern=_NAME, description="for answers and logs; default: its number")] = None

    _absent = model_validator(mode="before")(_without_nulls)


class _Selection(_Rule):
    ids: Annotated[list[Id] | None, Field(max_length=MOST_IDS, description="of candidates; either ids or where")] = None
    where: Annotated[
        dict[str, Condition] | None,
        Field(
            min_length=1, max_length=MOST_CONDITIONS, description="instead of ids: conditions by feature; all must hold"
        ),
    ] = None

    @model_validator(mode="after")
    def _selects(self) -> _Selection:
        if (self.ids is None) == (self.where is None):
            raise ValueError("send either ids or where")
        return self


class PinRule(_Rule):
    """Put one candidate at a place."""

    action: Literal["pin"]
    id: Annotated[Id, Field(description="of the candidate; without effect where the list does not have it")]
    place: Annotated[int, Field(ge=1, le=2**53 - 1, description="from 1"), BeforeValidator(convert_whole)]


class ExcludeRule(_Selection):
    """Leave candidates out of the results."""

    action: Literal["exclude"]


class CutoffRule(_Rule):
    """Leave out of the results what is probably not relevant."""

    action: Literal["cutoff"]
    min_probability: Annotated[float, Field(ge=0, le=1, description="the lowest probability of a result")]


class BoostRule(_Selection):
    """Multiply (boost) or divide (bury) the odds of candidates to be chosen."""

    action: Literal["boost", "bury"]
    factor: Annotated[float, Field(ge=1, le=1e6, description="of the odds against each other candidate")]


class CapRule(_Rule):
    """Allow no more than so many candidates with one value of a feature among the first places."""

    action: Literal["cap"]
    by: Annotated[By, Field(description="the feature; missing values and unknown categories are not counted")]
    most: Annotated[Places, Field(description="candidates of one value")]
    first: Annotated[Places, Field(description="places, from the top")] = 10


class DiversifyRule(_Rule):
    """Choose candidates for the first places that are unlike those above them (maximal marginal relevance)."""

    action: Literal["diversify"]
    by: Annotated[list[By], Field(min_length=1, max_length=MOST_CONDITIONS, description="features to compare")]
    weight: Annotated[float, Field(ge=0, le=1, description="of diversity; 0 keeps the order, 1 ignores relevance")] = (
        0.3
    )
    first: Annotated[
        int, Field(ge=1, le=MOST_DIVERSE, description="places, from the top"), BeforeValidator(convert_whole)
    ] = 10


AnyRule = PinRule | ExcludeRule | CutoffRule | BoostRule | CapRule | DiversifyRule
Rule = Annotated[AnyRule, Field(discriminator="action")]
"""One rule, as a request or a file writes it."""


def names_of(rules: Sequence[AnyRule], kind: str) -> tuple[str, ...]:
    """Return what the rules are called: one without a name has its number, from 1, behind its kind."""
    return tuple(rule.name or f"{kind} {number}" for number, rule in enumerate(rules, 1))


def check_rules(rules: Sequence[AnyRule], names: Sequence[str], *, of_request: bool = False) -> None:
    """Check what can be seen without a list.

    Two pins contradict each other in a request only: those of a file may meet in no list.

    Raises:
        CandidateError: if two rules contradict each other, with both names, or there are too many conditions or caps;
            at the path of the rule.
    """
    places, pins, diverse = dict[int, int](), dict[str, int](), list[int]()
    excluders = {id_: n for n, rule in enumerate(rules) if rule.action == "exclude" for id_ in rule.ids or ()}
    values = caps = 0
    for number, rule in enumerate(rules):
        if rule.action == "pin":
            if of_request:
                _check_pair(names, places.setdefault(rule.place, number), number, f"both pin place {rule.place}")
                _check_pair(names, pins.setdefault(rule.id, number), number, f"both pin {quote(rule.id)}")
            _check_pair(names, excluders.get(rule.id, number), number, f"exclude and pin {quote(rule.id)}")
        elif rule.action == "diversify":
            diverse.append(number)
            _check_pair(names, diverse[0], number, "both diversify: one a list is enough")
        elif rule.action == "cap":
            caps += 1
        elif rule.action != "cutoff":
            values += sum(len(condition.values or (None,)) for condition in (rule.where or {}).values())
        for count, most, what in ((values, MOST_VALUES_OF_ALL, "values and ends of ranges"), (caps, MOST_CAPS, "caps")):
            if count > most:
                raise CandidateError(f"more than {most} {what} in all rules together: write fewer", ("rules", number))


def _check_pair(names: Sequence[str], first: int, second: int, what: str) -> None:
    if first != second:
        raise CandidateError(f"{names[first]!r} and {names[second]!r} contradict each other: {what}", ("rules", second))


def quote(text: str) -> str:
    """Return a text in quotes, shortened: callers may send ids and names of any length."""
    return repr(text if len(text) <= 100 else text[:100] + "…")
