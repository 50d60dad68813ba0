"""A models folder that hangs, whole or in part: what is served goes on, and whoever asks hears why."""

import asyncio
import threading

import pytest

from listwright.service.auth.middleware import Keyring
from listwright.service.bundles import folder, loading, reload
from listwright.service.bundles.loading import BundleFolders
from listwright.service.commands import publish as publishing
from listwright.service.disk import Disk
from listwright.service.settings import Settings
from support.service.swapping import run, serving, tell, until_version, version
from support.waiting import PATIENCE_S, until_async

WORD = "hunter2-is-no-version"


@pytest.fixture
def hang():
    """Functions that never return, until the test ends."""
    let_go = threading.Event()
    yield lambda *_, **__: let_go.wait(PATIENCE_S)
    let_go.set()


def test_the_content_of_another_file_is_told_nowhere(models, tmp_path_factory, caplog):
    secret = tmp_path_factory.mktemp("secret") / "password"

    async def scenario():
        async with serving(models) as (_, client):
            (models / "shop" / "CURRENT").unlink()
            for content, links in ((WORD, True), (f"{WORD}:{WORD}", False)):
                secret.write_text(content)
                if links:
                    (models / "shop" / "CURRENT").symlink_to(secret)
                else:
                    (models / "shop" / "CURRENT").unlink()
                    (models / "shop" / "CURRENT").write_text(content)
                answer = await tell(client)
                assert answer.status_code == 409
                told = [answer.text, (await client.get("/info")).text, (await client.get("/metrics")).text]
                assert WORD not in "".join(told)
            assert await version(client) == "1"

    run(scenario)
    assert "refused shop/" in caplog.text
    assert WORD not in caplog.text


WITHIN = "does not answer within 0.05 s"


@pytest.mark.parametrize(("what", "first"), [("read", WITHIN), ("state", "does not answer"), ("point", WITHIN)])
def test_a_folder_that_hangs_is_given_up(models, monkeypatch, hang, what, first):
    async def scenario():
        async with serving(models) as (_, client):
            folder.point(models, "shop", "2")
            if what == "point":
                await tell(client)
            monkeypatch.setattr(reload, "LOOK_WITHIN_S", 0.05)
            monkeypatch.setattr(reload, "FOLLOW_WITHIN_S", 0.05)
            monkeypatch.setattr(folder, what, hang)
            for words in (first, "still does not answer"):
                answer = await tell(client, "rollback" if what == "point" else "reload")
                assert answer.status_code == 409
                assert words in answer.json()["detail"]
                assert await version(client) == ("2" if what == "point" else "1")

    run(scenario)


def test_a_bundle_that_hangs_is_given_up(models, monkeypatch, hang):
    monkeypatch.setattr(reload, "LOAD_WITHIN_S", 0.05)
    monkeypatch.setattr(reload, "load_named", hang)

    async def scenario():
        async with serving(models) as (_, client):
            folder.point(models, "shop", "2")
            assert "does not answer within 0.05 s" in (await tell(client)).json()["detail"]
            assert await version(client) == "1"

    run(scenario)


def test_a_bundle_that_hangs_holds_up_no_other(models, monkeypatch, hang):
    monkeypatch.setattr(reload, "RELOAD_WITHIN_S", 1.0)
    load = reload.load_named

    def partly(root, name, version, *rest):
        return hang() if (name, version) == ("shop", "2") else load(root, name, version, *rest)

    publishing.publish_as(models / "shop" / "1", models / "other" / "1")
    folder.point(models, "other", "1")
    monkeypatch.setattr(reload, "load_named", partly)

    async def scenario():
        async with serving(models, poll_s=0.05) as (_, client):
            publishing.publish_as(models / "shop" / "1", models / "other" / "2")
            folder.point(models, "shop", "2")
            assert "is being loaded" in (await tell(client)).json()["detail"]
            folder.point(models, "other", "2")
            await until_version(client, "2", model="other")
            monkeypatch.setattr(reload, "RELOAD_WITHIN_S", 8.0)
            waiting = asyncio.create_task(tell(client))
            await asyncio.sleep(0.1)
            assert (await tell(client, "rollback", model="other")).status_code == 200
            assert await version(client, model="other") == "1"
            assert not waiting.done()
            waiting.cancel()
            assert await version(client, model="shop") == "1"

    run(scenario)


def test_the_end_does_not_wait_for_a_folder_that_hangs(models, monkeypatch, hang):
    looks = threading.Event()

    async def scenario():
        async with serving(models, poll_s=0.01) as (app, _):
            monkeypatch.setattr(folder, "read", lambda *_, **__: (looks.set(), hang()))
            await until_async(looks.is_set)
        return app

    assert asyncio.run(asyncio.wait_for(scenario(), 20)).service.reloader.hangs


def test_keys_that_hang_stay_as_they_are(tmp_path, monkeypatch, hang, caplog):
    file = tmp_path / "keys"
    file.write_text("web:" + "w" * 20)
    ring = Keyring(Settings(bundle="x", keys_file=file))
    monkeypatch.setattr("listwright.service.auth.middleware.LOOK_WITHIN_S", 0.05)
    monkeypatch.setattr("listwright.service.auth.keys.read", hang)

    async def scenario():
        for _ in range(3):
            await ring.look()

    run(scenario)
    assert ring.admit(b"w" * 20).name == "web"
    assert "does not answer within 0.05 s" in caplog.text


def test_what_others_keep_is_kept(models):
    """A worker that missed a version, or has just been started."""
    one, two = models / "shop" / "1", models / "shop" / "2"

    async def scenario():
        async with serving(models) as (app, client):
            await app.service.reloader.keep({"shop": one, "gone": two})
            assert BundleFolders.of(app.service.current.models) == BundleFolders({"shop": one}, {}), (
                "it is served: there is nothing to keep"
            )
            await app.service.reloader.keep({"shop": two})
            assert await version(client, version="2") == "2"
            await app.service.reloader.keep({"shop": models / "shop" / "9"})
            assert BundleFolders.of(app.service.current.models) == BundleFolders({"shop": one}, {"shop": two}), (
                "there is no version 9"
            )
            assert (await tell(client, "rollback")).status_code == 200
            assert await version(client) == "2"

    run(scenario)


def test_a_file_system_that_hangs_while_others_tell_changes_nothing(models, monkeypatch, hang):
    monkeypatch.setattr(reload, "LOAD_WITHIN_S", 0.05)
    monkeypatch.setattr(reload, "load_previous", hang)

    async def scenario():
        async with serving(models) as (app, client):
            await app.service.reloader.keep({"shop": models / "shop" / "2"})
            assert await version(client) == "1"
            assert isinstance(app.service.reloader._disk, Disk)
            assert app.service.reloader.hangs

    run(scenario)


def test_a_worker_that_starts_keeps_what_the_others_keep_from_its_first_request_on(models):
    one, two = models / "shop" / "1", models / "shop" / "2"

    def started(current, kept):
        settings = Settings(models=models, max_candidates=10)
        return BundleFolders.of(
            loading.start(settings, BundleFolders({"shop": current}, {"shop": kept} if kept else {}))
        )

    assert started(one, two) == BundleFolders({"shop": one}, {"shop": two})
    assert started(one, None) == BundleFolders({"shop": one}, {})
    assert started(one, models / "shop" / "9") == BundleFolders({"shop": one}, {}), "it is gone"
    folder.point(models, "shop", "2")
    assert started(one, None) == BundleFolders({"shop": two}, {"shop": one}), "the others will see it, too"
