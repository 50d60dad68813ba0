"""What is refused, and that the old bundle serves on."""

import json
import shutil

import onnx
from onnx import numpy_helper

from listwright.ranking import bundle
from listwright.service.bundles import folder, reload
from support.service.swapping import run, serving, tell, version

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


def of_another_model(bad):
    (bad / "first_stage.txt").write_text("tree\n")


BAD = {
    **{f"{spoil.__name__} {name}": (spoil, name) for spoil in (truncated, emptied, altered, missing) for name in FILES},
    "newer format": (lambda bad, _: newer(bad), None),
    "golden mismatch": (resealed, golden_mismatch),
    "NaN weights": (resealed, nan_weights),
    "weights elsewhere": (resealed, external_weights),
    "no model at all": (resealed, of_another_model),
}
SAYS = {
    "newer format": "manifest.json: bundle format 99 is newer",
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
                await app.service.reloader.reload(again=False)
            assert tried == ["2"], "polling does not load the same bad bundle for ever"
            assert (await tell(client)).status_code == 409
            assert tried == ["2", "2"]
            (models / "shop" / "2" / "manifest.json").write_bytes(manifest)  # written last: now it is whole
            await app.service.reloader.reload(again=False)
            assert await version(client) == "2"

    run(scenario)


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
