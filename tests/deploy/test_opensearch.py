"""The files for OpenSearch: what ML Commons makes of them and of 120 hits is what the same rows get.

The substitution is ML Commons' own: ``ml_inference`` with ``one_to_one: false`` collects a field of each hit's source into
a list, Gson writes it, and ``${parameters.NAME}`` of the request's body is replaced by it as text.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from listwright.ranking import bundle
from support.service.asgi import serving

ROOT = Path(__file__).resolve().parents[2]
FOLDER, DEMO = ROOT / "deploy" / "opensearch", ROOT / "models" / "demo" / "1"
CONNECTOR, PIPELINE = (json.loads((FOLDER / name).read_text("utf-8")) for name in ("connector.json", "pipeline.json"))
(ACTION,) = CONNECTOR["actions"]
INFERENCE, RERANK = (processor for step in PIPELINE["response_processors"] for processor in step.values())
SCHEMA = bundle.load(DEMO).reranker.schema


@pytest.fixture(scope="module")
def service():
    with serving(DEMO) as client:
        yield client


def hits(length, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(length, 10)) * 10.0 ** rng.integers(-12, 12, size=10)
    texts = rng.choice(["v1", "v3", "v5", 'a "new" <one> & it\'s = é', "v2"], size=(length, 2)).tolist()
    found = []
    for n, (row, (c1, c2)) in enumerate(zip(numbers.tolist(), texts, strict=True)):
        source = {f"n{place}": value for place, value in enumerate(row, 1)} | {
            "c1": c1,
            "c2": c2,
            "title": f"offer {n}",
        }
        found.append({"_id": str(n), "_score": float(length - n), "_source": source | {"n3": n % 7}})
    return found


def at_path(document, path):
    """The value at a JSON path of names."""
    for name in path.removeprefix("$.").split("."):
        document = document[name]
    assert document is not None, "the processor takes null for a missing field"
    return document


def by_gson(values):
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return re.sub("[<>&='\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def rendered(template, found, search=None, **more):
    """The template with the parameters that the processor makes of the hits and of the search."""
    (inputs,) = INFERENCE["input_map"]
    values = {
        name: at_path(search, path.replace("_request.", ""))
        if "_request." in path
        else [at_path(hit["_source"], path) for hit in found]
        for name, path in (inputs | more).items()
    }
    parameters = CONNECTOR["parameters"] | {name: by_gson(value) for name, value in values.items()}
    text = re.sub(r"\$\{parameters\.(\w+)\}", lambda match: parameters[match[1]], template)
    return re.sub(r"\$\{credential\.(\w+)\}", lambda match: CONNECTOR["credential"][match[1]], text)


def predicted(service, found):
    url = rendered(ACTION["url"], found)
    assert url == "http://listwright:8000/rerank"
    headers = {name: rendered(value, found) for name, value in ACTION["headers"].items()}
    body = re.sub(
        r'"timeout_ms": \d+', '"strategy": "qilcm"', rendered(ACTION["request_body"], found)
    )  # a busy machine is late
    answer = getattr(service, ACTION["method"].lower())("/rerank", content=body.encode(), headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def reranked(found, answer):
    """The ids of the hits after both processors."""
    ((field, output),) = INFERENCE["output_map"][0].items()
    assert field == RERANK["by_field"]["target_field"]
    values = answer[output]
    assert len(values) == len(found), "else each hit would get the whole list"
    scored = [(np.float32(value), hit["_id"]) for value, hit in zip(values, found, strict=True)]
    return [name for _, name in sorted(scored, key=lambda pair: -pair[0])]  # a stable sort, as Java's of objects


def test_with_the_size_of_the_search_only_a_whole_list_is_ranked(service):
    text = (FOLDER / "README.md").read_text("utf-8")
    entry, member = (
        re.search(f"`({name}: [^`]*)`", text)[1] for name in ('"expect_candidates"', r'\\"expect_candidates\\"')
    )
    body = ACTION["request_body"].replace("{", "{" + json.loads(f'"{member}"') + ", ", 1)
    found, mapping = hits(120), json.loads("{" + entry + "}")
    for arrived, status in ((found, 200), (found[:60], 422), (found + found[:1], 422)):
        content = rendered(body, arrived, {"size": 120}, **mapping).encode()
        answer = service.post("/rerank", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == status, answer.text


def test_the_model_is_registered_without_batching():
    text = (FOLDER / "README.md").read_text("utf-8")
    registered = json.loads(re.search(r"_register\?deploy=true\".*?-d '(.*?)'", text, re.DOTALL)[1])
    assert registered.keys() == {"name", "function_name", "connector_id"}
    assert "text_docs" not in ACTION["request_body"]
    assert "model_input" not in INFERENCE, "by default it is an object of parameters, which no batching touches"


@pytest.mark.parametrize("length", [1, 2, 120])
def test_hits_get_the_scores_and_the_order_that_their_rows_get(service, length):
    found = hits(length)
    answer = predicted(service, found)
    rows = [{name: hit["_source"][name] for name in SCHEMA.names} for hit in found]
    expected = service.post(
        "/rerank", json={"candidates": [{"features": row} for row in rows], "raw_scores": True, "strategy": "qilcm"}
    ).json()
    assert answer["scores"] == expected["scores"]
    assert answer["ranks"] == expected["ranks"]
    assert reranked(found, answer) == [str(result["index"]) for result in expected["results"]]


def test_some_of_the_hits_are_below_the_cutoff(service):
    """And the first stage orders the hits otherwise, so an order that no processor changed would be noticed."""
    answer = predicted(service, hits(120))
    assert {result["stage"] for result in answer["results"]} == {"second", "first"}
    assert answer["ranks"] != sorted(answer["ranks"])


def test_the_files_name_each_feature_once_in_each_place():
    (inputs,) = INFERENCE["input_map"]
    columns = re.search(r'"columns": \{(.*?\})\}', ACTION["request_body"])[1]
    assert re.findall(r'"(\w+)": \$\{parameters\.(\w+)\}', columns) == [(name, name) for name in SCHEMA.names]
    assert list(inputs) == list(SCHEMA.names)
    assert INFERENCE["one_to_one"] is False
    assert INFERENCE["ignore_failure"] is RERANK["ignore_failure"] is True


def test_the_readme_names_the_files_and_the_endpoint():
    text = (FOLDER / "README.md").read_text("utf-8")
    assert all(f"@{path.name}" in text for path in FOLDER.glob("*.json"))
    (trusted,) = json.loads(re.search(r"endpoints_regex\": (\[.*?\])", text)[1])
    assert re.fullmatch(trusted, rendered(ACTION["url"], hits(1)))
