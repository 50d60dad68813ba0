"""Swapping bundles while serving: what is taken, what is refused, and what goes on meanwhile."""

import asyncio
import gc
import json
import shutil
import threading
import weakref
from contextlib import asynccontextmanager

import httpx
import pytest

from bundles import make_bundle
from ranking import bundle
from service import folder, reload
from service.app import create_app
from service.settings import Settings

KEY = "0123456789abcdef"
BODY = {"features": [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"], [-1.0, 0.5, None, "C7"]]}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Bundles to copy from."""
    root = tmp_path_factory.mktemp("library")
    for seed in (1, 2, 3):
        make_bundle(root / "shop" / str(seed), seed=seed)
    make_bundle(root / "other" / "1", seed=4)
    make_bundle(root / "shop" / "broken", seed=5, graph="broken")
    return root


@pytest.fixture
def models(library, tmp_path):
    """A folder that serves shop/1 and holds shop/2 and shop/3."""
    for version in "123":
        shutil.copytree(library / "shop" / version, tmp_path / "shop" / version)
    folder.point(tmp_path, "shop", "1")
    return tmp_path


@asynccontextmanager
async def serving(models, **settings):
    """The application and a client of it."""
    app = create_app(Settings(models=models, max_candidates=100, **({"poll_s": 0, "admin_key": KEY} | settings)))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        yield app, client


def run(scenario):
    """The result of a coroutine function, in an event loop of its own."""
    return asyncio.run(asyncio.wait_for(scenario(), 120))


async def tell(client, what="reload", **parameters):
    return await client.post(f"/admin/{what}", params=parameters, headers={"Authorization": f"Bearer {KEY}"})


async def version(client, **named):
    answer = await client.post("/rerank", json=BODY | named)
    assert answer.status_code == 200, answer.text
    return answer.json()["version"]


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
            metrics = (await client.get("/metrics")).text
            assert 'listwright_bundle_info{model="shop",version="2"} 1.0' in metrics
            assert 'version="1"' not in metrics
            assert 'listwright_reloads_total{model="shop",outcome="swapped"} 1.0' in metrics

    run(scenario)


def test_polling_finds_it_too(models):
    async def scenario():
        async with serving(models, poll_s=0.01) as (_, client):
            folder.point(models, "shop", "2")
            while await version(client) == "1":
                await asyncio.sleep(0.01)

    run(scenario)


def test_waking_is_looking(models):
    """What SIGHUP does."""

    async def scenario():
        async with serving(models) as (app, client):
            folder.point(models, "shop", "2")
            app.state.watch.wake()
            while await version(client) == "1":
                await asyncio.sleep(0.01)

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


FILES = ("first_stage.txt", "golden.jsonl", "manifest.json", "qilcm.onnx")


def truncated(bad, name):
    (bad / name).write_bytes((bad / name).read_bytes()[:-20])


def emptied(bad, name):
    (bad / name).write_bytes(b"")


def altered(bad, name):
    content = bytearray((bad / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bad / name).write_bytes(content)


def missing(bad, name):
    (bad / name).unlink()


def resealed(bad, change):
    """Change the bundle, and make its hashes fit."""
    change(bad)
    manifest = bundle.parse((bad / "manifest.json").read_bytes(), bad)
    bundle.seal(bad, manifest, [entry.name for entry in manifest.files])


def newer(bad):
    values = json.loads((bad / "manifest.json").read_text())
    (bad / "manifest.json").write_text(json.dumps(values | {"format_version": 99}))


def golden_mismatch(bad):
    lines = (bad / "golden.jsonl").read_text().splitlines()
    golden = json.loads(lines[-1])
    golden["scores"][0] += 1.0
    (bad / "golden.jsonl").write_text("\n".join([*lines[:-1], json.dumps(golden)]) + "\n")


def nan_weights(bad):
    import onnx
    from onnx import numpy_helper

    model = onnx.load(bad / "qilcm.onnx")
    for tensor in model.graph.initializer:
        if tensor.name == "w":
            values = numpy_helper.to_array(tensor).copy()
            values[0] = float("nan")
            tensor.CopyFrom(numpy_helper.from_array(values, "w"))
    onnx.save(model, bad / "qilcm.onnx")


def of_another_model(bad):
    (bad / "first_stage.txt").write_text("tree\n")


BAD = {
    **{f"{spoil.__name__} {name}": (spoil, name) for spoil in (truncated, emptied, altered, missing) for name in FILES},
    "newer format": (lambda bad, _: newer(bad), None),
    "golden mismatch": (resealed, golden_mismatch),
    "NaN weights": (resealed, nan_weights),
    "no model at all": (resealed, of_another_model),
}
SAYS = {
    "newer format": "manifest.json: bundle format 99 is newer",
    "golden mismatch": "golden.jsonl: line 6: scores are",
    "NaN weights": "golden.jsonl: line 1: the second stage gave nan",
    "no model at all": "first_stage.txt: not a LightGBM text model",
}


def test_a_bad_bundle_is_refused_and_the_old_one_serves_on(models, library, caplog):
    """Each way to be bad, one after the other, in one service."""

    async def scenario():
        async with serving(models) as (_, client):
            for number, (how, (spoil, what)) in enumerate(BAD.items(), start=1):
                shutil.rmtree(models / "shop" / "2")
                shutil.copytree(library / "shop" / "2", models / "shop" / "2")
                spoil(models / "shop" / "2", what)
                folder.point(models, "shop", "2")
                answer = await tell(client)
                assert answer.status_code == 409, how
                assert answer.json()["type"] == "urn:listwright:reload-refused"
                says = SAYS.get(how) or f"shop/2: {what}"
                assert says in answer.json()["detail"], how
                assert str(models) not in answer.text
                assert await version(client) == "1"
                assert (await client.get("/readyz")).status_code == 200
                info = (await client.get("/info")).json()
                (refused,) = info["refused"]
                assert (refused["model"], refused["version"]) == ("shop", "2")
                assert refused["reason"] in answer.json()["detail"]
                metrics = (await client.get("/metrics")).text
                assert 'listwright_bundle_refused_info{model="shop",' in metrics
                assert f'listwright_reloads_total{{model="shop",outcome="refused"}} {number}.0' in metrics
                said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
                assert len(said) == number
                assert said[-1].startswith("refused shop/2: ")
                assert said[-1].endswith("; 1 serves on")
            shutil.rmtree(models / "shop" / "2")
            shutil.copytree(library / "shop" / "2", models / "shop" / "2")
            assert (await tell(client)).json()["refused"] == []
            assert await version(client) == "2"
            assert "listwright_bundle_refused_info{" not in (await client.get("/metrics")).text

    run(scenario)


def test_a_bundle_that_fails_when_warmed_up_is_refused(models, library):
    """Its golden lists are all right, and plain lists are not."""

    async def scenario():
        async with serving(models) as (_, client):
            shutil.copytree(library / "shop" / "broken", models / "shop" / "broken")
            folder.point(models, "shop", "broken")
            answer = await tell(client)
            assert "broken: cannot rank 1 candidates of zeros by auto" in answer.json()["detail"]
            assert await version(client) == "1"

    run(scenario)


def test_a_bundle_lies_under_its_own_name(models, library):
    async def scenario():
        async with serving(models) as (_, client):
            shutil.copytree(library / "shop" / "2", models / "shop" / "4")
            folder.point(models, "shop", "4")
            detail = (await tell(client)).json()["detail"]
            assert "manifest.json: says shop/2: a bundle lies under its own name" in detail

    run(scenario)


def test_even_a_bug_of_ours_does_not_end_what_is_served(models, monkeypatch, caplog):
    def bug(*_):
        raise ZeroDivisionError

    async def scenario():
        async with serving(models) as (_, client):
            monkeypatch.setattr(reload, "load_named", bug)
            folder.point(models, "shop", "2")
            answer = await tell(client)
            assert "shop/2: loading raised ZeroDivisionError; the log has it all" in answer.json()["detail"]
            assert await version(client) == "1"

    run(scenario)
    assert [record for record in caplog.records if record.exc_info]


def test_what_was_refused_is_tried_again_when_it_changes_or_is_asked_for(models, monkeypatch):
    tried = []
    load = reload.load_named

    def counted(root, name, version, most):
        tried.append(version)
        return load(root, name, version, most)

    async def scenario():
        monkeypatch.setattr(reload, "load_named", counted)
        async with serving(models) as (app, client):
            manifest = (models / "shop" / "2" / "manifest.json").read_bytes()
            (models / "shop" / "2" / "manifest.json").unlink()
            folder.point(models, "shop", "2")
            for _ in range(3):
                await app.state.watch.reload(again=False)
            assert tried == ["2"], "polling does not load the same bad bundle for ever"
            assert (await tell(client)).status_code == 409
            assert tried == ["2", "2"]
            (models / "shop" / "2" / "manifest.json").write_bytes(manifest)  # written last: now it is whole
            await app.state.watch.reload(again=False)
            assert await version(client) == "2"

    run(scenario)


def test_a_pointer_in_the_middle_of_being_written_changes_nothing(models):
    async def scenario():
        async with serving(models) as (app, client):
            (models / "shop" / "CURRENT").write_text("")
            await app.state.watch.reload(again=False)
            assert await version(client) == "1"
            assert "CURRENT says ''" in (await client.get("/info")).json()["refused"][0]["reason"]
            (models / "shop" / "CURRENT").write_text("2")
            await app.state.watch.reload(again=False)
            assert await version(client) == "2"

    run(scenario)


def test_a_folder_that_is_gone_changes_nothing(models, tmp_path_factory):
    """A mount that failed must not stop the service."""

    async def scenario():
        async with serving(models) as (_, client):
            shutil.move(models / "shop", models / ".away")
            assert "holds no NAME/CURRENT" in (await tell(client)).json()["detail"]
            away = shutil.move(models, tmp_path_factory.mktemp("away") / "models")
            assert "cannot be read: No such file or directory" in (await tell(client)).json()["detail"]
            assert await version(client) == "1"
            metrics = (await client.get("/metrics")).text
            assert 'listwright_bundle_refused_info{model="*",reason="the models folder cannot be read' in metrics
            shutil.move(away, models)
            shutil.move(models / ".away", models / "shop")
            assert (await tell(client)).json()["refused"] == []

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


def test_serving_goes_on_while_a_bundle_is_loaded(models, monkeypatch):
    """Loading hangs until requests have been answered."""
    answered = threading.Event()
    load = reload.load_named

    def slow(*arguments):
        assert answered.wait(60)
        return load(*arguments)

    async def scenario():
        monkeypatch.setattr(reload, "load_named", slow)
        async with serving(models) as (_, client):
            folder.point(models, "shop", "2")
            reloading = asyncio.create_task(tell(client))
            for _ in range(5):
                assert await version(client) == "1"
            answered.set()
            assert (await reloading).status_code == 200
            assert await version(client) == "2"

    run(scenario)


def test_the_bundle_before_the_last_is_freed(models):
    """By its last reference: nobody collects garbage in the middle of the traffic."""

    async def scenario():
        async with serving(models) as (app, client):
            first = weakref.ref(app.state.models.current["shop"].reranker)
            gc.disable()
            try:
                for name in ("2", "3"):
                    assert first() is not None
                    folder.point(models, "shop", name)
                    await tell(client)
                    assert await version(client) == name
                assert first() is None
            finally:
                gc.enable()

    run(scenario)


@pytest.mark.slow
def test_a_hundred_swaps_under_load_lose_nothing_and_mix_nothing(models):
    """Three versions in turn, so that every swap is a load; each answer's scores are those of the version it names."""
    expected = {}

    async def scenario():
        async with serving(models) as (_, client):
            for name in "123":
                folder.point(models, "shop", name)
                await tell(client)
                expected[name] = (await client.post("/rerank", json=BODY | {"raw_scores": True})).json()["scores"]
            assert len({tuple(scores) for scores in expected.values()}) == 3
            seen, done = [], asyncio.Event()

            async def caller():
                while not done.is_set():
                    answer = await client.post("/rerank", json=BODY | {"raw_scores": True})
                    assert answer.status_code == 200, answer.text
                    body = answer.json()
                    assert body["scores"] == expected[body["version"]]
                    assert body["meta"]["status"] == "ok"
                    seen.append(body["version"])

            callers = [asyncio.create_task(caller()) for _ in range(8)]
            for swap in range(100):
                folder.point(models, "shop", "123"[swap % 3])
                assert (await tell(client)).status_code == 200
            done.set()
            await asyncio.gather(*callers)
            assert set(seen) == set("123")
            assert len(seen) > 100
            swapped = 'listwright_reloads_total{model="shop",outcome="swapped"} 102.0'
            assert swapped in (await client.get("/metrics")).text

    run(scenario)
