"""Bundles at URLs: published, copied once, verified, polled by their pointers, and served while the store is down."""

import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.command import main as listwright
from listwright.ranking import bundle, remote
from listwright.ranking.errors import AbandonedError, BundleError, ListwrightError
from listwright.ranking.remote import Store, StoreError, Url, as_location, local_copy
from listwright.service.bundles import folder, loading, reload
from listwright.service.commands import publish as publishing
from listwright.service.settings import Settings
from support.object_store import S3, StaticFiles
from support.service.bundles import make_bundle
from support.service.swapping import run, serving, tell, until_version, version
from support.waiting import PATIENCE_S, until, until_async

MODELS = "s3://models/live"


@pytest.fixture(scope="module")
def server():
    store = S3()
    yield store
    store.stop()


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Two versions of one bundle."""
    root = tmp_path_factory.mktemp("local")
    for seed in (1, 2):
        make_bundle(root / "shop" / str(seed), seed=seed)
    return root / "shop"


@pytest.fixture
def s3(server, tmp_path, monkeypatch):
    """An empty bucket, credentials for it, and an empty cache."""
    server.empty()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    folder.remote_models.cache_clear()
    return server


@pytest.fixture
def published(s3, local):
    """A bucket that serves shop/1 and holds shop/2."""
    for number in (1, 2):
        publishing.publish_as(local / str(number), Url(f"{MODELS}/shop/{number}"))
    folder.point(Url(MODELS), "shop", "1")
    return s3


@pytest.fixture
def static(tmp_path, monkeypatch):
    (tmp_path / "www").mkdir()
    files = StaticFiles(tmp_path / "www")
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    folder.remote_models.cache_clear()
    yield files
    files.stop()


def forget():
    """What another process, which starts now, knows."""
    folder.remote_models.cache_clear()


def test_publish_uploads_the_bundle_to_the_byte_and_points_to_it(s3, local, capsys):
    assert listwright(["publish", str(local / "2"), f"{MODELS}/shop/7", "--current"]) == 0
    assert s3.get("live/shop/CURRENT") == b"7\n"
    manifest = json.loads(s3.get("live/shop/7/manifest.json"))
    assert (manifest["name"], manifest["version"]) == ("shop", "7")
    for entry in manifest["files"]:
        assert s3.get(f"live/shop/7/{entry['name']}") == (local / "2" / entry["name"]).read_bytes()
    assert f"{MODELS}/shop/7" in capsys.readouterr().out


def test_a_published_version_never_changes(published, local, monkeypatch):
    before = published.get("live/shop/1/manifest.json")
    with pytest.raises(BundleError, match="exists already"):
        publishing.publish_as(local / "2", Url(f"{MODELS}/shop/1"))
    monkeypatch.setattr(Store, "read_small", lambda *_: None)  # another publisher was faster
    with pytest.raises(BundleError, match="exists already"):
        publishing.publish_as(local / "1", Url(f"{MODELS}/shop/1"))
    assert published.get("live/shop/1/manifest.json") == before


def test_two_publishers_of_one_version_make_no_mixture(published, local):
    published.client.delete_object(Bucket="models", Key="live/shop/1/manifest.json")  # the other has not ended
    with pytest.raises(BundleError, match="exists with another content"):
        publishing.publish_as(local / "2", Url(f"{MODELS}/shop/1"))
    publishing.publish_as(local / "1", Url(f"{MODELS}/shop/1"))  # as after an interruption
    assert bundle.load(local_copy(Url(f"{MODELS}/shop/1"))).manifest.version == "1"


def test_a_bucket_that_is_not_there_is_named(s3, local, capsys):
    assert listwright(["publish", str(local / "1"), "s3://nowhere/live/shop/1"]) == 1
    assert "bucket or container does not exist" in capsys.readouterr().err


def test_a_bucket_is_no_name(s3, local):
    with pytest.raises(BundleError, match="below a bucket"):
        publishing.publish_as(local / "1", Url("s3://models/7"))
    assert "Contents" not in s3.client.list_objects_v2(Bucket="models")


@pytest.mark.parametrize("out", ["hf://owner/repository/shop/1", "https://example.org/shop/1"])
def test_what_cannot_be_written_is_refused(s3, local, out, capsys):
    assert listwright(["publish", str(local / "1"), out]) == 1
    assert "cannot be written: publish to s3, gs, az" in capsys.readouterr().err


def test_a_bundle_is_copied_once(published, local, monkeypatch):
    url = Url(f"{MODELS}/shop/1")
    copy = local_copy(url)
    assert bundle.load(copy).manifest.version == "1"
    for entry in bundle.load(copy).manifest.files:
        assert (copy / entry.name).read_bytes() == (local / "1" / entry.name).read_bytes()

    def stream(*_):
        raise AssertionError("copied again")

    monkeypatch.setattr(Store, "stream", stream)
    assert local_copy(url) == copy


@pytest.mark.parametrize("name", ["golden.jsonl", "manifest.json"])
def test_an_altered_copy_is_copied_again(published, name, caplog):
    url = Url(f"{MODELS}/shop/1")
    altered = local_copy(url) / name
    before = altered.read_bytes()
    altered.write_bytes(before[:-1] + b"!")
    assert (local_copy(url) / name).read_bytes() == before
    assert "altered" in caplog.text


def test_a_version_that_was_published_anew_is_copied_anew(published, local):
    url = Url(f"{MODELS}/shop/1")
    before = local_copy(url)
    published.empty()
    publishing.publish_as(local / "2", url)
    after = local_copy(url)
    assert after != before
    assert (after / "first_stage.txt").read_bytes() == (local / "2" / "first_stage.txt").read_bytes()


def test_copies_unused_for_a_week_are_removed(published, tmp_path):
    old = local_copy(Url(f"{MODELS}/shop/1"))
    long_ago = time.time() - remote.UNUSED_S - 60
    os.utime(old.parents[1], (long_ago, long_ago))
    new = local_copy(Url(f"{MODELS}/shop/2"))
    assert new.exists()
    os.utime(new.parents[1], (long_ago, long_ago))
    assert local_copy(Url(f"{MODELS}/shop/2")) == new
    assert new.parents[1].stat().st_mtime > long_ago, "a use"
    assert not old.exists()


def test_a_copy_that_is_served_is_not_removed(published):
    served = local_copy(Url(f"{MODELS}/shop/1"))
    long_ago = time.time() - remote.UNUSED_S - 60
    remote.hold_copies([served, Path("elsewhere/1")])
    os.utime(served.parents[1], (long_ago, long_ago))
    other = local_copy(Url(f"{MODELS}/shop/2"))
    assert served.exists()
    remote.hold_copies([])
    shutil.rmtree(other.parents[1])
    local_copy(Url(f"{MODELS}/shop/2"))
    assert not served.exists()


def test_a_killed_copy_leaves_nothing(published, monkeypatch):
    place = local_copy(Url(f"{MODELS}/shop/1"))
    partial = place.parents[2] / f".{place.parents[1].name}.partial"
    place.parents[1].rename(partial)
    (partial / "more").touch()
    assert local_copy(Url(f"{MODELS}/shop/1")) == place
    assert not partial.exists()
    shutil.rmtree(place.parents[1])
    store = Store(Url(f"{MODELS}/shop/1"))
    monkeypatch.setattr(remote, "COPY_WITHIN_S", 0.0)
    with pytest.raises(BundleError, match="takes longer"):
        remote.copy_bundle(store)
    assert not partial.exists()


@pytest.mark.parametrize("text", ["", "[]", "null", '{"copies": null}', '{"copies": {"": 1}}'])
def test_a_damaged_index_is_none(published, text):
    local_copy(Url(f"{MODELS}/shop/1"))
    (index,) = remote.cache_folder().glob("stores/*.json")
    index.write_text(text)
    assert remote.Index(Url(f"{MODELS}/shop/1")).copy_of("") is None
    local_copy(Url(f"{MODELS}/shop/1"))
    assert remote.Index(Url(f"{MODELS}/shop/1")).copy_of("") is not None


def test_another_endpoint_is_another_store(published, monkeypatch):
    local_copy(Url(f"{MODELS}/shop/1"), or_last=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(BundleError, match="the store does not answer"):
        local_copy(Url(f"{MODELS}/shop/1"), or_last=True)
    for endpoint in ("127.0.0.1:9", ""):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(ListwrightError, match="AWS_ENDPOINT_URL begins with no http"):
            local_copy(Url(f"{MODELS}/shop/1"))


def test_azure_and_google_are_opened_as_documented(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    azure = Store(Url("az://account/container/live/shop"))._small.store
    assert (azure.config["account_name"], azure.config["container_name"]) == ("account", "container")
    assert str(azure.prefix) == "live/shop"
    google = Store(Url("gs://bucket/live"))._small.store
    assert (google.config["bucket"], str(google.prefix)) == ("bucket", "live")


def test_a_cache_that_cannot_be_written_is_named(published, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BundleError, match="LISTWRIGHT_CACHE"):
        local_copy(Url(f"{MODELS}/shop/1"))


def test_who_serves_a_folder_needs_no_cache(local, monkeypatch):
    """Nor a home, which users of containers lack."""

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    for value in ("", None):
        monkeypatch.setenv("LISTWRIGHT_CACHE", "") if value == "" else monkeypatch.delenv("LISTWRIGHT_CACHE")
        folder.point(local.parent, "shop", "1")

        async def scenario():
            async with serving(local.parent) as (_, client):
                folder.point(local.parent, "shop", "2")
                assert (await tell(client)).status_code == 200
                assert await version(client) == "2"

        run(scenario)
        with pytest.raises(ListwrightError, match="LISTWRIGHT_CACHE"):
            remote.cache_folder()


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 5000])
def test_a_damaged_object_is_refused_by_verify_whatever_the_cache_has(published, content, capsys):
    local_copy(Url(f"{MODELS}/shop/1"))
    assert listwright(["verify", f"{MODELS}/shop/1"]) == 0
    published.put("live/shop/1/golden.jsonl", content)
    assert listwright(["verify", f"{MODELS}/shop/1"]) == 1
    assert f"refused: {MODELS}/shop/1/golden.jsonl" in capsys.readouterr().err


def test_a_damaged_object_is_not_copied(published):
    whole = published.get("live/shop/1/golden.jsonl")
    published.put("live/shop/1/golden.jsonl", whole[:-1] + b"!")
    with pytest.raises(BundleError, match=r"golden\.jsonl: does not match its sha256"):
        local_copy(Url(f"{MODELS}/shop/1"))
    assert not list(remote.cache_folder().glob("bundles/*/shop"))
    published.client.delete_object(Bucket="models", Key="live/shop/1/golden.jsonl")
    with pytest.raises(BundleError, match=r"golden\.jsonl: cannot be read: does not exist"):
        local_copy(Url(f"{MODELS}/shop/1"))
    published.put("live/shop/1/golden.jsonl", whole)
    assert local_copy(Url(f"{MODELS}/shop/1")).is_dir()


@pytest.mark.nightly  # processes start
def test_score_and_evaluate_take_urls(published, local, tmp_path, capsys):
    rows = "q,label,n1,n2,n3,c\n" + "".join(f"{i // 4},{i % 2},{i},{i % 3},{-i},A5\n" for i in range(40))
    names = bundle.load(local / "1").manifest.feature_schema.names
    (tmp_path / "rows.csv").write_text(rows.replace("n1,n2,n3,c", ",".join(names)))
    for place, out in ((f"{MODELS}/shop/1", "remote.csv"), (str(local / "1"), "local.csv")):
        words = ["--data", str(tmp_path / "rows.csv"), "--qid", "q", "--out", str(tmp_path / out), "--jobs", "1"]
        assert listwright(["score", place, *words]) == 0, capsys.readouterr()
    assert (tmp_path / "remote.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
    words = ["--data", str(tmp_path / "rows.csv"), "--qid", "q", "--label", "label", "--json", str(tmp_path / "out")]
    assert listwright(["evaluate", f"{MODELS}/shop/1", str(local / "2"), *words]) == 0, capsys.readouterr()
    command = json.loads((tmp_path / "out").read_text())["command"]
    assert command.startswith("listwright evaluate shop/1 shop/2 --data rows.csv")


def test_a_swap_is_found_by_the_pointer_alone(published, monkeypatch):
    polled, listed = [], []
    read_small, list_names = Store.read_small, Store.list_names
    monkeypatch.setattr(Store, "list_names", lambda store: listed.append(1) or list_names(store))

    def poll(*words):
        file = read_small(*words)
        polled.append((words[1], None if file is None else file.content))
        return file

    monkeypatch.setattr(Store, "read_small", poll)

    async def scenario():
        async with serving(Url(MODELS), poll_s=0.01) as (_, client):
            assert await version(client) == "1"
            polled.clear()
            listed.clear()
            await until_async(lambda: len(polled) > 3)
            assert {path for path, _ in polled} == {"shop/CURRENT"}
            assert {content for _, content in polled} == {None}, "the store sends no content that is known"
            assert not listed
            state = folder.state(Url(MODELS), "shop", "1")
            folder.point(Url(MODELS), "shop", "2")
            await until_version(client, "2")
            assert folder.state(Url(MODELS), "shop", "1") != state
            assert await version(client, version="1") == "1"

    run(scenario)


def test_a_damaged_new_version_is_refused_and_the_old_one_serves_on(published, local):
    whole = published.get("live/shop/2/first_stage.txt")
    published.put("live/shop/2/first_stage.txt", whole[:-1])
    folder.point(Url(MODELS), "shop", "2")

    with pytest.raises(BundleError, match=r"first_stage\.txt: has \d+ bytes instead of"):
        loading.start(Settings(models=MODELS, poll_s=0))
    published.put("live/shop/CURRENT", b"1\n")

    async def swap():
        async with serving(Url(MODELS)) as (_, client):
            published.put("live/shop/CURRENT", b"2\n")
            answer = await tell(client)
            assert answer.status_code == 409
            assert "first_stage.txt" in answer.json()["detail"]
            assert await version(client) == "1"
            published.put("live/shop/2/first_stage.txt", whole)
            assert (await tell(client)).status_code == 200
            assert await version(client) == "2"

    run(swap)


@pytest.mark.parametrize(
    ("pointer", "fault"),
    [(b"", "0 bytes"), (b"../1\n", "5 bytes"), (b"x" * 5000, "5000 bytes"), (b"\xff\xfe", "2 bytes")],
)
def test_a_bad_pointer_changes_nothing(published, pointer, fault):
    publishing.publish_as(local_copy(Url(f"{MODELS}/shop/1")), Url(f"{MODELS}/other/1"))
    folder.point(Url(MODELS), "other", "1")

    async def scenario():
        async with serving(Url(MODELS)) as (_, client):
            published.put("live/shop/CURRENT", pointer)
            answer = await tell(client)
            assert answer.status_code == 409
            assert fault in answer.json()["detail"]
            assert await version(client, model="shop") == "1"
            assert await version(client, model="other") == "1"

    run(scenario)


def test_a_name_that_cannot_be_listed_stops_no_swap(published):
    async def scenario():
        async with serving(Url(MODELS)) as (_, client):
            published.put("live//stray/CURRENT", b"1\n")
            published.put("live/shop/CURRENT", b"2\n")
            await tell(client)
            assert await version(client) == "2"

    run(scenario)


def test_a_pointer_that_cannot_be_read_stops_no_other(published, local, monkeypatch):
    publishing.publish_as(local / "1", Url(f"{MODELS}/other/1"))
    folder.point(Url(MODELS), "other", "1")
    read_small = Store.read_small

    def deny(store, path, *words):
        if path == "other/CURRENT":
            raise StoreError(13, "access is denied")
        return read_small(store, path, *words)

    async def scenario():
        async with serving(Url(MODELS)) as (_, client):
            monkeypatch.setattr(Store, "read_small", deny)
            published.put("live/shop/CURRENT", b"2\n")
            answer = await tell(client)
            assert "access is denied" in answer.json()["detail"]
            assert await version(client, model="shop") == "2"
            assert await version(client, model="other") == "1"
            monkeypatch.setattr(Store, "read_small", read_small)
            assert (await tell(client)).status_code == 200

    run(scenario)


def test_names_and_aliases_are_found_on_demand_and_a_rollback_writes_the_pointer(published, local):
    async def scenario():
        async with serving(Url(MODELS)) as (_, client):
            publishing.publish_as(local / "1", Url(f"{MODELS}/other/3"))
            folder.point(Url(MODELS), "other", "3")
            published.put("live/default/ALIAS", b"shop\n")
            published.put("live/shop/CURRENT", b"2\n")
            assert (await tell(client)).status_code == 200
            assert await version(client, model="other") == "3"
            assert await version(client) == "2"
            assert (await tell(client, "rollback", model="shop")).status_code == 200
            assert published.get("live/shop/CURRENT") == b"1\n"
            assert await version(client) == "1"

    run(scenario)


def test_while_the_store_is_down_no_request_fails(published, caplog):
    def warnings():
        return [record for record in caplog.records if "what is served stays" in record.message]

    async def scenario():
        async with serving(Url(MODELS), poll_s=0.01) as (_, client):
            assert await version(client) == "1"
            published.stop()
            try:
                failures, answered = 0.0, 0
                while failures < 3:
                    assert await version(client) == "1"
                    answered += 1
                    text = (await client.get("/metrics")).text
                    failures = float(text.partition("\nlistwright_store_failures_total ")[2].partition("\n")[0])
                assert len(warnings()) == 1, "one warning a minute"
                assert (await client.get("/readyz")).status_code == 200
                (refused,) = (await client.get("/info")).json()["refused"]
                assert "does not answer" in refused["reason"]
            finally:
                published.start()
            folder.point(Url(MODELS), "shop", "2")
            await until_version(client, "2")
            assert (await client.get("/info")).json()["refused"] == []

    run(scenario)


def test_warnings_of_an_outage_come_once_a_minute(published, caplog, monkeypatch):
    now = [0.0]

    async def scenario():
        async with serving(Url(MODELS)) as (app, _):
            monkeypatch.setattr(app.service.reloader, "_clock", lambda: now[0])
            published.stop()
            try:
                for now[0] in (0.0, 30.0, 59.0, 61.0, 100.0, 122.0):
                    await app.service.reloader.reload(again=False)
            finally:
                published.start()

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert sum("what is served stays" in record.message for record in caplog.records) == 3


def test_a_process_that_starts_while_the_store_is_down_serves_what_it_knew(published, caplog):
    async def scenario():
        async with serving(Url(MODELS)) as (_, client):
            assert await version(client) == "1"

    run(scenario)
    local_copy(Url(f"{MODELS}/shop/2"), or_last=True)
    published.stop()
    try:
        forget()
        run(scenario)
        settings = Settings(bundle=f"{MODELS}/shop/2")
        assert loading.start(settings).current["shop"].manifest.version == "2"
        with pytest.raises(BundleError, match="the store does not answer"):
            local_copy(Url(f"{MODELS}/shop/2"))  # what fits or judges does not guess
        shutil.rmtree(remote.cache_folder())
        forget()
        with pytest.raises(BundleError, match="the store does not answer"):
            loading.start(Settings(models=MODELS, poll_s=0))
    finally:
        published.start()


def test_http_and_hugging_face_serve_one_name(static, local, tmp_path, monkeypatch):
    root = tmp_path / "www"
    for place in ("models/shop", "owner/rankers/resolve/v2/shop"):
        shutil.copytree(local, root / place)
        (root / place / "CURRENT").write_text("1\n")

    def scenario(url, pointer):
        async def swap():
            async with serving(url) as (_, client):
                assert await version(client) == "1"
                pointer.write_text("2\n")
                later = time.time() + 10
                os.utime(pointer, (later, later))
                assert (await tell(client)).status_code == 200
                assert await version(client) == "2"

        run(swap)

    scenario(Url(f"{static.url}/models/shop"), root / "models" / "shop" / "CURRENT")
    assert {words for _, words in static.requests} == {None}
    static.requests.clear()
    monkeypatch.setenv("HF_ENDPOINT", static.url)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    scenario(Url("hf://owner/rankers@v2/shop"), root / "owner/rankers/resolve/v2/shop/CURRENT")
    assert {words for _, words in static.requests} == {"Bearer hf_secret"}
    assert bundle.load(local_copy(Url("hf://owner/rankers@v2/shop/2"))).manifest.version == "2"


def test_a_server_without_a_name_is_refused(static):
    with pytest.raises(ListwrightError, match="name the folder of one model"):
        loading.start(Settings(models=static.url, poll_s=0))


def test_a_server_that_denies_what_is_not_there_serves(static, local, tmp_path):
    """As S3's websites and CloudFront do."""
    shutil.copytree(local, tmp_path / "www" / "shop")
    (tmp_path / "www" / "shop" / "CURRENT").write_text("1\n")
    static.absent = 403

    async def scenario():
        async with serving(Url(f"{static.url}/shop")) as (_, client):
            assert await version(client) == "1"
            assert (await client.get("/info")).json()["refused"] == []

    run(scenario)
    with pytest.raises(BundleError, match=r"^\S+/other: cannot be read: access is denied"):
        loading.start(Settings(models=f"{static.url}/other", poll_s=0))
    shutil.move(tmp_path / "www" / "shop" / "CURRENT", tmp_path / "www" / "shop" / "ALIAS")
    forget()
    with pytest.raises(BundleError, match=r"^\S+[0-9]/shop: ALIAS says '1'"):
        loading.start(Settings(models=f"{static.url}/shop", poll_s=0))


