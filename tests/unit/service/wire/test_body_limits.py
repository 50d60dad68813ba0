"""How large a body each format reads: whatever the longest list takes, and no multiple of it."""

import gc
import io
import json
import weakref

import numpy as np
import pytest

from listwright.ranking.bundle import Bundle
from listwright.ranking.reranker import Reranker
from listwright.service.bundles.models import Models
from listwright.service.settings import Settings
from listwright.service.wire import npy
from listwright.service.wire import open_inference as tensors
from listwright.service.wire.json_codec import LEAST_VALUES, Bounds, JsonBounds
from listwright.service.wire.schemas import MAX_ID
from support.service.bundles import schema
from support.stand_ins import standing_in

CANDIDATES = 20_000
FEATURES, SPELLING = len(schema()), schema().spelling
LONGEST = np.zeros((CANDIDATES, FEATURES))


def served(columns):
    return Models({"shop": standing_in(Bundle, reranker=standing_in(Reranker, schema=columns))})


@pytest.fixture
def bounds():
    return JsonBounds(Settings(bundle="shop/1", max_candidates=CANDIDATES))


def saved(matrix):
    file = io.BytesIO()
    np.save(file, matrix)
    return file.getvalue()


def inference(matrix):
    """A body whose ids are as long as they may be, in four bytes a character."""
    ids = "\N{GRINNING FACE}".encode() * MAX_ID
    raw = matrix.tobytes() + (len(ids).to_bytes(4, "little") + ids) * len(matrix)
    inputs = [
        {"name": "features", "shape": list(matrix.shape), "datatype": "FP64"},
        {"name": "ids", "shape": [len(matrix)], "datatype": "BYTES"},
    ]
    return json.dumps({"inputs": inputs}).encode() + raw


def test_the_longest_list_has_room_and_three_of_them_do_not():
    limit = npy.body_limit(CANDIDATES, FEATURES).size
    assert len(saved(LONGEST)) < limit < 3 * len(saved(LONGEST))
    wider = np.zeros((CANDIDATES, FEATURES + 1))
    assert len(saved(wider)) < limit, "it hears which features the bundle has"


def test_the_longest_tensors_have_room_and_twice_as_many_do_not():
    longest = len(inference(LONGEST))
    assert longest < tensors.body_limit(Bounds(CANDIDATES, FEATURES, SPELLING)).size < 2 * longest


def test_any_body_may_have_some_values():
    least = LEAST_VALUES * LONGEST.itemsize
    assert npy.body_limit(1, FEATURES).size > least
    assert tensors.body_limit(Bounds(1, FEATURES, SPELLING)).size > least


def test_json_has_the_bounds_of_what_is_served_now(bounds):
    narrow, wide = served(schema(categorical=False)), served(schema())
    for models in (narrow, wide, narrow):
        found, limit = bounds.of(models)
        assert (found.candidates, found.features) == (CANDIDATES, len(models.schemas[0]))
        assert limit.size == found.size
        assert f"{CANDIDATES} candidates (LISTWRIGHT_MAX_CANDIDATES) with {found.features} features" in limit.why


def test_they_are_counted_once_for_each_value(bounds):
    models = served(schema())
    assert bounds.of(models)[0] is bounds.of(models)[0]


def test_what_was_served_before_is_not_kept_for_them(bounds):
    models = served(schema())
    bounds.of(models)
    gone = weakref.ref(models)
    del models
    gc.collect()
    assert gone() is None
