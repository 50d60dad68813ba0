"""A feature matrix that arrived as numbers: checked against limits and schema before its values are read.

Here a categorical column holds codes, not names: 1 for the first of the manifest's categories, in their order, and 0
for a value that training never saw; NaN, a missing one, counts as 0 too, as ``null`` does in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import CandidateError, EmptyListError, SchemaMismatchError
from listwright.ranking.features import FLOAT32_MAX, MISSING_CODE, UNKNOWN_CODE, FeatureSchema
from listwright.service.wire.json_codec import LEAST_VALUES, check_length
from listwright.service.wire.json_matrix import check_context

FLOAT64_BYTES = 8


def value_bytes(candidates: int, features: int) -> int:
    """Return the bytes of float64 that a body may have: twice the longest list's.

    So the error for a matrix of another bundle, or of a few candidates too many, names the difference.
    """
    return 2 * FLOAT64_BYTES * max(LEAST_VALUES, candidates * features)


def check_shape(length: int, width: int, schema: FeatureSchema, limit: int) -> None:
    """Raise unless a matrix of this shape can be ranked; called before its values are read.

    Raises:
        EmptyListError: if there are no candidates.
        TooLargeError: if there are more than ``limit``.
        SchemaMismatchError: if the width is not the schema's.
    """
    if length == 0:
        raise EmptyListError("the list holds no candidates: send at least one", ("features",))
    check_length(length, limit)
    if width != len(schema):
        raise SchemaMismatchError(
            f"the matrix has {width} columns, the bundle was fitted on {len(schema)} features: send all, in order",
            expected=schema.names,
            path=("features",),
        )


def to_candidates(
    matrix: Float[np.ndarray, "L D"],
    schema: FeatureSchema,
    ids: tuple[str, ...] | None = None,
    context: Mapping[str, Any] | None = None,
) -> CandidateList:
    """Convert a matrix whose shape was checked to a candidate list; float32 in C order is not copied.

    Raises:
        CandidateError: if a value is infinite as float32, a category is no code of the schema's, an id is repeated, or
            a context entry cannot be used.
    """
    with np.errstate(over="ignore"):
        converted = np.require(matrix, np.float32, ["C_CONTIGUOUS", "ALIGNED"])
    if matrix.dtype != converted.dtype:
        _check_fits(matrix, converted, schema)
    matrix = converted
    if schema.categorical:
        matrix = _with_codes(matrix, schema)
    return CandidateList(matrix, ids, check_context(dict(context), schema) if context else {})


def _check_fits(sent: Float[np.ndarray, "L D"], converted: Float[np.ndarray, "L D"], schema: FeatureSchema) -> None:
    """Raise CandidateError for a finite number that is none as float32."""
    large = np.isinf(converted) & np.isfinite(sent)
    if large.any():
        row, column = (int(i) for i in np.argwhere(large)[0])
        raise CandidateError(
            f"feature {schema.names[column]!r} does not fit float32 (at most {FLOAT32_MAX:.4g}), found "
            f"{sent[row, column]:g}",
            ("features", row, column),
        )


def _with_codes(matrix: Float[np.ndarray, "L D"], schema: FeatureSchema) -> Float[np.ndarray, "L D"]:
    """Check the codes of categories, and return the matrix with the code of missing ones in place of NaN."""
    columns = list(schema.categorical)
    known = [len(schema.features[column].categories) for column in columns]
    codes = matrix[:, columns]  # a copy
    missing = np.isnan(codes)
    wrong: Bool[np.ndarray, "L J"] = ~missing & ((codes < 0) | (codes > known) | (codes != np.floor(codes)))
    if wrong.any():
        row, place = (int(i) for i in np.argwhere(wrong)[0])
        raise CandidateError(
            f"feature {schema.names[columns[place]]!r} is a category: expected a code, a whole number from "
            f"{UNKNOWN_CODE} to {known[place]}, found {codes[row, place]:g}",
            ("features", row, columns[place]),
        )
    if not missing.any():
        return matrix
    codes[missing] = MISSING_CODE
    matrix = matrix.copy()
    matrix[:, columns] = codes
    return matrix
