"""A good bundle loads; every way of spoiling one is refused with the file and the reason."""

import json
import os
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from listwright.ranking import bundle, manifest
from listwright.ranking.commands import verify
from listwright.ranking.errors import BundleError, BundleFormatError
from listwright.ranking.features import FLOAT32_MAX, FeatureSchema
from listwright.ranking.manifest import FORMAT_VERSION
from listwright.ranking.relative import NUMBER_KINDS
from listwright.ranking.stages import MANIFEST
from support.service.bundles import make_bundle
from support.service.spoiling import edit_manifest, rehash


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1")


@pytest.fixture
def spoiled(good, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(good, tmp_path / "shop" / "1")


def refusal(folder):
    with pytest.raises(BundleError) as caught:
        bundle.load(folder)
    return caught.value


def test_good_bundle_loads(good):
    loaded = bundle.load(good)
    assert (loaded.manifest.name, loaded.manifest.version) == ("shop", "1")


@pytest.mark.parametrize("name", ["first_stage.txt", "qilcm.onnx", "golden.jsonl"])
def test_truncated_file_is_refused(spoiled, name):
    content = (spoiled / name).read_bytes()
    (spoiled / name).write_bytes(content[: len(content) // 2])
    error = refusal(spoiled)
    assert error.file.name == name
    assert "truncated" in error.reason


@pytest.mark.parametrize("name", ["first_stage.txt", "qilcm.onnx", "golden.jsonl"])
def test_altered_file_is_refused(spoiled, name):
    content = bytearray((spoiled / name).read_bytes())
    content[len(content) // 2] ^= 1
    (spoiled / name).write_bytes(content)
    error = refusal(spoiled)
    assert error.file.name == name
    assert "sha256" in error.reason


@pytest.mark.parametrize("name", ["first_stage.txt", "qilcm.onnx", "golden.jsonl"])
def test_missing_file_is_refused(spoiled, name):
    (spoiled / name).unlink()
    assert "does not exist, although the manifest lists it" in str(refusal(spoiled))


def test_no_manifest_no_bundle(spoiled):
    (spoiled / MANIFEST).unlink()
    assert "not the folder of a bundle" in str(refusal(spoiled))


def test_a_folder_of_versions_is_refused_with_one_of_them(spoiled):
    assert f"name a version, such as {spoiled.name}" in str(refusal(spoiled.parent))


def test_truncated_manifest_is_refused(spoiled):
    text = (spoiled / MANIFEST).read_text()
    (spoiled / MANIFEST).write_text(text[: len(text) // 2])
    assert "not JSON" in str(refusal(spoiled))


def test_altered_manifest_is_refused(spoiled):
    path = spoiled / MANIFEST
    path.write_text(path.read_text().replace('"cutoff": 100', '"cutoff": 90'))
    error = refusal(spoiled)
    assert error.file == path
    assert "does not match its own sha256" in error.reason


def test_newer_format_is_refused_by_number(spoiled):
    edit_manifest(spoiled, lambda manifest: manifest.update(format_version=99, unheard_of=1))
    error = refusal(spoiled)
    assert isinstance(error, BundleFormatError)
    assert f"bundle format 99 is newer than {FORMAT_VERSION}" in str(error)


@pytest.mark.parametrize("version", [None, 0, "1", True])
def test_manifest_without_a_format_version_is_refused(spoiled, version):
    edit_manifest(spoiled, lambda manifest: manifest.update(format_version=version))
    assert "format_version" in str(refusal(spoiled))


@pytest.mark.parametrize("name", ["../outside.onnx", "/etc/passwd", "sub/qilcm.onnx", "..", MANIFEST, ""])
def test_path_outside_the_folder_is_refused(spoiled, name):
    edit_manifest(spoiled, lambda manifest: manifest["files"][0].update(name=name))
    assert "not the name of a file directly inside the bundle" in str(refusal(spoiled))
    edit_manifest(spoiled, lambda manifest: manifest["files"][0].update(name="golden.jsonl"))
    edit_manifest(spoiled, lambda manifest: manifest["second_stages"][0].update(file=name))
    assert "second_stages.0.file" in str(refusal(spoiled))


def test_link_out_of_the_folder_is_refused(spoiled, tmp_path):
    (spoiled / "qilcm.onnx").rename(tmp_path / "elsewhere.onnx")
    (spoiled / "qilcm.onnx").symlink_to(tmp_path / "elsewhere.onnx")
    assert "link that leads out" in str(refusal(spoiled))


@pytest.mark.parametrize("name", ["golden.jsonl", MANIFEST])
def test_pipe_is_refused_rather_than_waited_for(spoiled, name):
    (spoiled / name).unlink()
    os.mkfifo(spoiled / name)
    assert "is not a plain file" in refusal(spoiled).reason


def test_loop_of_links_is_refused(spoiled):
    (spoiled / "qilcm.onnx").unlink()
    (spoiled / "qilcm.onnx").symlink_to("qilcm.onnx")
    error = refusal(spoiled)
    assert error.file.name == "qilcm.onnx"
    assert "cannot be read" in error.reason


def test_other_model_with_right_hashes_fails_its_golden_lists(spoiled, tmp_path):
    other = make_bundle(tmp_path / "other" / "1", cutoff=3)
    manifest = json.loads((spoiled / MANIFEST).read_text())
    assert manifest["second_stages"][0]["cutoff"] == 100
    shutil.copy(other / "golden.jsonl", spoiled / "golden.jsonl")
    rehash(spoiled, "golden.jsonl")
    error = refusal(spoiled)
    assert error.file.name == "golden.jsonl"
    assert "line 4" in error.reason, "lists of up to three candidates do not tell the two cutoffs apart"
    assert "does not compute what the trainer computed" in error.reason


def test_model_that_gives_nan_is_refused(tmp_path, spoiled):
    """NaN weights: the golden lists notice before any caller does."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(spoiled / "qilcm.onnx")
    for initializer in model.graph.initializer:
        if initializer.name == "w":
            weights = numpy_helper.to_array(initializer) * float("nan")
            initializer.CopyFrom(numpy_helper.from_array(weights, "w"))
    (spoiled / "qilcm.onnx").write_bytes(model.SerializeToString())
    rehash(spoiled, "qilcm.onnx")
    assert "second stage gave nan" in str(refusal(spoiled))


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("qilcm.onnx", b"not a graph", "not an ONNX graph"),
        ("first_stage.txt", b"not a model", "not a LightGBM text model"),
        ("first_stage.txt", b"\xff\xfe", "UTF-16"),
        ("golden.jsonl", b"{}\n", "line 1"),
        ("golden.jsonl", b"", "no golden lists"),
    ],
)
def test_garbage_with_right_hashes_is_refused(spoiled, name, content, why):
    (spoiled / name).write_bytes(content)
    rehash(spoiled, name)
    error = refusal(spoiled)
    assert error.file.name == name
    assert why in error.reason


def test_graph_of_another_width_is_refused(spoiled):
    edit_manifest(spoiled, lambda manifest: manifest["second_stages"][0].update(first_stage_score=False))
    error = refusal(spoiled)
    assert error.file.name == "qilcm.onnx"
    assert "not features (C, 4) to scores (C,)" in error.reason


def test_published_version_is_never_replaced(spoiled, tmp_path):
    other = make_bundle(tmp_path / "other" / "1")
    with pytest.raises(BundleError, match="never changes"):
        bundle.publish(other, spoiled)
    assert other.exists()


def test_verify_command(good, spoiled, capsys):
    assert verify.main([str(good)]) == 0
    assert "shop/1: good" in capsys.readouterr().out
    (spoiled / "qilcm.onnx").write_bytes(b"")
    assert verify.main([str(spoiled)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("refused: ")
    assert "qilcm.onnx: has 0 bytes" in captured.err


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1", specialists=3, margin=0.0)


@pytest.fixture
def spoiled_router(routed, tmp_path):
    return shutil.copytree(routed, tmp_path / "shop" / "1")


def test_format_1_has_no_specialists():
    manifest = bundle.load(Path(__file__).parents[2] / "golden" / "format_1" / "shop" / "1").manifest
    assert (manifest.format_version, manifest.srm, manifest.router, manifest.anomaly) == (1, None, None, None)
    assert manifest.strategies == ("qilcm", "first_stage")


@pytest.mark.parametrize("name", ["srm.onnx", "router.onnx", "anomaly.onnx"])
def test_damaged_graphs_of_the_router_are_refused_by_name(spoiled_router, name):
    content = (spoiled_router / name).read_bytes()
    for damaged in (content[: len(content) // 2], b"garbage", content[:40] + b"\xff\xfe\xfd" + content[43:]):
        (spoiled_router / name).write_bytes(damaged)
        rehash(spoiled_router, name)
        assert refusal(spoiled_router).file.name in (name, "golden.jsonl")


@pytest.mark.parametrize("name", ["srm.onnx", "router.onnx", "anomaly.onnx"])
def test_swapped_graphs_are_refused(spoiled_router, name):
    other = "anomaly.onnx" if name != "anomaly.onnx" else "router.onnx"
    (spoiled_router / name).write_bytes((spoiled_router / other).read_bytes())
    rehash(spoiled_router, name)
    error = refusal(spoiled_router)
    assert error.file.name == name
    assert "the graph maps" in error.reason


def test_reordered_mixture_weights_are_noticed(spoiled_router):
    edit_manifest(spoiled_router, lambda manifest: manifest["srm"]["specialists"].reverse())
    assert refusal(spoiled_router).file.name == "golden.jsonl"


METRIC = {"ranker": "qilcm", "name": "mrr", "mean": float("nan"), "low": 0.0, "high": 1.0, "n": 3}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda manifest: manifest.update(metrics=[METRIC]), "metrics.0.mean"),
        (lambda manifest: manifest["feature_schema"]["features"].reverse(), "fingerprint does not belong"),
        (lambda manifest: manifest["srm"]["specialists"][0].update(weight=0.0), "weights add up to"),
        (lambda manifest: manifest.update(anomaly=None), "a router needs specialists and the anomaly score"),
        (lambda manifest: manifest["router"].update(temperature=50.0), "the router's probabilities are"),
    ],
)
def test_a_manifest_that_contradicts_itself_or_its_golden_lists_is_refused(spoiled_router, edit, says):
    edit_manifest(spoiled_router, edit)
    assert says in refusal(spoiled_router).reason


def sized(values, size):
    """The text of a manifest, its blanks filled up."""
    text = json.dumps(values).encode()
    return text + b" " * (size - len(text))


def test_a_manifest_may_have_as_many_bytes_as_the_limit(spoiled):
    values = json.loads((spoiled / "manifest.json").read_text())
    assert bundle.parse(sized(values, manifest.MAX_MANIFEST_BYTES), "x").name == values["name"]
    with pytest.raises(BundleError, match=f"has {2**23 + 1} bytes; the limit is {2**23}"):
        bundle.parse(sized(values, manifest.MAX_MANIFEST_BYTES + 1), "x")


def test_a_manifest_may_have_as_many_values_as_the_limit(spoiled, monkeypatch):
    text = (spoiled / "manifest.json").read_bytes()
    marks = sum(map(text.count, b",[{"))
    monkeypatch.setattr(manifest, "MOST_VALUES", marks)
    assert bundle.parse(text, "x")
    monkeypatch.setattr(manifest, "MOST_VALUES", marks - 1)
    with pytest.raises(BundleError, match="more than"):
        bundle.parse(text, "x")


@pytest.mark.parametrize("field", ["files", "metrics", "choice", "relative", "second_stages", "validated_lengths"])
def test_of_many_faults_the_first_is_made_and_no_other(spoiled, field):
    values = json.loads((spoiled / "manifest.json").read_text()) | {field: ["x"] * 10_000}
    with pytest.raises(ValidationError) as raised:
        manifest.Manifest.model_validate(values)
    assert raised.value.error_count() == 1


def test_a_manifest_holds_thousands_of_features_and_their_list_relative_columns(spoiled):
    """As a table has that is made of crossed columns, or of embeddings."""
    quantiles = [-FLOAT32_MAX / (7 + n) for n in range(7)]
    features = [{"name": f"interaction_of_customer_and_product_{n}", "quantiles": quantiles} for n in range(1500)]
    relative = [
        {"feature": feature["name"], "kind": kind, "scale": 1 / 3, "quantiles": quantiles}
        for feature in features
        for kind in NUMBER_KINDS
    ]
    schema = FeatureSchema.model_validate({"features": features})
    values = bundle.read_manifest(spoiled).model_dump() | {"fingerprint": schema.fingerprint}
    wide = manifest.Manifest.model_validate(values | {"feature_schema": schema, "relative": relative})
    assert len(bundle.parse(manifest.to_json(wide).encode(), "x").relative) == 3000


def test_files_may_have_as_many_bytes_together_as_the_limit(spoiled, monkeypatch):
    text = (spoiled / "manifest.json").read_bytes()
    total = sum(file.size for file in bundle.parse(text, "x").files)
    monkeypatch.setattr(manifest, "_MOST_FILES_BYTES", total)
    assert bundle.parse(text, "x")
    monkeypatch.setattr(manifest, "_MOST_FILES_BYTES", total - 1)
    with pytest.raises(BundleError, match=f"files have {total} bytes together; the limit is {total - 1}"):
        bundle.parse(text, "x")


def test_a_manifest_that_readers_would_refuse_is_not_written(spoiled, monkeypatch):
    before = (spoiled / "manifest.json").read_bytes()
    read = bundle.parse(before, "x")
    monkeypatch.setattr(manifest, "MAX_MANIFEST_BYTES", len(before) - 1)
    with pytest.raises(BundleError, match="use fewer features or categories"):
        bundle.seal(spoiled, read, [file.name for file in read.files])
    assert (spoiled / "manifest.json").read_bytes() == before


def test_a_byte_order_mark_before_the_lightgbm_text_says_nothing(spoiled):
    text = (spoiled / "first_stage.txt").read_bytes()
    (spoiled / "first_stage.txt").write_bytes(b"\xef\xbb\xbf" + text)
    rehash(spoiled, "first_stage.txt")
    assert bundle.load(spoiled).reranker.first_stage.engine in ("compiled", "lightgbm")
