"""Rules of a request and of the watched file, in answers of every format, explanations, the served log and metrics."""

import io
import json
import random

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from listwright.ranking import bundle
from listwright.ranking.served_log import files
from listwright.service import watched_file
from listwright.service.app import create_app
from listwright.service.rules import MOST_BYTES, parse
from listwright.service.settings import Settings
from listwright.service.watched_file import WatchedFileError
from listwright.service.wire import json_codec
from support.http import binary_requests
from support.http.problem_bodies import check
from support.http.rerank_requests import ROWS, by_name, matrix, without_timings
from support.service.asgi import serving
from support.service.bundles import make_bundle
from support.waiting import until

NPY = {"content-type": "application/x-npy", "accept": "application/x-npy"}
PIN = {"name": "campaign", "action": "pin", "id": "sku-6", "place": 1}
EXCLUDE = {"action": "exclude", "ids": ["sku-0", "sku-1"]}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7", cutoff=5)


@pytest.fixture(scope="module")
def client(shop):
    with serving(shop) as client:
        yield client


def toml(*rules, model="shop"):
    def text(value):
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(name)} = {text(one)}" for name, one in value.items()) + "}"
        return json.dumps(value)

    lines = []
    for rule in rules:
        lines += [f"[[{json.dumps(model)}]]", *(f"{name} = {text(value)}" for name, value in rule.items())]
    return "\n".join(lines)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(watched_file, "LOOK_S", 0.01)
    return tmp_path / "rules.toml"


def replace(file, text):
    hidden = file.with_name("new")
    hidden.write_bytes(text if isinstance(text, bytes) else text.encode())
    hidden.replace(file)
    return file


def ranked(client, *rules, status=200, body=None, **more):
    answer = client.post("/rerank", json=(body or by_name()) | ({"rules": list(rules)} if rules else {}) | more)
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer


def order(answer):
    return [result["index"] for result in answer["results"]]


def test_rules_without_effect_change_no_byte(client):
    plain = ranked(client)
    for rules in ([], [{"action": "exclude", "ids": ["another"]}], [{**PIN, "id": "another"}]):
        for body in (by_name(), matrix()):
            answer = client.post("/rerank", json=body | {"rules": rules}).json()
            assert json.dumps(without_timings(answer)) == json.dumps(without_timings(plain))


@pytest.mark.parametrize("form", [by_name, matrix])
def test_an_answer_with_rules(client, form):
    before = ranked(client)
    boost = {"action": "boost", "where": {"price": {"min": 0}}, "factor": 2}
    after = ranked(client, PIN, EXCLUDE, boost, body=form())
    assert order(after) == [6] + [index for index in order(before) if index not in (0, 1, 6)]
    assert [result["rank"] for result in after["results"]] == list(range(1, 6))
    assert [after["ranks"][index] for index in (6, 0, 1)] == [1, None, None]
    assert [after["scores"][index] for index in (0, 1)] == [None, None]
    assert "campaign" in after["results"][0]["rules"]
    scores = [result["relevance_score"] for result in after["results"]]
    assert scores == sorted(scores, reverse=True), "sorting by score gives the order"
    by_name_of_rule = {one["name"]: one for one in after["meta"]["rules"]}
    assert by_name_of_rule["campaign"] == {"name": "campaign", "action": "pin", "candidates": 1, "reason": None}
    assert by_name_of_rule["rule 2"]["candidates"] == 2
    schema = client.app.openapi()
    words = {"$ref": "#/components/schemas/RerankResponse", "components": schema["components"]}
    Draft202012Validator(words).validate(after)


def test_everything_excluded(client):
    answer = ranked(client, {"action": "exclude", "ids": [f"sku-{n}" for n in range(len(ROWS))]})
    assert (answer["results"], set(answer["scores"]), set(answer["ranks"])) == ([], {None}, {None})


