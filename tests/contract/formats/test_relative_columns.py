"""List-relative columns in serving: every wire format gives the bits of the kernel, and requests stay as they are."""

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from support.http.binary_requests import MATRIX, NPY, ask, body, features, saved
from support.http.rerank_requests import ROWS, by_name, by_position, matrix
from support.service.asgi import serving
from support.service.bundles import RELATIVE, make_bundle


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7", relative=True, also="mlp")


@pytest.fixture(scope="module")
def live(folder):
    with serving(folder) as client:
        yield client


@pytest.mark.parametrize("strategy", ["qilcm", "mlp", "first_stage"])
def test_every_wire_format_gives_the_bits_of_the_kernel(live, folder, strategy):
    expected = bundle.load(folder).reranker.rerank(CandidateList(MATRIX), strategy=strategy)
    wanted = {"strategy": strategy, "raw_scores": True}
    for request in (by_name(**wanted), by_position() | wanted, matrix() | wanted):
        answer = live.post("/rerank", json=request).json()
        np.testing.assert_array_equal(np.float32(answer["scores"]), np.float32(expected.scores))
        first = {result["index"]: result["first_stage_score"] for result in answer["results"]}
        assert [first[n] for n in range(len(ROWS))] == expected.first_stage_scores.tolist()
    query = {"strategy": strategy, "raw_scores": "true"}
    numpy_sent = live.post("/rerank", content=saved(MATRIX), headers=NPY, params=query).json()
    np.testing.assert_array_equal(np.float32(numpy_sent["scores"]), np.float32(expected.scores))
    tensors, _ = ask(live, body([features()], MATRIX.tobytes(), parameters={"strategy": strategy}))
    np.testing.assert_array_equal(tensors["first_stage_scores"], np.float32(expected.first_stage_scores))


def test_requests_do_not_hold_them(live):
    info = live.get("/info").json()
    assert info["relative"] == [column.name for column in RELATIVE]
    assert [feature["name"] for feature in info["features"]] == ["price", "stars", "bm25", "carrier"]
    refused = live.post("/rerank", json=by_name([row | {"price (z in list)": 0.0} for row in ROWS]))
    assert refused.status_code == 409
    assert "price (z in list)" in refused.text


def test_drift_names_them(live):
    live.post("/rerank", json=by_name())
    text = live.get("/metrics").text
    assert 'feature="price (rank in list)"' in text
