"""What fits the document and the served bundle is answered, with 200 and nothing else, at every operation."""

import hypothesis
import pytest
import schemathesis
from jsonschema import Draft202012Validator

from listwright.ranking import bundle
from listwright.service import paths
from listwright.service.app import create_app
from listwright.service.bundles import folder
from listwright.service.settings import Settings
from listwright.service.wire.matrix_codecs import JSON_HEAD
from listwright.service.wire.schemas import Envelope
from support.http.binary_requests import INFER
from support.http.openapi import ADMIN, EVENTS, EXPLAIN, OPERATIONS, VALID, for_this_bundle
from support.service.asgi import asking
from support.service.bundles import make_bundle
from support.strategies import scale_examples

KEY = "a" * 20


ROW = [1, 2, 3, "A5"]
SPLIT_SOURCES = {"price": 1, "stars": 2, "bm25": 3, "carrier": "A5"}
INPUT = {"name": "features", "datatype": "FP32", "shape": [2, 4], "data": [1, 2, 3, 1] * 2}
IDS = {"name": "ids", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}
REFUSED = {
    "no input": {"inputs": []},
    "ids alone": {"inputs": [IDS]},
    "features twice": {"inputs": [INPUT, INPUT]},
    "no data": {"inputs": [{name: INPUT[name] for name in ("name", "datatype", "shape")}]},
    "data that are null": {"inputs": [INPUT | {"data": None}]},
    "no numbers": {"inputs": [INPUT | {"data": []}]},
    "text for numbers": {"inputs": [INPUT | {"data": ["1"] * 8}]},
    "a truth value for a number": {"inputs": [INPUT | {"data": [True] * 8}]},
    "a number beyond float32": {"inputs": [INPUT | {"data": [1e39] * 8}]},
    "rows and numbers": {"inputs": [INPUT | {"data": [[1, 2, 3, 1], 1, 2, 3, 1]}]},
    "two places": {"inputs": [INPUT | {"parameters": {"binary_data_size": 32}}]},
    "no bytes": {"inputs": [{**INPUT, "data": None, "parameters": {"binary_data_size": 0}}]},
    "text for a size": {"inputs": [{**INPUT, "data": None, "parameters": {"binary_data_size": "32"}}]},
    "another type": {"inputs": [INPUT | {"datatype": "INT64"}]},
    "the type of the other": {"inputs": [INPUT, IDS | {"datatype": "FP32"}]},
    "a batch axis": {"inputs": [INPUT | {"shape": [1, 2, 4]}]},
    "one axis": {"inputs": [INPUT | {"shape": [8]}]},
    "no candidate": {"inputs": [INPUT | {"shape": [0, 4]}]},
    "two axes of ids": {"inputs": [INPUT, IDS | {"shape": [2, 1]}]},
    "numbers for ids": {"inputs": [INPUT, IDS | {"data": [1, 2]}]},
    "an id twice": {"inputs": [INPUT, IDS | {"data": ["a", "a"]}]},
    "an endless id": {"inputs": [INPUT, IDS | {"data": ["a", "b" * 513]}]},
    "an output twice": {"inputs": [INPUT], "outputs": [{"name": "order"}] * 2},
    "a specialist of another ranker": {"inputs": [INPUT], "parameters": {"specialist": 0, "strategy": "qilcm"}},
    "a length of another list": {"inputs": [INPUT], "parameters": {"expect_candidates": 3}},
    "a huge number": {"inputs": [INPUT], "parameters": {"top_n": 2**53}},
    "rows, a specialist of another ranker": {"features": [ROW], "specialist": 0, "strategy": "first_stage"},
    "rows, a length of another list": {"features": [ROW], "expect_candidates": 2},
    "rows, a huge number": {"features": [ROW], "top_n": 2**53},
    "rows, an id too few": {"candidates": [{"id": "a", "features": SPLIT_SOURCES}, {"features": SPLIT_SOURCES}]},
    "rows, none": {"candidates": []},
    "rows, a matrix of none": {"features": []},
    "rows, both": {"candidates": [{"features": SPLIT_SOURCES}], "features": [ROW]},
    "rows, columns beside them": {"features": [ROW], "columns": {"price": [1], "stars": [1]}},
    "rows, columns of none": {"columns": {"price": [], "stars": []}},
    "rows, a column of one value": {"columns": {"price": 1, "stars": [1]}},
    "rows, names of columns": {"columns": {"price": [1], "stars": [1]}, "feature_names": ["price", "stars"]},
    "rows, columns of two lengths": {"columns": {"price": [1, 2], "stars": [1]}},
    "rows, ids beside candidates": {"candidates": [{"features": SPLIT_SOURCES}], "ids": ["a"]},
}
"""Whatever the bundle, no such body is ranked."""