@pytest.fixture
def slow(published, local, monkeypatch):
    """Versions 3 of shop, of which each file comes byte by byte; what is added to the list has been left."""
    publishing.publish_as(local / "1", Url(f"{MODELS}/shop/3"))
    stream, ended = Store.stream, []

    def drip(store, path):
        if not path.startswith("shop/3/"):
            yield from stream(store, path)
            return
        try:
            while True:
                yield b"x"
                time.sleep(0.01)
        finally:
            ended.append(path)

    monkeypatch.setattr(Store, "stream", drip)
    publishing.publish_as(local / "1", Url(f"{MODELS}/other/1"))
    publishing.publish_as(local / "2", Url(f"{MODELS}/other/2"))
    folder.point(Url(MODELS), "other", "1")
    return ended


def test_a_slow_model_holds_up_no_other_and_is_abandoned_when_its_pointer_changes(published, slow, monkeypatch, caplog):
    monkeypatch.setattr(reload, "RELOAD_WITHIN_S", 1.0)
    monkeypatch.setattr(reload, "FOLLOW_WITHIN_S", 0.2)

    async def scenario():
        async with serving(Url(MODELS), poll_s=0.05) as (_, client):
            folder.point(Url(MODELS), "shop", "3")
            answer = await tell(client)
            assert (answer.status_code, "is being loaded" in answer.json()["detail"]) == (409, True)
            folder.point(Url(MODELS), "other", "2")
            await until_version(client, "2", model="other")
            assert await version(client, model="shop") == "1"
            assert not slow
            folder.point(Url(MODELS), "shop", "2")
            await until_version(client, "2", model="shop")
            assert len(slow) == 1
            assert (await client.get("/info")).json()["refused"] == []

    run(scenario)
    assert "shop/3: is being loaded" not in caplog.text


