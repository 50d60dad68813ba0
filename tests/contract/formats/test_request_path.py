"""How many files of the service a reader opens to follow one request: twelve, from the app to the answer.

The app is called without a socket, so the files of the transport are not among them. Without the compiled scanner, the
reader of JSON in Python takes two more.
"""

from collections import Counter

import pytest

from listwright.ranking import bundle
from listwright.service.app import create_app
from listwright.service.settings import Settings
from listwright.service.wire.compiled import json_fast
from support.service.asgi import asking
from support.service.bundles import make_bundle
from support.service.trace import traced

pytestmark = pytest.mark.nightly  # counts files, and says nothing of the answer

BODY = {
    "candidates": [
        {"id": "sku-1", "features": {"price": 12.5, "stars": 4.5, "carrier": "A5", "bm25": None}},
        {"id": "sku-2", "features": {"price": 9.0, "stars": 3.0, "carrier": "B2", "bm25": 3.1}},
    ]
}
MOST = 13 if json_fast is not None else 14
AFTER = ("api/pipeline.py", "_note")
"""The answer is sent: it is counted now."""


@pytest.fixture(scope="module")
def entries(tmp_path_factory):
    """What the second plain JSON request enters; the first makes what is made once."""
    folder = make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7")
    with asking(create_app(Settings(bundle=folder), loaded=bundle.load(folder))) as client:

        async def ask():
            assert (await client.asynchronous.post("/rerank", json=BODY)).status_code == 200
            with traced() as trace:
                assert (await client.asynchronous.post("/rerank", json=BODY)).status_code == 200
            return trace.entries

        return client.portal.call(ask)


def test_a_request_enters_few_files_none_more_than_twice(entries):
    line = Counter(file for file, _ in entries[: entries.index(AFTER)])
    assert len(line) <= MOST, line
    assert max(line.values()) <= 2, line
    assert line["api/rerank.py"] == line["admission/body.py"] == 1, "the trace sees what a request enters"


def test_counting_the_answer_enters_one_more(entries):
    line, after = (
        {file for file, _ in entries[: entries.index(AFTER)]},
        {file for file, _ in entries[entries.index(AFTER) :]},
    )
    assert after - line == {"telemetry/metrics.py"}
