"""Candidate lists from decoded JSON: names to columns, values to float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float

from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import CandidateError, EmptyListError, SchemaMismatchError
from listwright.ranking.features import FLOAT32_MAX, UNKNOWN_CODE, Feature, FeatureSchema
from listwright.service.wire.schemas import FORMS, MAX_CONTEXT_KEY, Candidate, RerankRequest

_NUMBERS = frozenset((float, int, type(None)))
_NAMES = frozenset((str, bool))
_FLOAT64_MAX = float(np.finfo(np.float64).max)
_MOST_BITS = 1024
"""A larger whole number is beyond float64 and no category that anyone has, and its digits take long to write."""

LISTED = 10
"""Names that an error lists; of those that were sent it lists as many beyond the expected number."""

Path = tuple[str | int, ...]
Place = Callable[[int, int], Path]


def to_candidates(
    request: RerankRequest, schema: FeatureSchema, ignored: dict[str, None] | None = None
) -> CandidateList:
    """Convert a request to a candidate list, in schema order.

    A feature that is left out has its default; without one it is missing, or an unknown category.

    A context entry that is named like a feature is its value for every candidate that does not send it by name itself;
    a null that a candidate sends is its own.

    Args:
        request: Request of the caller.
        schema: Schema of the bundle that answers.
        ignored: Mapping that gets the names of unknown features, whose values are not checked; None: they are refused.

    Raises:
        EmptyListError: if there are no candidates.
        SchemaMismatchError: if names are unknown or required ones absent, or an array has another width.
        CandidateError: if a value cannot be used; with its JSON path.
    """
    if not (request.candidates or request.features or request.columns):
        raise _empty(next(name for name, *_ in FORMS.values() if getattr(request, name) is not None))
    context = MappingProxyType(check_context(request.context, schema) if request.context else {})
    supplied = {name: value for name, value in context.items() if name in schema.index}
    if request.candidates is not None:
        matrix = _from_rows(request.candidates, schema, supplied, ignored)
        return CandidateList(matrix, _ids(request.candidates), context)
    ids = None if request.ids is None else tuple(request.ids)
    if request.columns is not None:
        matrix = _from_columns(request.columns, schema, supplied, ignored)
    else:
        matrix = _from_matrix(request.features or [], request.feature_names, schema, supplied, ignored)
    return CandidateList(matrix, ids, context)


def _empty(name: str) -> EmptyListError:
    return EmptyListError("the list holds no candidates: send at least one", (name,))


def check_context(context: dict[str, Any], schema: FeatureSchema) -> dict[str, Any]:
    """Check a context, and return it with booleans as strings; entries of features are checked like candidates'."""
    for name, value in context.items():
        place = ("context", name)
        if len(name) > MAX_CONTEXT_KEY:
            raise CandidateError(f"the name has {len(name)} characters, the limit is {MAX_CONTEXT_KEY}", place)
        if name in schema.index:
            _supplied(name, value, schema)
        elif type(value) in _NAMES or value is None:
            continue
        elif type(value) not in _NUMBERS:
            raise CandidateError(f"expected a string, a number, a boolean or null, found {_describe(value)}", place)
        elif not abs(value) <= _FLOAT64_MAX:
            raise CandidateError(f"expected a finite number, found {_describe(value)}", place)
    return {name: str(value).lower() if type(value) is bool else value for name, value in context.items()}


def _supplied(name: str, value: Any, schema: FeatureSchema) -> float:
    """Convert a context entry to a value of the feature of its name."""
    return float(_matrix([[value]], [schema.features[schema.index[name]]], lambda *_: ("context", name))[0, 0])


def _ids(candidates: Sequence[Candidate]) -> tuple[str, ...] | None:
    """Return the candidates' ids, or None; a list in which only some have one is refused."""
    absent = [position for position, candidate in enumerate(candidates) if candidate.id is None]
    if len(absent) == len(candidates):
        return None
    if absent:
        raise CandidateError("this candidate has no id, others have: give all or none", ("candidates", absent[0], "id"))
    ids = tuple(candidate.id for candidate in candidates if candidate.id is not None)
    repeated = _repeated(ids)
    if repeated is not None:
        first, again = repeated
        raise CandidateError(
            f"id {_describe(ids[first])} was used at {first} already: ids are unique in a list",
            ("candidates", again, "id"),
        )
    return ids