def test_a_whole_number_may_have_a_point(client):
    cap = {"action": "cap", "by": "price", "most": 2, "first": 5}
    written = ranked(client, {**PIN, "place": 1.0}, {**cap, "most": 2.0, "first": 5.0})
    assert order(written) == order(ranked(client, {**PIN, "place": 1}, cap))


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ([PIN, {**PIN, "id": "sku-5"}], "$.rules[1]"),
        ([{**PIN, "place": 8}], "$.rules[0]"),
        ([{**PIN, "place": 0}], "$.rules[0].place"),
        ([{**PIN, "colour": 1}], "$.rules[0].colour"),
        ([{"action": "promote"}], "$.rules[0]"),
        ([{"action": "exclude"}], "$.rules[0]"),
        ([{"action": "exclude", "ids": [], "where": {"price": 1}}], "$.rules[0]"),
        ([{"action": "exclude", "where": {"price": {"min": None}}}], "$.rules[0].where.price"),
        ([{"action": "exclude", "where": {"price": [[1]]}}], "$.rules[0].where.price"),
        ([{"action": "exclude", "where": {"price": 1e39}}], "$.rules[0].where.price"),
        ([{"action": "exclude", "where": {"price": {"min": 9, "max": 1}}}], "$.rules[0].where.price"),
        ([{"action": "boost", "ids": ["sku-1"], "factor": 0.5}], "$.rules[0].factor"),
        ([{"action": "diversify", "by": ["price"], "first": 101}], "$.rules[0].first"),
        ([PIN, {**PIN, "name": "a\u202eb"}], "$.rules[1].name"),
        ([{**PIN, "name": "x" * 101}], "$.rules[0].name"),
        ([{**PIN, "name": "a\nb"}], "$.rules[0].name"),
        ([{"action": "exclude", "ids": []}] * 101, "$.rules"),
        (["pin"], "$.rules[0]"),
        ({"action": "pin"}, "$.rules"),
    ],
)
def test_what_a_request_gets_wrong_has_its_path(client, rules, path):
    answer = client.post("/rerank", json=by_name() | {"rules": rules})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == path


def test_a_rule_that_the_bundle_does_not_fit_is_a_mismatch(client):
    answer = client.post(
        "/rerank", json=by_name() | {"rules": [EXCLUDE, {"action": "exclude", "where": {"colour": 1}}]}
    )
    check(answer, 409, "schema-mismatch")
    assert answer.json()["errors"][0]["path"] == "$.rules[1]"


def test_a_condition_may_be_spelled_out(client):
    for short, whole in ((1.0, {"values": [1.0]}), ([1.0, 2.0], {"values": [1.0, 2.0], "min": None})):
        answers = [ranked(client, {"action": "exclude", "where": {"price": one}}) for one in (short, whole)]
        assert without_timings(answers[0]) == without_timings(answers[1])
        assert None in answers[0]["ranks"]


def test_optional_members_that_are_null_are_absent(client):
    rule = {**EXCLUDE, "name": None, "where": None}
    assert without_timings(ranked(client, rule)) == without_timings(ranked(client, EXCLUDE))
    cap = {"action": "cap", "by": "carrier", "most": 1, "first": None}
    assert without_timings(ranked(client, cap)) == without_timings(ranked(client, {**cap, "first": 10}))


def test_names_twice_in_a_rule_are_refused(client):
    body = json.dumps(by_name() | {"rules": [EXCLUDE]}).replace('"action"', '"action": "pin", "action"')
    check(client.post("/rerank", content=body, headers={"content-type": "application/json"}), 422, "repeated-name")


def test_explanations_know_the_rules(shop):
    with serving(shop, explain=True) as client:
        body = by_name() | {"rules": [PIN, EXCLUDE]}
        answer = client.post("/explain", json=body | {"explain_top_n": 2}).json()
        served = client.post("/rerank", json=body).json()
        assert without_timings(answer["ranking"]) == without_timings(served)
        first, second = answer["explanations"]
        assert first["candidate"]["index"] == 6
        assert first["rules"] == {"rank": 1, "names": ["campaign"]}
        assert second["rules"] == {"rank": 2, "names": []}
        (left_out,) = client.post("/explain", json=body | {"candidate": "sku-0"}).json()["explanations"]
        assert left_out["rules"] == {"rank": None, "names": ["rule 2"]}
        (plain,) = client.post("/explain", json=by_name() | {"candidate": 0}).json()["explanations"]
        assert "rules" not in plain
        check(client.post("/explain", json=body | {"rules": [PIN, PIN], "candidate": 0}), 422, "candidate")