IN_SCHEMA = {
    "no input",
    "text for a size",
    "a huge number",
    "rows, a huge number",
    "rows, none",
    "rows, a matrix of none",
    "rows, both",
    "rows, columns beside them",
    "rows, columns of none",
    "rows, a column of one value",
    "rows, names of columns",
    "rows, ids beside candidates",
}
"""Those that a schema refuses. The document has the other conditions in words: generators of clients fail on them."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_bundle_ranks_is_refused_by_the_service_and_where_it_can_by_the_schema(app, name):
    body, document = REFUSED[name], app.openapi()
    path, words = ("/rerank", "RerankRequest") if name.startswith("rows,") else (INFER, "InferRequest")
    with asking(create_app(app.service.settings, models=bundle.load(app.service.settings.bundle))) as client:
        assert client.post(path, json=body).status_code in (400, 404, 422)
    assert valid(document, words, body) != (name in IN_SCHEMA)


@pytest.mark.parametrize(
    ("words", "body"),
    [
        ("InferRequest", {"inputs": [INPUT, IDS]}),
        ("InferRequest", {"inputs": [IDS, INPUT | {"data": [[1, None, 3, 1], [1, 2, 3, 1]]}]}),
        ("InferRequest", {"inputs": [{**INPUT, "data": None, "parameters": {"binary_data_size": 32, "x": 1}}]}),
        (
            "RerankRequest",
            {"candidates": [{"features": SPLIT_SOURCES, "id": None}], "specialist": 0, "strategy": "srm"},
        ),
        ("RerankRequest", {"candidates": [{"features": SPLIT_SOURCES, "id": "a"}], "specialist": 0}),
        ("RerankRequest", {"columns": {"price": [1, None], "carrier": ["A5", True]}, "ids": ["a", "b"]}),
    ],
)
def test_what_is_ranked_it_does(app, words, body):
    assert valid(app.openapi(), words, body)


def valid(document, words, body):
    found = {"$ref": f"#/components/schemas/{words}", "components": document["components"]}
    return Draft202012Validator(found).is_valid(body)


@pytest.mark.parametrize("path", paths.INFER)
def test_a_head_of_no_bytes_is_neither_taken_nor_allowed(app, path):
    named = {parameter["name"]: parameter for parameter in app.openapi()["paths"][path]["post"]["parameters"]}
    assert named[JSON_HEAD]["schema"]["minimum"] == 1
    with asking(create_app(app.service.settings, models=bundle.load(app.service.settings.bundle))) as client:
        assert client.post(INFER, json={"inputs": [INPUT]}, headers={JSON_HEAD: "0"}).status_code == 400


BESIDE = Envelope.model_fields.keys() - {"context"}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/rerank", BESIDE),
        (EXPLAIN, BESIDE | {"candidate", "against", "explain_top_n", "explain_budget"}),
        *((path, (BESIDE | {"binary_data_output"}) - {"model", "version"}) for path in paths.INFER),
        ("/admin/rollback", {"model"}),
        ("/admin/reload", set()),
        (EVENTS, set()),
    ],
)
def test_what_is_documented_for_a_query_is_read(app, path, words):
    found = app.openapi()["paths"][path]["post"].get("parameters", [])
    assert {parameter["name"] for parameter in found if parameter["in"] == "query"} == words


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    return document_of(tmp_path_factory.mktemp("models"))


@pytest.fixture
def operated(tmp_path_factory):
    """One of its own: what it serves changes."""
    return document_of(tmp_path_factory.mktemp("models"))


def document_of(models):
    """The document of a service that has gone from version 6 to version 7."""
    for seed, version in enumerate(("6", "7")):
        make_bundle(
            models / "shop" / version,
            cutoff=5,
            specialists=3,
            seed=seed,
            probability="relevance",
            goals={"margin": 0.3},
        )
    folder.point(models, "shop", "6")
    app = create_app(Settings(models=models, max_candidates=50, admin_key=KEY, poll_s=0, queue_ms=600_000))
    app.openapi_schema = for_this_bundle(app.openapi(), has_goals=True)
    document = schemathesis.openapi.from_asgi("/openapi.json", app)
    folder.point(models, "shop", "7")
    assert asked(document["/admin/reload"]["POST"].Case()).status_code == 200
    return document


def asked(case):
    return case.call_and_validate(headers={"Authorization": f"Bearer {KEY}"} if case.path in ADMIN else {})


def check(operation):
    """schemathesis over ASGI, all checks, and nothing but 200."""
    sent = []

    @hypothesis.settings(max_examples=scale_examples(60), suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=operation.as_strategy(generation_mode=VALID))
    def answered(case):
        assert asked(case).status_code == 200
        sent.append(case)

    answered()
    assert sent


@pytest.mark.hypothesis
@pytest.mark.parametrize(("method", "path"), [one for one in OPERATIONS if one[1] not in (*ADMIN, EVENTS, EXPLAIN)])
def test_what_fits_is_answered(served, method, path):
    check(served[path][method])


@pytest.mark.hypothesis
@pytest.mark.parametrize("path", ADMIN)
def test_the_operator_is_obeyed(operated, path):
    check(operated[path]["POST"])
