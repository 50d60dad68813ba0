"""The recipe of ``docs/operations.md``: callers and bundle get a feature in either order, and no request is refused."""

import shutil

import pytest

from listwright.service.bundles import folder
from support.service.bundles import make_bundle
from support.service.swapping import run, serving, tell

OLD = {"price": 1.5, "stars": 2.0, "bm25": 0.25}
NEW = {**OLD, "carrier": "B2"}
DEFAULT = {"carrier": "A5"}


def rows(features, **second):
    """Two candidates, which differ by price and by ``second``."""
    return {"candidates": [{"features": features}, {"features": {**features, "price": 3.0, **second}}]}


def matrix(features, **second):
    other = {**features, "price": 3.0, **second}
    return {"feature_names": list(features), "features": [list(features.values()), list(other.values())]}


def columns(features, **second):
    body = matrix(features, **second)
    return {"columns": dict(zip(body["feature_names"], zip(*body["features"], strict=True), strict=True))}


def spaced(features, **second):
    """The general way reads what the scanner gives up, an escape for one."""
    return {**rows(features, **second), "id": "\\"}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    root = tmp_path_factory.mktemp("library")
    make_bundle(root / "shop" / "1", categorical=False)
    make_bundle(root / "shop" / "2", defaults=DEFAULT)
    return root


@pytest.fixture
def models(library, tmp_path):
    shutil.copytree(library / "shop", tmp_path / "shop")
    folder.point(tmp_path, "shop", "1")
    return tmp_path


async def ask(client, body):
    answer = await client.post("/rerank", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return found["version"], found["scores"], found["meta"]["ignored"]


@pytest.mark.parametrize("form", [rows, matrix, columns, spaced])
def test_in_either_order(models, form):
    async def scenario():
        async with serving(models, unknown_features="ignore") as (_, client):
            before = await ask(client, form(OLD))
            assert before[::2] == ("1", [])
            early = await ask(client, form(NEW))
            assert early == ("1", before[1], ["carrier"]), "a caller that is early is ranked as before"
            folder.point(models, "shop", "2")
            await tell(client)
            late = await ask(client, form(OLD))
            assert late == ("2", (await ask(client, form(NEW | DEFAULT)))[1], []), "one that is late gets the default"
            after = await ask(client, form(NEW, carrier="C7"))
            assert after[::2] == ("2", [])
            assert after[1] != late[1]
            metrics = (await client.get("/metrics")).text
            assert 'listwright_ignored_features_total{model="shop",version="1"} 1.0' in metrics
            info = (await client.get("/info")).json()
            assert info["unknown_features"] == "ignore"
            assert [(f["name"], f["default"], f["required"]) for f in info["features"]][3] == ("carrier", "A5", False)

    run(scenario)


@pytest.mark.parametrize("form", [rows, matrix, columns, spaced])
def test_without_the_setting_callers_that_are_early_are_refused(models, form):
    async def scenario():
        async with serving(models) as (_, client):
            answer = await client.post("/rerank", json=form(NEW))
            assert answer.status_code == 409
            assert "unknown features 'carrier'" in answer.json()["detail"]
            folder.point(models, "shop", "2")
            await tell(client)
            for features in (OLD, NEW):
                assert (await ask(client, form(features)))[0] == "2"

    run(scenario)


@pytest.mark.parametrize("form", [rows, spaced])
def test_the_default_stands_for_what_one_candidate_lacks(models, form):
    """Beside another that does not, as the second stage leaves out what all share."""

    async def scenario():
        folder.point(models, "shop", "2")
        async with serving(models) as (_, client):
            for context in ({}, {"carrier": "B2"}):
                lacks = await ask(client, form(OLD, carrier="C7") | {"context": context})
                said = {
                    value: await ask(client, form({**OLD, "carrier": value}, carrier="C7"))
                    for value in (None, "A5", "B2")
                }
                assert [value for value, found in said.items() if found == lacks] == ["B2" if context else "A5"]

    run(scenario)


def test_what_the_context_says_goes_before_the_default(models):
    async def scenario():
        folder.point(models, "shop", "2")
        async with serving(models, unknown_features="ignore") as (_, client):
            for form in (rows, matrix, columns):
                said = await ask(client, form(OLD) | {"context": {"carrier": "B2"}})
                assert said[1] == (await ask(client, form(NEW)))[1]
                null = await ask(client, form({**OLD, "carrier": None}, carrier="A5"))
                assert null[1] != (await ask(client, form({**OLD, "carrier": "A5"})))[1], "null is missing"

    run(scenario)


def test_a_name_is_logged_once_and_cut_and_the_rest_is_not(models, caplog):
    many = {f"n{number}": 1.0 for number in range(40)}

    async def scenario():
        async with serving(models, unknown_features="ignore") as (_, client):
            for _ in range(3):
                long = await ask(client, rows({**OLD, "x" * 300: 1}))
                assert long[2] == ["x" * 200 + "…"]
            found = await ask(client, matrix({**OLD, **many}))
            assert found[2] == list(many)[:32]
            for block in range(10):
                await ask(client, matrix({**OLD, **{f"b{block}-{number}": 1 for number in range(30)}}))

    run(scenario)
    named = [record.message for record in caplog.records if "does not know feature" in record.message]
    assert len(named) == len(set(named)) == 100
    assert sum("further unknown features are not logged" in record.message for record in caplog.records) == 1


def test_values_of_unknown_features_may_be_anything(models):
    async def scenario():
        async with serving(models, unknown_features="ignore") as (_, client):
            plain = (await ask(client, rows(OLD)))[1]
            for value in (None, True, "text", [1, [2]], {"deep": {}}, 1e300):
                for form in (rows, matrix, columns):
                    assert (await ask(client, form({**OLD, "odd": value})))[1:] == (plain, ["odd"])

    run(scenario)


def test_a_body_of_nothing_but_unknown_features_is_bounded(models):
    async def scenario():
        async with serving(models, unknown_features="ignore") as (_, client):
            body = rows(OLD | {f"n{number}": 1 for number in range(20_000)})
            assert (await client.post("/rerank", json=body)).status_code == 413
            body = rows({f"n{number}": 1 for number in range(30)})
            assert "lacks the required 'price', 'stars'" in (await client.post("/rerank", json=body)).json()["detail"]

    run(scenario)