def test_a_load_that_ends_later_is_served_then(published, monkeypatch):
    monkeypatch.setattr(reload, "RELOAD_WITHIN_S", 0.05)
    monkeypatch.setattr(reload, "FOLLOW_WITHIN_S", 0.05)
    stream, arrived = Store.stream, threading.Event()
    monkeypatch.setattr(Store, "stream", lambda *words: arrived.wait(PATIENCE_S) and stream(*words))

    async def scenario():
        async with serving(Url(MODELS), poll_s=0) as (_, client):
            folder.point(Url(MODELS), "shop", "2")
            assert (await tell(client)).status_code == 409
            arrived.set()
            await until_version(client, "2")

    arrived.set()
    local_copy(Url(f"{MODELS}/shop/1"))
    arrived.clear()
    run(scenario)


def test_a_service_that_ends_leaves_its_loads(published, slow, monkeypatch):
    monkeypatch.setattr(reload, "RELOAD_WITHIN_S", 0.05)

    async def scenario():
        async with serving(Url(MODELS)) as (_, client):
            folder.point(Url(MODELS), "shop", "3")
            assert (await tell(client)).status_code == 409

    run(scenario)
    until(lambda: len(slow) == 1)


def test_models_load_side_by_side_at_the_start(published, slow, monkeypatch):
    folder.point(Url(MODELS), "shop", "3")
    loaded = []
    load = loading.load_named
    monkeypatch.setattr(loading, "load_named", lambda *words: loaded.append(words[1]) or load(*words))
    monkeypatch.setattr(remote, "COPY_WITHIN_S", 0.5)
    with pytest.raises(BundleError, match="takes longer"):
        loading.start(Settings(models=MODELS, poll_s=0))
    assert sorted(loaded) == ["other", "shop"]


