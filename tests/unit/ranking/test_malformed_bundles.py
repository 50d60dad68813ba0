"""Whatever stands in a bundle's folder, loading it gives a bundle or a BundleError, and nothing else.

Manifests, golden lists and graphs are altered with hashes made to agree, as who made the bundle could. The text of the
LightGBM model is altered in a process of its own: LightGBM trusts it, and a wrong number in it would end the process.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from functools import reduce
from operator import getitem

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listwright.ranking import bundle, golden
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import BundleError
from support.service.bundles import make_bundle
from support.strategies import scale_examples
from support.waiting import PATIENCE_S

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["..", "a/b", "\0", "qilcm.onnx"]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SAFE = ("golden.jsonl", "qilcm.onnx", "srm.onnx", "router.onnx", "anomaly.onnx")
TEXT_FILES = ("first_stage.txt", "probability.txt", "goal_0.txt")
FILES = (*TEXT_FILES, *SAFE)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    out = tmp_path_factory.mktemp("good") / "shop" / "1"
    return make_bundle(out, specialists=2, margin=0.25, probability="relevance", goals={"margin": 0.5})


@pytest.fixture(scope="module")
def spoilt(good, tmp_path_factory):
    """Puts files into a copy, and loads it."""
    folder = tmp_path_factory.mktemp("bad") / "shop" / "1"

    def load(files, *, agree=True):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        for name, content in files.items():
            if content is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(content)
        if agree:
            make_hashes_agree(folder)
        try:
            loaded = bundle.load(folder)
        except BundleError as error:
            return str(error)
        assert_it_answers_as_recorded(loaded)
        return None

    return load


def assert_it_answers_as_recorded(loaded):
    """The golden lists of what was accepted, whatever was altered; compared here and not by the code that loads."""
    lists = golden.read((loaded.path / "golden.jsonl").read_bytes(), loaded.path)
    assert lists
    for one in lists:
        candidates = CandidateList(np.array(one.features, dtype=np.float32))
        found = loaded.reranker.rerank(candidates, strategy=one.strategy, specialist=one.decided, routing=False)
        assert found.reason is None
        for name in ("first_stage_scores", "scores"):
            recorded = np.array(getattr(one, name), dtype=np.float64)
            np.testing.assert_allclose(getattr(found, name), recorded, rtol=1e-3, atol=1e-3)


def make_hashes_agree(folder):
    """Of the files, where the manifest still lists them, and of the manifest itself, where it is an object."""
    path = folder / "manifest.json"
    try:
        values = json.loads(path.read_bytes())
    except ValueError:
        return
    if isinstance(values, dict):
        for entry in values["files"] if isinstance(values.get("files"), list) else ():
            if isinstance(entry, dict) and entry.get("name") in FILES and (folder / entry["name"]).is_file():
                content = (folder / entry["name"]).read_bytes()
                entry |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        others = {name: value for name, value in values.items() if name != "sha256"}
        text = json.dumps(others, sort_keys=True, separators=(",", ":"))
        path.write_text(json.dumps(others | {"sha256": hashlib.sha256(text.encode()).hexdigest()}))


def places(value, path=()):
    """Every place in a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*path, key))


