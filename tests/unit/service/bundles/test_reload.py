"""Rolling out and back: what is taken from the models folder, under which names."""

import shutil

from listwright.service.bundles import folder, reload
from support.service.bundles import make_bundle
from support.service.swapping import BODY, run, serving, tell, until_version, version


def test_a_new_version_is_served_and_the_old_one_kept(models):
    async def scenario():
        async with serving(models) as (_, client):
            assert await version(client) == "1"
            folder.point(models, "shop", "2")
            assert await version(client) == "1", "nothing changes by itself when polling is off"
            answer = await tell(client)
            assert answer.status_code == 200
            (served,) = answer.json()["models"]
            assert (served["model"], served["version"], served["kept"]) == ("shop", "2", "1")
            assert await version(client) == "2"
            assert await version(client, version="1") == "1"
            (served,) = (await tell(client)).json()["models"]
            assert (served["version"], served["kept"]) == ("2", "1"), "another look changes nothing"
            metrics = (await client.get("/metrics")).text
            assert 'listwright_bundle_info{engine="compiled",model="shop",version="2"} 1.0' in metrics
            assert 'listwright_bundle_info{engine="compiled",model="shop",version="1"}' not in metrics
            assert 'listwright_reloads_total{model="shop",outcome="swapped"} 1.0' in metrics

    run(scenario)


def test_polling_finds_it_too(models):
    async def scenario():
        async with serving(models, poll_s=0.01) as (_, client):
            folder.point(models, "shop", "2")
            await until_version(client, "2")

    run(scenario)


def test_waking_is_looking(models):
    """What SIGHUP does."""

    async def scenario():
        async with serving(models) as (app, client):
            folder.point(models, "shop", "2")
            app.service.reloader.wake()
            await until_version(client, "2")

    run(scenario)


def test_rolling_back_is_instant_and_lasts(models, monkeypatch):
    async def scenario():
        async with serving(models) as (_, client):
            folder.point(models, "shop", "2")
            await tell(client)

            def loading(*_):
                raise AssertionError("it is in memory")

            monkeypatch.setattr(reload, "load_named", loading)
            for expected in ("1", "2", "1"):
                (served,) = (await tell(client, "rollback", model="shop")).json()["models"]
                assert served["version"] == await version(client) == expected
                assert folder.read(models).versions == {"shop": expected}, "the other workers read it there"

    run(scenario)


def test_without_a_version_before_there_is_no_rolling_back(models):
    async def scenario():
        async with serving(models) as (_, client):
            answer = await tell(client, "rollback")
            assert answer.status_code == 409
            assert "has served no other version of 'shop'" in answer.json()["detail"]
            assert (await tell(client, "rollback", model="other")).status_code == 404

    run(scenario)


def test_a_folder_that_cannot_be_written_says_what_to_do(models, monkeypatch):
    def read_only(*_):
        raise OSError(30, "Read-only file system")

    async def scenario():
        async with serving(models) as (_, client):
            folder.point(models, "shop", "2")
            await tell(client)
            monkeypatch.setattr(folder, "point", read_only)
            answer = await tell(client, "rollback")
            assert answer.status_code == 409
            assert "(Read-only file system): write '1' there yourself" in answer.json()["detail"]
            assert await version(client) == "2"

    run(scenario)


def test_names_and_aliases_come_and_go(models, library):
    async def scenario():
        async with serving(models) as (_, client):
            shutil.copytree(library / "other" / "1", models / "other" / "1")
            folder.point(models, "other", "1")
            (models / "default").mkdir()
            (models / "default" / "ALIAS").write_text("shop\n")
            served = (await tell(client)).json()["models"]
            assert [(m["model"], m["aliases"], m["default"]) for m in served] == [
                ("other", [], False),
                ("shop", ["default"], True),
            ]
            for model, expected in (("other", "other"), ("default", "shop"), ("shop", "shop")):
                assert (await client.post("/rerank", json=BODY | {"model": model})).json()["model"] == expected
                assert (await client.get("/info", params={"model": model})).json()["model"] == expected
            assert (await client.get("/info", params={"model": "nothing"})).status_code == 404
            shutil.rmtree(models / "default")
            await tell(client)
            assert (await client.post("/rerank", json=BODY)).status_code == 404, "two, and none is the default"
            assert (await client.get("/info")).json()["model"] == "other"
            shutil.rmtree(models / "other")
            await tell(client)
            assert await version(client) == "1"

    run(scenario)


def test_a_bad_alias_leaves_the_old_one(models):
    async def scenario():
        (models / "best").mkdir()
        (models / "best" / "ALIAS").write_text("shop")
        async with serving(models) as (_, client):
            (models / "best" / "ALIAS").write_text("nowhere")
            assert "best/: ALIAS says 'nowhere'" in (await tell(client)).json()["detail"]
            assert await version(client, model="best") == "1"

    run(scenario)


def test_a_problem_names_the_fingerprint_of_the_bundle_that_was_asked(models, library):
    async def scenario():
        make_bundle(models / "narrow" / "1", categorical=False)
        folder.point(models, "narrow", "1")
        async with serving(models) as (_, client):
            for name in ("narrow", "shop"):
                bad = {"candidates": [{"features": {"unknown": 1}}], "model": name}
                problem = (await client.post("/rerank", json=bad)).json()
                info = (await client.get("/info", params={"model": name})).json()
                assert problem["fingerprint"] == info["fingerprint"]

    run(scenario)
