"""The compiled encoder of served records writes fastavro's bytes."""

import math
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking import extensions
from listwright.ranking.served import encoding
from listwright.ranking.served.record import Intervention, ServedRecord, ShadowRanking

pytestmark = pytest.mark.skipif(extensions.served_record is None, reason="no C compiler built the encoder")

texts = st.text(st.characters(codec="utf-8"), max_size=70)
optional = st.none() | texts
places = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
numbers = st.floats(width=64, allow_nan=True)


@st.composite
def served_records(draw):
    length, width = draw(st.integers(0, 9)), draw(st.integers(1, 3))
    shown = draw(st.integers(0, length))
    floats = draw(st.lists(numbers, min_size=2 * length, max_size=2 * length))
    return ServedRecord(
        query_id=draw(texts),
        served_at=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw(st.integers(-(10**15), 10**16))),
        unit=draw(optional),
        bundle=draw(texts),
        fingerprint=draw(texts),
        candidate_ids=tuple(draw(st.lists(texts, min_size=length, max_size=length))),
        features=np.arange(length * width, dtype=np.float32).reshape(length, width),
        first_stage_scores=np.array(floats[:length]),
        scores=np.array(floats[length:]),
        order=np.array(draw(st.lists(st.integers(0, 2**31 - 1), min_size=shown, max_size=shown)), dtype=np.int64),
        strategy=draw(texts),
        feature_names=("a",) * width,
        request_id=draw(texts),
        top_n=draw(st.none() | st.integers(0, 2**31 - 1)),
        route=draw(optional),
        degraded=draw(optional),
        experiment=draw(optional),
        arm=draw(optional),
        teams=draw(st.none() | st.lists(texts, max_size=4).map(tuple)),
        intervention=draw(st.none() | st.builds(Intervention, texts, places, numbers)),
        shadow=draw(st.none() | st.builds(ShadowRanking, texts, places, texts)),
        timings_ms=draw(st.dictionaries(texts, numbers.filter(lambda value: not math.isinf(value)), max_size=4)),
    )


@given(st.lists(served_records(), min_size=1, max_size=4))
def test_both_encoders_write_the_same_bytes(records):
    compiled, plain = encoding.CompiledBlock(), encoding.FastavroBlock()
    for record in records:
        compiled.add(record)
        plain.add(record)
    assert compiled.view() == plain.view()
    assert (compiled.records, compiled.size) == (plain.records, plain.size) == (len(records), len(compiled.view()))


@given(served_records(), st.sampled_from(["query_id", "unit", "request_id", "strategy", "arm"]))
def test_a_lone_surrogate_is_refused_and_nothing_crashes(record, field):
    setattr(record, field, "\ud800")
    refused(record, UnicodeEncodeError)


@given(served_records(), st.sampled_from(["query_id", "bundle", "unit"]))
def test_what_is_no_text_is_refused(record, field):
    setattr(record, field, 7)
    refused(record, TypeError)


@given(served_records())
def test_places_that_are_no_numbers_are_refused(record):
    record.shadow = SimpleNamespace(bundle="shop/1", order=("first",), status="ok")
    refused(record, TypeError)


def refused(record, error):
    block = encoding.CompiledBlock()
    with pytest.raises(error):
        block.add(record)
    assert (block.records, block.size) == (0, 0)