def test_who_waits_for_another_copy_can_be_abandoned(published):
    place = local_copy(Url(f"{MODELS}/shop/1"))
    with (
        remote._lock(place.parents[2] / f".{place.parents[1].name}.lock", fcntl.LOCK_EX),
        pytest.raises(AbandonedError),
    ):
        remote.copy_bundle(Store(Url(f"{MODELS}/shop/1")), abandoned=lambda: True)


@pytest.mark.parametrize(("spare", "fault"), [(0, None), (-1, "the limit is"), (1, None)])
def test_a_bundle_that_is_copied_has_a_size(published, local, spare, fault, monkeypatch):
    total = sum(entry.size for entry in bundle.load(local / "1").manifest.files)
    monkeypatch.setattr(remote, "MOST_COPIED", total + spare)
    if fault is None:
        assert local_copy(Url(f"{MODELS}/shop/1")).is_dir()
        return
    with pytest.raises(BundleError, match=rf"has files of {total} bytes; the limit is {total - 1}"):
        local_copy(Url(f"{MODELS}/shop/1"))


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_a_bundle_is_not_copied_where_it_finds_no_room(published, local, spare, fits, monkeypatch):
    total = sum(entry.size for entry in bundle.load(local / "1").manifest.files)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=total + spare))
    if fits:
        assert local_copy(Url(f"{MODELS}/shop/1")).is_dir()
        return
    with pytest.raises(BundleError, match=rf"{total} bytes are needed and {total - 1} free"):
        local_copy(Url(f"{MODELS}/shop/1"))
    assert not list(remote.cache_folder().glob("bundles/*/shop"))