def test_a_file_is_watched_and_a_wrong_one_refused(shop, file, caplog):
    replace(file, toml(PIN))
    with serving(shop, rules=file) as client:
        assert order(ranked(client))[0] == 6
        for spoiled in (
            b"[[shop]",
            b"#" * (MOST_BYTES + 1),
            b"a = " + b"[" * 9000,
            b"\xff",
            toml(PIN, {**EXCLUDE, "ids": [PIN["id"]]}).encode(),
        ):
            replace(file, spoiled)
            until(lambda: "listwright_rules_refused 1.0" in client.get("/metrics").text)
            assert order(ranked(client))[0] == 6
            replace(file, toml(PIN))
            until(lambda: "listwright_rules_refused 0.0" in client.get("/metrics").text)
        file.unlink()
        until(lambda: "listwright_rules_refused 1.0" in client.get("/metrics").text)
        assert order(ranked(client))[0] == 6
        replace(file, toml({**PIN, "id": "sku-5"}))
        until(lambda: order(ranked(client))[0] == 5)
        replace(file, "")
        plain = ranked(client)
        until(lambda: "rules" not in ranked(client)["meta"])
        assert plain["ranks"] is not None
    assert "refused" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        None,
        "[[shop]]",
        '[[shop]]\naction = "exclude"\nids = []\nnew = 1',
        "shop = 1",
        toml(*[{"action": "exclude", "ids": []}] * 1001),
        toml({"action": "diversify", "by": ["price"]}, {"action": "diversify", "by": ["price"]}),
    ],
)
def test_a_wrong_file_is_an_error_at_start(shop, tmp_path, text):
    path = tmp_path / "rules.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(WatchedFileError, match="LISTWRIGHT_RULES"):
        create_app(Settings(bundle=shop, rules=path), models=bundle.load(shop))


def test_the_file_comes_first_and_a_request_adds(shop, file, caplog):
    replace(file, toml(PIN, {"action": "exclude", "where": {"colour": 1}}) + "\n" + toml(EXCLUDE, model="another"))
    with serving(shop, rules=file) as client:
        answer = ranked(client, {"action": "exclude", "ids": ["sku-0"]})
        assert order(answer)[0] == 6
        assert answer["ranks"][0] is None
        assert [(one["name"], one["candidates"]) for one in answer["meta"]["rules"]] == [
            ("file rule 2", 0),
            ("rule 1", 1),
            ("campaign", 1),
        ]
        both = ranked(client, {**PIN, "name": "mine", "id": "sku-0"}, status=422).json()
        assert "'campaign'" in both["detail"]
        assert "'mine'" in both["detail"]
        too_short = ranked(client, body={"candidates": by_name()["candidates"][:1]})
        assert order(too_short) == [0]
        until(lambda: "rules of 'another' have no effect" in caplog.text)
        assert "file rule 2 of shop is not applied: the bundle has no feature 'colour'" in caplog.text
        metrics = client.get("/metrics").text
        assert 'listwright_rules_total{action="pin",model="shop",outcome="applied"} 1.0' in metrics


def test_the_file_may_call_a_model_by_its_alias(shop, file, caplog):
    replace(file, toml(PIN, model="bazaar"))
    with serving(shop, rules=file, model_name="bazaar") as client:
        assert order(ranked(client))[0] == 6
        assert "no effect" not in caplog.text
        replace(file, toml(PIN, model="bazaar") + "\n" + toml(EXCLUDE))
        until(lambda: ranked(client)["ranks"][0] is None)
        assert order(ranked(client))[0] != 6, "the rules of the name itself"


def test_results_name_no_more_rules_than_an_answer_has_room_for(client, monkeypatch):
    monkeypatch.setattr(json_codec, "MOST_NAMED", 10)
    everywhere = {"action": "boost", "where": {"price": {"min": -1e9}}, "factor": 2}
    answer = ranked(client, *[everywhere] * 9)
    assert sum(len(result.get("rules", ())) for result in answer["results"]) == 10
    assert len(answer["meta"]["rules"]) == 9


