"""The examples of docs/search-engines.md that need no engine run as they stand."""

import json
import re
from pathlib import Path

import pytest

from contract.conftest import Process
from support.http.rerank_requests import ROWS
from support.service.asgi import serving
from support.service.bundles import make_bundle

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "search-engines.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7", cutoff=5)


def test_columns_as_engines_send_them_are_ranked(shop):
    body = json.loads(re.search(r"-d '(.*?)'\n```", PAGE, re.S)[1])
    with serving(shop) as client:
        assert sorted(client.post("/rerank", json=body).json()["ranks"]) == [1, 2]


def test_one_text_per_hit_is_one_column(tmp_path):
    """The template of Elasticsearch's custom service, and what its parser reads."""
    template = json.loads(re.search(r'"request": ("\{.*?\}")`', PAGE)[1])
    body = template.replace("${input}", json.dumps(["A5", "B2"]))
    folder = make_bundle(tmp_path / "shop" / "7", defaults={"price": 1.0, "stars": 1.0})
    with serving(folder) as client:
        answer = client.post("/rerank", json=json.loads(body.replace("sku", "carrier"))).json()
    for path in re.findall(r'"\$\.results\[\*\]\.(\w+)"', PAGE):
        assert all(path in result for result in answer["results"])


@pytest.mark.nightly
def test_an_application_reranks_and_falls_back_to_the_engines_order(shop):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    assert ADDRESS in code
    assert "timeout=0.1" in code
    service, names = Process(bundle=shop).wait_until_ready(), {}
    exec(code.replace(ADDRESS, service.url).replace("timeout=0.1", "timeout=60"), names)
    hits = [f"hit {place}" for place in range(len(ROWS))]
    order = names["listwright"].rerank(ROWS).order
    assert names["rerank"](hits, ROWS, "q-1") == [hits[place] for place in order] != hits
    service.stop()
    assert names["rerank"](hits, ROWS, "q-1") == hits