@pytest.mark.parametrize(("slowest", "within_s"), [(1.0, 11), (1e-9, 540)])
def test_the_time_of_a_copy_follows_from_its_size(published, local, slowest, within_s, monkeypatch):
    total = sum(entry.size for entry in bundle.load(local / "1").manifest.files)
    manifest = published.get("live/shop/1/manifest.json")
    clock = iter([0.0, within_s - 1, within_s + 1])
    monkeypatch.setattr(remote, "SLOWEST", total * slowest)
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: next(clock), time=time.time))
    monkeypatch.setattr(Store, "stream", lambda *_: iter([b"x"] * 3))
    monkeypatch.setattr(Store, "read_small", lambda *_: remote.SmallFile(manifest, None))
    with pytest.raises(BundleError, match=f"takes longer than {within_s} s"):
        local_copy(Url(f"{MODELS}/shop/1"))


@pytest.mark.parametrize("more", [0, 1, 1000])
def test_no_more_of_a_file_is_read_than_its_size(published, local, more, monkeypatch):
    pieces = []
    stream = Store.stream

    def by_bytes(store, path):
        whole = b"".join(stream(store, path))
        for byte in whole + bytes(more):
            pieces.append(path)
            yield bytes([byte])

    monkeypatch.setattr(Store, "stream", by_bytes)
    first = bundle.load(local / "1").manifest.files[0]
    if more:
        with pytest.raises(BundleError, match=f"has more than {first.size}"):
            local_copy(Url(f"{MODELS}/shop/1"))
        assert len(pieces) == first.size + 1
        return
    assert local_copy(Url(f"{MODELS}/shop/1")).is_dir()


