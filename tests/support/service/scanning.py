"""The JSON scanner beside the general way of reading a body."""

import numpy as np
import pytest
from pydantic_core import ValidationError, from_json

from listwright.ranking.features import Feature, FeatureSchema
from listwright.service.wire.json_codec import plan_of
from listwright.service.wire.json_matrix import to_candidates
from listwright.service.wire.schemas import RerankRequest

scan = pytest.importorskip(
    "listwright.service.wire.json_fast",
    reason="service.wire.json_fast is not built: there was no C compiler",
    exc_type=ImportError,
)
SCHEMA = FeatureSchema(
    features=(
        Feature(name="price"),
        Feature(name="größe", missing_in_training=True),
        Feature(name="carrier", kind="categorical", categories=("A5", "Ü")),
    )
)
DEFAULTS = FeatureSchema(
    features=(
        Feature(name="price"),
        Feature(name="größe", default=7.25),
        Feature(name="carrier", kind="categorical", categories=("A5", "Ü"), default="Ü"),
    )
)
MODES = {
    (columns, ignores): plan_of(columns, ignores=ignores) for columns in (SCHEMA, DEFAULTS) for ignores in (False, True)
}
MOST = 50


def generally(body, columns=SCHEMA, ignored=None):
    request = RerankRequest.model_validate(from_json(body, allow_inf_nan=False))
    return to_candidates(request, columns, ignored)


def faults(body):
    """Where the model says that a body is at fault."""
    try:
        RerankRequest.model_validate(from_json(body, allow_inf_nan=False))
    except ValidationError as error:
        return [fault["loc"] for fault in error.errors()]
    return []


def agree(body, columns=SCHEMA, *, ignores=False):
    """Whether the scanner accepts; if so, that the general way does too, and finds the same."""
    try:
        rest, matrix, ids, lacking, unknown = scan.scan(body, MODES[columns, ignores], MOST)
    except scan.GivenUp:
        return False
    if faults(body):
        assert faults(body) == faults(rest)
        return True
    ignored = {} if ignores else None
    expected = generally(body, columns, ignored)
    assert unknown == tuple(ignored or ())
    assert lacking == _lacks(from_json(body), columns)
    assert np.array_equal(matrix, expected.features, equal_nan=True)
    codes = list(columns.categorical)  # a missing category is told from an unknown one by the sign
    assert np.array_equal(np.signbit(matrix[:, codes]), np.signbit(expected.features[:, codes]))
    assert matrix.dtype == np.float32
    left = from_json(rest, allow_inf_nan=False)
    sent = from_json(body)
    assert {name: value for name, value in left.items() if name not in ("candidates", "features")} == {
        name: value for name, value in sent.items() if name not in ("candidates", "features")
    }
    assert (None if ids is None else tuple(ids)) == (expected.ids if "candidates" in sent else None)
    return True


def _lacks(body, columns):
    rows = [row["features"] for row in body.get("candidates", ())]
    named = [row for row in rows if isinstance(row, dict)] + [body.get("feature_names", columns.names)]
    return any(not set(names) >= set(columns.names) for names in named)
