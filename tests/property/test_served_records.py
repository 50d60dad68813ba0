"""Every record comes back as it was, and a file that is cut anywhere gives a prefix of its records."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from listwright.ranking.served_log import files
from listwright.ranking.served_log.encoding import long_bytes
from listwright.ranking.served_log.record import Intervention, RuleEffect, ShadowRanking
from support.served import as_bytes, served_record

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLACES = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
NUMBERS = st.floats(width=64)


@st.composite
def served(draw):
    """Any record of three columns."""
    length = draw(st.integers(1, 6))
    scores = hnp.arrays(np.float64, length, elements=NUMBERS)
    places = draw(st.permutations(range(length)))[: draw(st.integers(0, length))]
    return served_record(
        length=length,
        query_id=draw(TEXTS),
        served_at=draw(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))),
        unit=draw(st.none() | TEXTS),
        candidate_ids=tuple(draw(st.lists(TEXTS, min_size=length, max_size=length))),
        features=draw(hnp.arrays(np.float32, (length, 3), elements=st.floats(width=32))),
        first_stage_scores=draw(scores),
        scores=draw(scores),
        order=np.array(places, dtype=np.int64),
        top_n=draw(st.none() | st.integers(1, 2**31 - 1)),
        route=draw(st.none() | TEXTS),
        degraded=draw(st.none() | TEXTS),
        experiment=draw(st.none() | TEXTS),
        teams=draw(st.none() | st.lists(TEXTS, max_size=3).map(tuple)),
        intervention=draw(st.none() | st.builds(Intervention, TEXTS, PLACES, st.floats(0.0, 1.0))),
        shadow=draw(st.none() | st.builds(ShadowRanking, TEXTS, PLACES, TEXTS)),
        timings_ms=draw(st.dictionaries(TEXTS, st.floats(allow_nan=False), max_size=3)),
        request_id=draw(TEXTS),
        probabilities=draw(st.none() | scores),
        weights=draw(st.none() | st.dictionaries(TEXTS, st.floats(allow_nan=False), max_size=3)),
        rules=draw(st.lists(st.builds(RuleEffect, TEXTS, TEXTS, PLACES), max_size=2).map(tuple)),
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("served") / "a.avro"


@given(st.lists(served(), min_size=1, max_size=5), st.integers(1, 3))
def test_records_come_back_to_the_byte(path, sent, block_records):
    files.write(path, sent, block_records=block_records)
    found = list(files.records([path]))
    assert [as_bytes(record) for record in found] == [as_bytes(record) for record in sent]


@pytest.mark.nightly
def test_a_cut_at_every_byte_gives_a_prefix(tmp_path):
    sent, blocks = [served_record(number) for number in range(6)], []
    for count in (1, 3, 6):
        files.write(path := tmp_path / "a.avro.part", sent[:count], block_records=1)
        blocks.append(path.read_bytes())
    whole, names, least = path.read_bytes(), [record.query_id for record in sent], 0
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        found = [record.query_id for record in files.records([path])]
        assert found == names[: len(found)]
        assert len(found) >= least, "a longer prefix of the file holds no fewer records"
        least = len(found)
    assert least == 5
    ends = [0] * 6
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        ends[min(5, files.frame(path).records - 1)] = end
    assert ends[5] == len(whole)


@given(st.integers(0, 2**62))
def test_lengths_are_coded_as_fastavro_codes_them(number):
    import io

    import fastavro

    file = io.BytesIO()
    fastavro.schemaless_writer(file, {"type": "long"}, number)
    assert long_bytes(number) == file.getvalue()


@given(
    st.lists(TEXTS, min_size=1, max_size=4, unique=True), st.dictionaries(TEXTS, st.lists(TEXTS).map(tuple), max_size=2)
)
def test_names_of_columns_come_back(path, names, categories):
    features = np.zeros((4, len(names)), np.float32)
    files.write(path, [served_record(names=tuple(names), features=features, categories=categories)])
    (found,) = files.records([path])
    assert found.feature_names == tuple(names)
    assert found.categories == categories
    assert json.loads(json.dumps(names)) == list(found.feature_names)