def test_the_file_acts_on_every_format(shop, file):
    """A pin goes by id, which a ``.npy`` file has not."""
    replace(file, toml({"action": "exclude", "where": {"price": {"max": 0.25}}}, {**PIN, "id": "sku-5"}))
    array, left_out = binary_requests.MATRIX, [1, 2, 6]
    ids = {"name": "ids", "datatype": "BYTES", "shape": [len(ROWS)], "data": binary_requests.IDS}
    tensors = binary_requests.body([binary_requests.features(), ids], array.tobytes())
    with serving(shop, rules=file) as client:
        answer = ranked(client)
        found, _ = binary_requests.ask(client, tensors)
        content = client.post("/rerank", content=binary_requests.saved(array), headers=NPY).content
        nameless = ranked(client, body={"features": matrix()["features"]})
    assert order(answer)[0] == 5
    assert order(nameless) == sorted(order(answer), key=nameless["ranks"].__getitem__)
    assert [index for index, rank in enumerate(answer["ranks"]) if rank is None] == left_out
    assert found["order"].tolist() == order(answer)
    assert found["ids"] == [f"sku-{index}" for index in order(answer)]
    assert found["ranks"].tolist() == [rank or 0 for rank in answer["ranks"]]
    for scores, expected in ((found["scores"], order(answer)), (np.load(io.BytesIO(content)), order(nameless))):
        assert np.flatnonzero(np.isnan(scores)).tolist() == left_out
        assert np.argsort(-scores, kind="stable")[:4].tolist() == expected


def test_a_pin_is_in_the_served_log(shop, tmp_path):
    with serving(shop, served_log=tmp_path) as client:
        answers = [ranked(client, PIN, EXCLUDE, query_id="with", top_n=3), ranked(client, query_id="without")]
        whole = ranked(client, EXCLUDE, query_id="whole")
    records = {one.query_id: one for one in files.records(files.log_files(tmp_path, unfinished=False))}
    assert records["with"].order.tolist() == order(answers[0])
    assert [(one.name, one.action, one.candidates) for one in records["with"].rules] == [
        ("rule 2", "exclude", (0, 1)),
        ("campaign", "pin", (6,)),
    ]
    assert records["without"].rules == ()
    assert records["whole"].order.tolist() == order(whole)
    assert np.array_equal(records["with"].scores, records["without"].scores, equal_nan=True)


def test_hostile_rules_are_answered_or_refused(client):
    rng = random.Random(5)
    parts = [
        None,
        "pin",
        "exclude",
        "cap",
        "boost",
        "x" * 5000,
        "\x00",
        0,
        -1,
        1e308,
        10**400,
        True,
        [],
        {},
        [[[]]],
        {"min": []},
    ]
    words = ["name", "action", "id", "ids", "where", "place", "factor", "by", "most", "first", "weight", "\ud7ff"]
    for _ in range(300):
        rules = [
            {rng.choice(words): rng.choice(parts) for _ in range(rng.randint(0, 5))}
            | (
                {"action": rng.choice(["pin", "exclude", "boost", "bury", "cap", "diversify"])}
                if rng.random() < 0.7
                else {}
            )
            for _ in range(rng.randint(0, 4))
        ]
        assert client.post("/rerank", json=by_name() | {"rules": rules}).status_code in (200, 400, 409, 413, 422)
    many = [{"action": "exclude", "ids": [f"sku-{n}"]} for n in range(5000)]
    assert client.post("/rerank", json=by_name() | {"rules": many}).status_code in (413, 422)


def test_rules_that_came_before_act_as_new_ones_do(client, shop, monkeypatch):
    monkeypatch.setattr(json_codec, "_recent_rules", {})
    first = ranked(client, PIN, EXCLUDE)
    assert len(json_codec._recent_rules) == 1
    assert without_timings(ranked(client, PIN, EXCLUDE)) == without_timings(first)
    assert without_timings(ranked(client, PIN, EXCLUDE, body=matrix())) == without_timings(first)
    problem = ranked(client, PIN, EXCLUDE, status=422, top_n=0).json()
    assert [fault["path"] for fault in problem["errors"]] == ["$.top_n"]
    with serving(shop) as other:  # another bundle, which may have other columns
        assert without_timings(ranked(other, PIN, EXCLUDE)) == without_timings(first)
    for number in range(json_codec.MOST_RECENT + 9):
        ranked(client, {**PIN, "name": f"n{number}"})
    ranked(client, {"action": "exclude", "ids": ["x" * 500] * 100})
    assert len(json_codec._recent_rules) == json_codec.MOST_RECENT
    assert all(len(text) <= json_codec.RECENT_BYTES for text in json_codec._recent_rules)


