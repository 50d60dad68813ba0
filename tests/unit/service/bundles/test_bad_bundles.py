"""What is refused, and that the old bundle serves on."""

import asyncio
import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from listwright.ranking import bundle
from listwright.ranking.errors import BundleError
from listwright.ranking.manifest import MOST_VALUES
from listwright.service.bundles import folder, loading, reload
from listwright.service.settings import Settings
from support.service.swapping import run, serving, tell, version
from support.stand_ins import Clock

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


def external_weights(bad):
    """The weights of the second stage are to be read from a file elsewhere."""
    model = onnx.load(bad / "qilcm.onnx")
    for tensor in model.graph.initializer:
        if tensor.name == "w":
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="../../elsewhere")
    onnx.save(model, bad / "qilcm.onnx")


def nan_weights(bad):
    model = onnx.load(bad / "qilcm.onnx")
    for tensor in model.graph.initializer:
        if tensor.name == "w":
            values = numpy_helper.to_array(tensor).copy()
            values[0] = float("nan")
            tensor.CopyFrom(numpy_helper.from_array(values, "w"))
    onnx.save(model, bad / "qilcm.onnx")


def masses_of_values(bad, _):
    """Where each would be a fault of its own."""
    values = json.loads((bad / "manifest.json").read_text())
    (bad / "manifest.json").write_text(json.dumps(values | {"metrics": [{}] * MOST_VALUES}))


def a_leaf_too_many(bad):
    text = (bad / "first_stage.txt").read_text()
    (bad / "first_stage.txt").write_text(text.replace("num_leaves=8", "num_leaves=9"))


def of_another_model(bad):
    (bad / "first_stage.txt").write_text("tree\n")