def test_no_link_in_the_cache_is_written_through(published, tmp_path):
    """Whoever else can write there cannot have files overwritten."""
    url, victim, elsewhere = Url(f"{MODELS}/shop/1"), tmp_path / "victim", tmp_path / "elsewhere"
    victim.write_text("precious")
    elsewhere.mkdir()
    place = local_copy(url)
    bundles, digest = place.parents[2], place.parents[1].name
    for name in (".lock", ".use"):
        (bundles / f".{digest}{name}").unlink(missing_ok=True)
        (bundles / f".{digest}{name}").symlink_to(victim)
    remote.hold_copies([place])
    remote.hold_copies([])
    with pytest.raises(BundleError, match="set LISTWRIGHT_CACHE"):
        local_copy(url)
    assert victim.read_text() == "precious"
    (bundles / f".{digest}.lock").unlink()
    for link in (bundles / f".{digest}.partial", bundles / digest):
        shutil.rmtree(link, ignore_errors=True)
        link.symlink_to(elsewhere)
        assert local_copy(url) == place
        assert not place.parents[1].is_symlink()
        assert not list(elsewhere.iterdir())
    stores = remote.cache_folder() / "stores"
    shutil.rmtree(stores)
    stores.symlink_to(elsewhere)
    with pytest.raises(BundleError, match="set LISTWRIGHT_CACHE"):
        local_copy(url)
    assert not list(elsewhere.iterdir())