def _repeated(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the first two positions of a repeated name; None if there is none."""
    places: dict[str, int] = {}
    for position, name in enumerate(names):
        first = places.setdefault(name, position)
        if first != position:
            return first, position
    return None


def _from_rows(
    candidates: Sequence[Candidate], schema: FeatureSchema, supplied: Mapping[str, Any], ignored: dict[str, None] | None
) -> Float[np.ndarray, "L D"]:
    """Convert rows by name or by position, each of either form; by name, gaps get ``supplied`` or default values."""
    names = schema.names
    defaults = [feature.default for feature in schema.features]
    pick = itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
    rows = []
    for position, candidate in enumerate(candidates):
        values = candidate.features
        if isinstance(values, dict):
            if supplied:
                values = {**supplied, **values}
            try:
                picked = pick(values) if len(values) == len(names) else None
            except KeyError:
                picked = None
            if picked is None:
                _check_names(values, schema, ("candidates", position, "features"), ignored)
                picked = tuple(map(values.get, names, defaults))
            values = picked
        elif not isinstance(values, list):
            raise CandidateError(
                f"expected an object or an array of values, found {_describe(values)}",
                ("candidates", position, "features"),
            )
        elif len(values) != len(names):
            raise _wrong_width(len(values), schema, ("candidates", position, "features"))
        rows.append(values)
    by_name = [isinstance(candidate.features, dict) for candidate in candidates]

    def place(row: int, column: int) -> Path:
        return ("candidates", row, "features", names[column] if by_name[row] else column)

    return _matrix(rows, schema.features, place)


def _from_matrix(
    rows: Sequence[Any],
    sent: Sequence[str] | None,
    schema: FeatureSchema,
    supplied: Mapping[str, Any],
    ignored: dict[str, None] | None,
) -> Float[np.ndarray, "L D"]:
    """Convert a matrix with column names, or in schema order; columns that are not named come from ``supplied``."""
    features: Sequence[Feature] = schema.features
    filled: list[str] = []
    if sent is not None:
        if supplied:
            sent_names = set(sent)
            filled = [name for name in supplied if name not in sent_names]
        _check_names([*sent, *filled], schema, ("feature_names",), ignored)
        columns = [place for place, name in enumerate(sent) if name in schema.index]
        features = [schema.features[schema.index[sent[place]]] for place in columns]
    width = len(features) if sent is None else len(sent)
    for position, row in enumerate(rows):
        if type(row) is not list:
            raise CandidateError(f"expected an array of values, found {_describe(row)}", ("features", position))
        if len(row) != width:
            if sent is None:
                raise _wrong_width(len(row), schema, ("features", position))
            raise CandidateError(f"has {len(row)} values for {width} feature_names", ("features", position))
    if sent is None or tuple(sent) == schema.names:
        return _matrix(rows, features, lambda row, column: ("features", row, column))
    if len(columns) < width:
        rows = [[row[place] for place in columns] for row in rows]
    matrix = _matrix(rows, features, lambda row, column: ("features", row, columns[column]))
    ordered = np.empty((len(rows), len(schema)), dtype=np.float32)
    ordered[:] = [feature.absent for feature in schema.features]
    ordered[:, [schema.index[feature.name] for feature in features]] = matrix
    for name in filled:
        ordered[:, schema.index[name]] = _supplied(name, supplied[name], schema)
    return ordered


def _from_columns(
    columns: Mapping[str, Any], schema: FeatureSchema, supplied: Mapping[str, Any], ignored: dict[str, None] | None
) -> Float[np.ndarray, "L D"]:
    """Convert columns of one length; features that are not among them come from ``supplied``, or have their default."""
    names = schema.names
    _check_names({**supplied, **columns}, schema, ("columns",), ignored)
    length = _common_length(columns)
    values = {feature.name: [feature.default] * length for feature in schema.features}
    values |= {name: [value] * length for name, value in supplied.items()} | dict(columns)
    rows = list(zip(*map(values.__getitem__, names), strict=True))
    return _matrix(rows, schema.features, lambda row, column: ("columns", names[column], row))


def _common_length(columns: Mapping[str, Any]) -> int:
    """Return how many values each column has; there is at least one column."""
    first = next(iter(columns))
    for name, column in columns.items():
        if type(column) is not list:
            raise CandidateError(f"expected an array of values, found {_describe(column)}", ("columns", name))
        if len(column) != len(columns[first]):
            raise CandidateError(
                f"column {_describe(name)} has {len(column)} values, column {_describe(first)} has "
                f"{len(columns[first])}: send one value per candidate in each",
                ("columns", name),
            )
    if not columns[first]:
        raise _empty("columns")
    return len(columns[first])


def _check_names(sent: Collection[str], schema: FeatureSchema, path: Path, ignored: dict[str, None] | None) -> None:
    """Raise unless the names are the schema's, each once, with all required ones; note unknown ones to be ignored."""
    names = set(sent)
    if len(names) < len(sent):
        first, again = _repeated(tuple(sent)) or (0, 0)
        raise CandidateError(f"feature {_describe(list(sent)[first])} is named twice", (*path, again))
    known = schema.index
    absent = sorted(schema.required.difference(sent), key=known.__getitem__)
    unknown = len(names - known.keys())
    if ignored is not None:
        ignored.update((name, None) for name in sent if name not in known)
    if not absent and (not unknown or ignored is not None):
        return
    parts = []
    if absent:
        parts.append(f"lacks the required {_listed(absent)} (send null where a value is missing)")
    if unknown:
        examples = list(islice((name for name in sent if name not in known), LISTED))
        parts.append(f"has unknown features {_listed(examples, unknown)}")
    place = path[0] if len(path) == 1 else f"candidate {path[1]}"
    raise SchemaMismatchError(
        f"{place} {' and '.join(parts)}: GET /info lists the features of the bundle",
        expected=schema.names,
        sent=tuple(islice(sent, len(schema) + LISTED)),
        path=path,
    )


def _wrong_width(width: int, schema: FeatureSchema, path: Path) -> SchemaMismatchError:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return SchemaMismatchError(
        f"${place} has {width} values, the bundle was fitted on {len(schema)} features: "
        "send them by name, or all in order",
        expected=schema.names,
        path=path,
    )


def _listed(names: Sequence[str], count: int | None = None) -> str:
    more = (count or len(names)) - LISTED
    return ", ".join(map(_describe, names[:LISTED])) + (f" and {more} more" if more > 0 else "")


def _matrix(rows: Sequence[Sequence[Any]], features: Sequence[Feature], place: Place) -> Float[np.ndarray, "L D"]:
    """Convert JSON values to float32: numbers and null in bulk, categories through the schema."""
    categorical = [column for column, feature in enumerate(features) if feature.kind == "categorical"]
    if categorical:
        coded = [list(row) for row in rows]
        for column in categorical:
            for position, row in enumerate(coded):
                row[column] = _code(row[column], features[column], place, position, column)
        rows = coded
    if not set(map(type, chain.from_iterable(rows))) <= _NUMBERS:
        raise _first_fault(rows, features, place)
    try:
        wide = np.array(rows, dtype=np.float64)
    except OverflowError:
        raise _first_fault(rows, features, place) from None
    if (np.abs(wide) > FLOAT32_MAX).any():
        raise _first_fault(rows, features, place)
    return wide.astype(np.float32)


def _code(value: Any, feature: Feature, place: Place, row: int, column: int) -> float:
    """Return the code of a category, spelled as in training."""
    if type(value) is int or type(value) is float:
        if value in (math.inf, -math.inf):
            raise CandidateError(f"feature {feature.name!r}: expected a category, found {value}", place(row, column))
        if type(value) is int and value.bit_length() > _MOST_BITS:
            return UNKNOWN_CODE
    elif value is not None and type(value) not in _NAMES:
        raise CandidateError(
            f"feature {feature.name!r} is a category: expected a string, found {_describe(value)}", place(row, column)
        )
    return feature.code(value)


def _first_fault(rows: Sequence[Sequence[Any]], features: Sequence[Feature], place: Place) -> CandidateError:
    """Return the error for the first value that is no number, or too large for float32."""
    for position, row in enumerate(rows):
        for column, value in enumerate(row):
            name = features[column].name
            if type(value) not in _NUMBERS:
                return CandidateError(
                    f"feature {name!r} is numeric: expected a number or null, found {_describe(value)}",
                    place(position, column),
                )
            if value is not None and not abs(value) <= FLOAT32_MAX:
                return CandidateError(
                    f"feature {name!r} does not fit float32 (at most {FLOAT32_MAX:.4g}), found {_describe(value)}",
                    place(position, column),
                )
    raise AssertionError("no value is at fault")


def _describe(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int) and value.bit_length() > 200:
        return "a huge integer"
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"