BAD = {
    **{f"{spoil.__name__} {name}": (spoil, name) for spoil in (truncated, emptied, altered, missing) for name in FILES},
    "newer format": (lambda bad, _: newer(bad), None),
    "masses of values": (masses_of_values, None),
    "a leaf too many": (resealed, a_leaf_too_many),
    "golden mismatch": (resealed, golden_mismatch),
    "NaN weights": (resealed, nan_weights),
    "weights elsewhere": (resealed, external_weights),
    "no model at all": (resealed, of_another_model),
}
SAYS = {
    "newer format": "manifest.json: bundle format 99 is newer",
    "masses of values": f"manifest.json: not JSON (it has more than {MOST_VALUES:,} values)",
    "a leaf too many": "first_stage.txt: not a LightGBM text model: tree 0 is damaged",
    "golden mismatch": "golden.jsonl: line 6: scores are",
    "NaN weights": "golden.jsonl: line 1: the second stage gave nan",
    "weights elsewhere": "qilcm.onnx: tensor 'w' has weights in another file: listwright writes no such graph",
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

    def counted(root, name, version, *rest):
        tried.append(version)
        return load(root, name, version, *rest)

    async def scenario():
        monkeypatch.setattr(reload, "load_named", counted)
        async with serving(models) as (app, client):
            manifest = (models / "shop" / "2" / "manifest.json").read_bytes()
            (models / "shop" / "2" / "manifest.json").unlink()
            folder.point(models, "shop", "2")
            app.service.reloader._clock = Clock()
            for _ in range(3):
                await app.service.reloader.reload(again=False)
            assert tried == ["2"], "polling does not load the same bad bundle at each look"
            assert (await tell(client)).status_code == 409
            assert tried == ["2", "2"]
            (models / "shop" / "2" / "manifest.json").write_bytes(manifest)  # written last: now it is whole
            await app.service.reloader.reload(again=False)
            assert await version(client) == "2"

    run(scenario)


ARRIVING = {
    "file by file": lambda source, to: [shutil.copy(source / name, to / name) for name in FILES],
    "the manifest first": lambda source, to: [shutil.copy(source / name, to / name) for name in reversed(FILES)],
    "in pieces": lambda source, to: [
        write_piece(to / name, (source / name).read_bytes(), half) for name in FILES for half in (True, False)
    ],
    "as a folder": lambda source, to: (to.rmdir(), shutil.copytree(source, to)),
}
"""Ways of a bundle into the models folder, after the pointer."""


def write_piece(file, content, half):
    file.write_bytes(content[: len(content) // 2] if half else content)


@pytest.mark.parametrize("how", ARRIVING)
def test_a_bundle_that_arrives_after_its_pointer_is_served(models, library, caplog, how):
    """Whether or not pointer and manifest change again; each reason is logged once."""

    async def scenario():
        async with serving(models) as (app, client):
            clock = app.service.reloader._clock = Clock()
            shutil.rmtree(models / "shop" / "2")
            (models / "shop" / "2").mkdir()
            folder.point(models, "shop", "2")
            for step in range(3):
                clock.now += 2.0 * step
                await app.service.reloader.reload(again=False)
            refused = app.service.current.models.refused["shop"]
            assert (await version(client), refused.reason.split(":")[0]) == ("1", "manifest.json")
            ARRIVING[how](library / "shop" / "2", models / "shop" / "2")
            clock.now += loading.LONGEST_PAUSE_S
            await app.service.reloader.reload(again=False)
            assert await version(client) == "2"
            assert app.service.current.models.refused == {}

    run(scenario)
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == len(set(said)) == 1


def test_the_pauses_grow_and_leave_most_of_the_time(models, monkeypatch):
    """A bundle that takes seconds to hash takes a tenth of the time at most; one that is missing is looked for often."""
    began = []

    async def scenario(took_s, last_s):
        async with serving(models) as (app, _):
            reloader = app.service.reloader
            clock = reloader._clock = Clock(0.0)

            def load(*_):
                began.append(clock.now)
                clock.now += took_s
                raise BundleError(models / "shop" / "2" / "qilcm.onnx", "does not exist")

            monkeypatch.setattr(reload, "load_named", load)
            folder.point(models, "shop", "2")
            while clock.now < last_s:
                await reloader.reload(again=False)
                clock.now += 1.0

    for took_s, last_s, first in ((0.0, 300.0, [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0]), (5.0, 3000.0, [0.0, 55.0])):
        began.clear()
        asyncio.run(scenario(took_s, last_s))
        folder.point(models, "shop", "1")
        assert began[: len(first)] == pytest.approx(first, abs=1.0 + took_s)
        pauses = np.diff(began) - took_s
        assert (pauses >= 10.0 * took_s).all()
        assert pauses.max() <= max(loading.LONGEST_PAUSE_S, 100.0 * took_s) + 1.0


def started(models, arrive, **settings):
    """What is served first by a service that starts before its folder is there, and the seconds until then."""
    clock = Clock(0.0)

    def sleep(seconds):
        clock.now += seconds
        if clock.now > 8.0:
            arrive()

    found = loading.start(Settings(models=models, max_candidates=10, **settings), None, clock, sleep)
    return found, clock.now


@pytest.mark.parametrize("lacks", ["the folder", "the pointer", "the version", "a file"])
def test_a_service_that_starts_before_its_bundle_waits_for_it(models, tmp_path_factory, lacks, caplog):
    root = tmp_path_factory.mktemp("late") / "models"
    shutil.copytree(models, root)
    away = {
        "the folder": root,
        "the pointer": root / "shop" / "CURRENT",
        "the version": root / "shop" / "1",
        "a file": root / "shop" / "1" / "qilcm.onnx",
    }[lacks]
    there = root.parent / "there"
    away.rename(there)

    def arrive():
        if there.exists():
            there.rename(away)

    found, seconds = started(root, arrive)
    assert found.current["shop"].manifest.version == "1"
    assert 8.0 < seconds < 20.0
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


@pytest.mark.parametrize(("settings", "waits"), [({}, True), ({"poll_s": 0}, False)])
def test_what_never_comes_ends_the_start(models, settings, waits):
    """After a minute; at once where the folder is looked at when told to only, and where one bundle is named."""
    (models / "shop" / "1" / "qilcm.onnx").unlink()
    slept = []
    clock = Clock(0.0)

    def sleep(seconds):
        slept.append(seconds)
        clock.now += seconds

    with pytest.raises(BundleError, match=r"qilcm\.onnx: does not exist"):
        loading.start(Settings(models=models, max_candidates=10, **settings), None, clock, sleep)
    assert (loading.ARRIVAL_S / 2 < sum(slept) <= loading.ARRIVAL_S) if waits else slept == []
    slept.clear()
    with pytest.raises(BundleError, match=r"qilcm\.onnx: does not exist"):
        loading.start(Settings(bundle=models / "shop" / "1", max_candidates=10), None, clock, sleep)
    assert slept == []


def test_a_pointer_in_the_middle_of_being_written_changes_nothing(models):
    async def scenario():
        async with serving(models) as (app, client):
            (models / "shop" / "CURRENT").write_text("")
            await app.service.reloader.reload(again=False)
            assert await version(client) == "1"
            assert (
                "CURRENT holds no name of a folder, but 0 bytes"
                in (await client.get("/info")).json()["refused"][0]["reason"]
            )
            (models / "shop" / "CURRENT").write_text("2")
            await app.service.reloader.reload(again=False)
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


def unreadable(*_, **__):
    raise OSError(5, "gone")


def test_while_the_folder_cannot_be_read_the_log_says_that_all_stays(models, monkeypatch, caplog):
    async def scenario():
        async with serving(models) as (_, client):
            monkeypatch.setattr(folder, "read", unreadable)
            assert (await tell(client)).status_code == 409
            assert await version(client) == "1"

    run(scenario)
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said == "the models folder cannot be read: gone; what is served stays"


def test_of_a_bad_alias_the_log_says_what_serves_on(models, caplog):
    (models / "other").mkdir()
    (models / "other" / "ALIAS").write_text("shop")

    async def scenario():
        async with serving(models) as (_, client):
            (models / "other" / "ALIAS").write_text("/")
            await tell(client)
            assert (await client.get("/info", params={"model": "other"})).status_code == 200

    run(scenario)
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said.startswith("refused other/: ALIAS holds no name")
    assert said.endswith("; 1 serves on")