def put(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


def good_manifest(good):
    return (good / "manifest.json").read_bytes()


def meaning(text):
    """What the sha256 of a manifest is of, and that itself: white space is not; None where it is no JSON."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return None


def altered(content, data):
    """Cut, spliced or garbled."""
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.one_of(st.integers(start, min(len(content), start + 8)), st.just(len(content))))
    return content[:start] + data.draw(st.binary(max_size=8)) + content[end:]


def test_the_good_one_loads(spoilt):
    assert spoilt({}) is None


@pytest.mark.nightly
@settings(max_examples=scale_examples(200))
@given(data=st.data(), new=JSON)
def test_any_value_anywhere_in_the_manifest(good, spoilt, data, new):
    values = json.loads(good_manifest(good))
    path = data.draw(st.sampled_from(sorted(places(values), key=repr)))
    changed = json.dumps(put(values, path, new)).encode("utf-8", "surrogatepass")
    spoilt({"manifest.json": changed})
    assert (spoilt({"manifest.json": changed}, agree=False) is None) == (
        meaning(changed) == meaning(good_manifest(good))
    )


@pytest.mark.nightly
@settings(max_examples=scale_examples(100))
@given(data=st.data())
def test_any_bytes_for_a_manifest(good, spoilt, data):
    changed = altered(good_manifest(good), data)
    spoilt({"manifest.json": changed})
    assert (spoilt({"manifest.json": changed}, agree=False) is None) == (
        meaning(changed) == meaning(good_manifest(good))
    )


@pytest.mark.nightly
@settings(max_examples=scale_examples(200))
@given(data=st.data(), name=st.sampled_from(SAFE))
def test_any_bytes_for_a_file_with_hashes_that_agree(good, spoilt, data, name):
    spoilt({name: altered((good / name).read_bytes(), data)})


@given(data=st.data(), name=st.sampled_from(FILES))
def test_any_bytes_for_a_file_with_hashes_that_do_not(good, spoilt, data, name):
    content = (good / name).read_bytes()
    changed = altered(content, data)
    assert (spoilt({name: changed}, agree=False) is None) == (changed == content)


@pytest.mark.nightly
@settings(max_examples=scale_examples(100))
@given(data=st.data(), new=JSON)
def test_any_value_anywhere_in_the_golden_lists(good, spoilt, data, new):
    lines = (good / "golden.jsonl").read_text().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    values = json.loads(lines[number])
    path = data.draw(st.sampled_from(sorted(places(values), key=repr)))
    lines[number] = json.dumps(put(values, path, new))
    spoilt({"golden.jsonl": "\n".join(lines).encode("utf-8", "surrogatepass")})


def test_a_golden_value_that_float32_rounds_to_infinity_is_refused(good, spoilt):
    first, *others = (good / "golden.jsonl").read_text().splitlines()
    values = json.loads(first)
    values["features"][0][0] = 3.4028235677973366e38
    error = spoilt({"golden.jsonl": "\n".join([json.dumps(values), *others]).encode()})
    assert "3.4028235677973366e+38 is infinite as float32" in str(error)


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [
        (("file",), "first_stage.onnx", "needs the file 'first_stage.onnx'"),
        (("file",), "../probability.txt", "probability"),
        (("file",), "qilcm.onnx", "qilcm.onnx: "),
        (("slope",), -0.5, "probability.slope"),
        (("slope",), float("inf"), "probability.slope"),
        (("intercept",), None, "probability.intercept"),
        (("temperatures", "qilcm"), 0.0, "probability.temperatures.qilcm"),
        (("temperatures",), {"qilcm": 1.0, "srm": 1.0}, "temperature for each of the bundle's strategies"),
        (("temperatures", "dlcm"), 1.0, "temperature for each of the bundle's strategies"),
        (("lists",), 0, "probability.lists"),
        (("mean",), 1.5, "probability.mean"),
        (("more",), 1.0, "probability.more"),
    ],
)
def test_an_entry_of_probabilities_that_is_wrong_is_refused(good, spoilt, place, value, error):
    values = json.loads(good_manifest(good))
    *outer, name = ("probability", *place)
    reduce(getitem, outer, values)[name] = value
    assert error in str(spoilt({"manifest.json": json.dumps(values).encode()}))


def test_a_pointwise_model_of_other_features_or_cut_short_is_refused(good, spoilt):
    text = (good / "probability.txt").read_text()
    assert "probability.txt: not a LightGBM text model" in spoilt({"probability.txt": text[: len(text) // 2].encode()})
    other = text.replace("feature_names=Column_0 ", "feature_names=colour ")
    assert other != text
    assert "colour" in spoilt({"probability.txt": other.encode()})
    assert "probability.txt: does not exist" in spoilt({"probability.txt": None})


@pytest.mark.parametrize(("name", "value"), [("slope", 1e300), ("intercept", 1e300), ("intercept", -1e300)])
def test_a_calibration_beyond_all_measure_still_gives_probabilities(good, tmp_path, name, value):
    folder = tmp_path / "shop" / "1"
    shutil.copytree(good, folder)
    values = put(json.loads(good_manifest(good)), ("probability", name), value)
    (folder / "manifest.json").write_text(json.dumps(values))
    make_hashes_agree(folder)
    with pytest.raises(BundleError, match="probability are"):
        bundle.load(folder)
    lines = [json.loads(line) for line in (folder / "golden.jsonl").read_text().splitlines()]
    texts = [json.dumps({name: value for name, value in line.items() if name != "probability"}) for line in lines]
    (folder / "golden.jsonl").write_text("\n".join(texts) + "\n")
    make_hashes_agree(folder)
    recorded = golden.read((folder / "golden.jsonl").read_bytes(), folder)[3]
    candidates = CandidateList(np.array(recorded.features, dtype=np.float32))
    ranking = bundle.load(folder).reranker.rerank(candidates, probability=True)
    assert ((ranking.probability >= 0.0) & (ranking.probability <= 1.0)).all()
    assert (np.diff(ranking.probability[np.argsort(ranking.sort_keys)]) >= 0.0).all()


CHILD = """
import sys, pathlib
from listwright.ranking import bundle, golden
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import BundleError
try:
    bundle.load(pathlib.Path(sys.argv[1]))
except BundleError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tree_sizes=", "tree_sizes=" + "9" * 5000 + " "),
        ("pandas_categorical:null", "pandas_categorical:" + "[" * 10**5),
    ],
)
def test_numbers_and_nesting_without_end_in_a_lightgbm_text(good, spoilt, old, new):
    text = (good / "first_stage.txt").read_text()
    assert old in text
    assert "first_stage.txt: not a LightGBM text model" in spoilt({"first_stage.txt": text.replace(old, new).encode()})