def test_an_operator_may_refuse_rules_of_requests(shop, file):
    replace(file, toml(PIN))
    with serving(shop, rules=file, max_rules=0, explain=True) as client:
        assert order(ranked(client))[0] == 6
        for path in ("/rerank", "/explain"):
            answer = client.post(path, json=by_name() | {"rules": [EXCLUDE]})
            assert check(answer, 422, "candidate")["errors"][0]["path"] == "$.rules"
        assert order(ranked(client, rules=[]))[0] == 6
    with serving(shop, max_rules=1) as client:
        ranked(client, EXCLUDE)
        assert "LISTWRIGHT_MAX_RULES" in ranked(client, EXCLUDE, PIN, status=422).json()["detail"]


def test_a_request_compares_no_more_than_it_may(client):
    conditions = {name: {"min": -1} for name in ("price", "stars", "bm25")}
    many = [{"action": "boost", "where": conditions, "factor": 2}] * 100
    body = {"candidates": [{"features": row["features"]} for row in (by_name()["candidates"] * 150)[:1000]]}
    assert len(ranked(client, *many, body=body)["results"]) == 1000
    wide = [{**one, "where": {**conditions, "price": [0.25] * 10}} for one in many]
    assert len(ranked(client, *wide)["results"]) == len(ROWS)
    answer = ranked(client, *wide, status=422, body=body)
    assert check(answer, 422, "candidate")["errors"][0]["path"] == "$.rules"


def test_the_time_that_rules_take_is_left_for_them(client):
    pace = client.app.service.current.models.default_bundle.reranker.pace
    noted = dict(pace._times)
    for power in range(20):
        for _ in range(2):
            pace.note("rules", 2**power, 60.0)
    try:
        late, plain = (ranked(client, *rules, timeout_ms=30_000) for rules in ([PIN, EXCLUDE], []))
    finally:
        pace._times = noted
    assert (late["meta"]["status"], late["meta"]["stage_reached"]) == ("degraded", "input_order")
    assert order(late)[0] == 6, "rules act all the same"
    assert plain["meta"]["status"] == "ok"


def test_pins_of_a_file_may_share_a_place(shop, file):
    replace(file, toml({**PIN, "id": "another"}, {**PIN, "name": "second"}, {**PIN, "name": "third", "id": "sku-5"}))
    with serving(shop, rules=file) as client:
        answer = ranked(client)
    assert order(answer)[0] == 6
    assert [(one["name"], one["reason"] is None) for one in answer["meta"]["rules"]] == [
        ("second", True),
        ("third", False),
    ]


@pytest.mark.parametrize(
    ("rule", "path", "meant"),
    [
        ({"action": "exclude", "id": ["sku-1"]}, "$.rules[0].id", "ids"),
        ({**PIN, "palce": 1}, "$.rules[0].palce", "place"),
        ({"action": "exclude", "where": {"price": {"mn": 1}}}, "$.rules[0].where.price.mn", "min"),
        ({"action": "boots", "ids": [], "factor": 2}, "$.rules[0]", "boost"),
    ],
)
def test_a_misspelled_word_of_a_rule_is_told_with_the_one_that_is_meant(client, rule, path, meant):
    faults = {fault["path"]: fault["message"] for fault in ranked(client, rule, status=422).json()["errors"]}
    assert faults[path].endswith(f"did you mean {meant}?")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("action = 'exlude'\nids = ['a']", "unknown action 'exlude': did you mean exclude?"),
        ("action = 'exclude'\nidz = ['a']", "unknown field 'idz': did you mean ids?"),
        ("action = 'cap'\nby = 'x'\nmost = 'two'", 'expected a whole number, found "two"'),
    ],
)
def test_a_mistake_of_a_file_is_told_as_one_of_a_request(text, says):
    with pytest.raises(WatchedFileError) as error:
        parse(f"[[shop]]\n{text}\n".encode())
    assert says in str(error.value)