def test_the_cache_is_its_users_alone(published):
    os.umask(os.umask(0))
    place = local_copy(Url(f"{MODELS}/shop/1"))
    cache = remote.cache_folder()
    for made in (cache, cache / "bundles", cache / "stores", place.parents[1]):
        assert made.stat().st_mode & 0o777 == 0o700
    for file in (*cache.glob("bundles/.*.lock"), *cache.glob("stores/*")):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_record_that_names_a_place_elsewhere_is_not_believed(published, local):
    url = Url(f"{MODELS}/shop/1")
    place = local_copy(url)
    (index,) = remote.cache_folder().glob("stores/*.json")
    for other in (local / "1", place / "../../../../../" / (local / "1").relative_to("/"), Path("bundles")):
        index.write_text(json.dumps({"copies": {"": str(other)}}))
        assert remote.Index(url).copy_of("") is None
    link = place.parents[2] / "link"
    link.symlink_to(local)
    index.write_text(json.dumps({"copies": {"": str(link / "1")}}))
    assert remote.Index(url).copy_of("") is None
    index.write_text(json.dumps({"copies": {"": str(place)}}))
    assert remote.Index(url).copy_of("") == place
    index.unlink()
    os.mkfifo(index)
    assert remote.Index(url).copy_of("") is None