PATHS = ("data", "valid", "forcedsplits_filename", "forcedbins_filename", "parser_config_file", "machine_list_filename")
"""The parameters that a LightGBM text repeats, and that name files to who fits one."""


def ends(code, *arguments, within):
    """Whether a process ends in time; one that opens a pipe that nobody writes to does not."""
    try:
        subprocess.run([sys.executable, "-c", code, *map(str, arguments)], timeout=within, check=True)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.nightly
def test_no_file_that_a_lightgbm_text_names_is_opened(good, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert not ends("import sys, lightgbm; lightgbm.Dataset(sys.argv[1]).construct()", tmp_path / "pipe", within=10)
    folder = tmp_path / "shop" / "1"
    shutil.copytree(good, folder)
    text = (folder / "first_stage.txt").read_text()
    for name in PATHS:
        assert f"[{name}: ]" in text
        text = text.replace(f"[{name}: ]", f"[{name}: {tmp_path / 'pipe'}]")
    (folder / "first_stage.txt").write_text(text)
    make_hashes_agree(folder)
    assert ends(CHILD, folder, within=PATIENCE_S)


TEXTS = {
    "cut": lambda text: text[: len(text) // 2],
    "no trees": lambda text: text.replace("Tree=", "Twig="),
    "leaf of another number": lambda text: text.replace("num_leaves=8", "num_leaves=7"),
    "no leaves": lambda text: text.replace("leaf_value=", "leaf_worth="),
    "words for numbers": lambda text: text.replace("threshold=", "threshold=x "),
    "other features": lambda text: text.replace("max_feature_idx=3", "max_feature_idx=900"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("how", TEXTS)
@pytest.mark.parametrize("name", TEXT_FILES)
def test_a_lightgbm_text_that_is_altered_never_serves(good, tmp_path, name, how):
    """It would end the process that loads it, and never becomes a bundle."""
    folder = tmp_path / "shop" / "1"
    shutil.copytree(good, folder)
    text = (folder / name).read_text()
    assert TEXTS[how](text) != text
    (folder / name).write_text(TEXTS[how](text))
    make_hashes_agree(folder)
    ended = subprocess.run([sys.executable, "-c", CHILD, str(folder)], capture_output=True, text=True, check=False)
    assert ended.returncode == 7, ended.stderr
