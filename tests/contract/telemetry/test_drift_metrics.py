"""Drift, from a request to a scrape of a real process."""

import httpx
import pytest

from support.http.processes import Process
from support.service.bundles import make_bundle
from support.waiting import until

BODY = {"features": [[1.0, 2.0, None, "A5"], [2.0, 1.0, None, "never seen"], [3.0, 1.0, 1.0, None]]}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = make_bundle(tmp_path_factory.mktemp("drift") / "shop" / "1", specialists=2, margin=0.0)
    service = Process(bundle=folder).wait_until_ready()
    yield service
    service.stop()


@pytest.mark.nightly
def test_what_a_request_holds_is_counted_after_its_answer(service):
    assert httpx.post(service.url + "/rerank", json=BODY).status_code == 200
    of = 'model="shop",version="1"'
    until(lambda: f"listwright_anomaly_score_count{{{of}}} 1.0" in httpx.get(service.url + "/metrics").text)
    text = httpx.get(service.url + "/metrics").text
    assert f"listwright_drift_candidates_total{{{of}}} 3.0" in text
    assert f'listwright_drift_values_total{{feature="bm25",kind="missing",{of}}} 2.0' in text
    assert f'listwright_drift_values_total{{feature="carrier",kind="unknown",{of}}} 1.0' in text
    assert "never seen" not in text
