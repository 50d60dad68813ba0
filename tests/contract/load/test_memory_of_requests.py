"""What a request held goes when its answer has left, and does not wait for a garbage collection."""

import gc

import pytest

from listwright.ranking.candidates import CandidateList
from listwright.service.admission.body import Body
from support.service.asgi import serving
from support.service.bundles import make_bundle

GOOD = {"feature_names": ["price", "stars", "carrier", "bm25"], "features": [[1.0, 2.0, "A5", None]] * 3}
BAD = GOOD | {"features": [[1.0, 2.0, "A5", "text"]] * 3}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with serving(make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7")) as client:
        yield client


def kept():
    """Bodies and candidate lists that something still holds."""
    return sum(isinstance(thing, (Body, CandidateList)) for thing in gc.get_objects())


@pytest.mark.parametrize(("body", "status"), [(GOOD, 200), (BAD, 422)])
def test_nothing_of_a_request_waits_for_the_garbage_collector(client, body, status):
    assert client.post("/rerank", json=GOOD).status_code == 200  # what is made once
    gc.collect()
    gc.disable()
    try:
        before = kept()
        for _ in range(5):
            assert client.post("/rerank", json=body).status_code == status
        assert kept() <= before
    finally:
        gc.enable()