def test_a_percent_sign_of_a_bucket_is_itself(s3, local):
    publishing.publish_as(local / "1", Url("s3://models/a%20b/shop/1"))
    assert s3.get("a%20b/shop/1/manifest.json")
    assert bundle.load(local_copy(as_location("s3://models/a%20b/shop/1"))).manifest.version == "1"


@pytest.mark.nightly  # a process starts
@pytest.mark.parametrize("command", ["verify", "publish"])
def test_a_store_that_hangs_can_be_left(command, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/shop/1"
        words = [url] if command == "verify" else [url, str(tmp_path / "shop" / "2")]
        process = subprocess.Popen(
            [sys.executable, "-m", "listwright", command, *words], stderr=subprocess.PIPE, text=True
        )
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=PATIENCE_S)
        connection.close()
    assert process.returncode == 130
    assert printed.startswith("interrupted")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s3://user:secret@models/shop", "with a user"),
        ("https://secret@host/shop/1", "with a user"),
        ("az://account/container/shop?sig=secret", "query"),
        ("https://host/shop/1#secret", "query"),
        ("ftp://secret/shop", "no store"),
        ("s3://", "no plain path"),
        ("s3://models/../secret", "no plain path"),
        ("s3://models//secret", "no plain path"),
        ("hf://owner", "second part"),
        ("hf://owner/@secret/shop", "second part"),
        ("https:/user:secret@host/shop/1", "with a user"),
        ("az://account", "second part"),
    ],
)
def test_bad_urls_are_refused_and_no_message_repeats_them(text, words, capsys, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_BUNDLE", text)
    with pytest.raises(ValueError, match=words) as error:
        as_location(text)
    assert listwright(["serve"]) == 2
    for command in (["verify", text], ["publish", text, "a/1"]):
        with pytest.raises(SystemExit):
            listwright(command)
    assert listwright(["score", text, "--data", "x", "--out", "y.csv"]) == 1
    output = capsys.readouterr()
    printed = output.err + output.out
    assert printed.count(words) == 4
    assert "secret" not in printed + str(error.value)


@given(st.sampled_from(("s3", "hf", "https", "AZ")), st.text(st.sampled_from("ab/.@?# :\n\x00é"), max_size=20))
def test_what_follows_a_scheme_is_a_plain_path_or_refused(scheme, text):
    try:
        location = as_location(f"{scheme}://{text}")
    except ValueError:
        return
    assert isinstance(location, Url)
    assert as_location(location) == location
    assert (location.scheme, location.isprintable()) == (scheme.lower(), True)
    host, *path = location.partition("://")[2].split("/")
    assert not set("@?# ") & set(host)
    assert not {"", ".", ".."} & {host, *path}


@given(st.text(st.sampled_from("ab/.@?# :s3"), max_size=20).filter(lambda text: ":/" not in text))
def test_all_else_is_a_path(text):
    assert as_location(text) == Path(text)


def test_without_the_extra_the_error_names_it(monkeypatch, tmp_path, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert listwright(["verify", "s3://models/shop/1"]) == 1
    assert "pip install 'listwright[remote]'" in capsys.readouterr().err
    with pytest.raises(ListwrightError, match=r"listwright\[remote\]"):
        loading.start(Settings(models="s3://models", poll_s=0))


def test_credentials_are_in_no_log_and_no_error(published, caplog, capsys, monkeypatch):
    published.put("live/shop/2/golden.jsonl", b"")
    caplog.set_level(logging.DEBUG)
    for url in (f"{MODELS}/shop/2", f"{MODELS}/shop/9", "s3://nowhere/shop/1"):
        assert listwright(["verify", url]) == 1
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert listwright(["verify", f"{MODELS}/shop/1"]) == 1
    printed = capsys.readouterr()
    text = "".join((caplog.text, printed.out, printed.err))
    assert "wJalrXUtnFEMI" not in text
    assert "AKIDEXAMPLE" not in text
