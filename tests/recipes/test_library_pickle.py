"""A fitted ``training.Qilcm`` travels with its bundle inside: pickled, copied, cloned, searched over in other processes."""

import copy
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score

from listwright import training
from listwright.ranking import bundle
from listwright.ranking.errors import BundleError, DataError
from support.training.searches import SMALL, features
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]

ELSEWHERE = """
import pickle, sys
from pathlib import Path
import numpy as np
model = pickle.loads(Path(sys.argv[1]).read_bytes())
X, search = pickle.loads(Path(sys.argv[2]).read_bytes())
np.save(sys.argv[3], model.predict(X, search))
model.save(sys.argv[4])
"""


def through_joblib(model):
    with tempfile.TemporaryFile() as file:
        joblib.dump(model, file)
        file.seek(0)
        return joblib.load(file)


def predicted(model, frame):
    return model.predict(features(frame), frame["search"])


def test_another_process_answers_the_same_to_the_bit(model, frame, tmp_path):
    """After the original's folder is gone: the files of the bundle are in the pickle."""
    pickled, rows, scores, saved = (tmp_path / name for name in ("model.pkl", "rows.pkl", "scores.npy", "shop/3"))
    pickled.write_bytes(pickle.dumps(model))
    rows.write_bytes(pickle.dumps((features(frame), frame["search"])))
    command = [sys.executable, "-c", ELSEWHERE, *map(str, (pickled, rows, scores, saved))]
    subprocess.run(command, cwd=ROOT, check=True, timeout=PATIENCE_S)
    np.testing.assert_array_equal(np.load(scores), predicted(model, frame))
    ours, theirs = model.files_, bundle.load(saved)
    assert (theirs.manifest.name, theirs.manifest.version) == ("shop", "3")
    same = set(ours) - {"report.html", "report.json"}
    assert same == {"first_stage.txt", "qilcm.onnx", "anomaly.onnx", "golden.jsonl"}
    assert all((saved / name).read_bytes() == ours[name] for name in same)


@pytest.mark.parametrize(
    "copied",
    [
        *(lambda model, n=n: pickle.loads(pickle.dumps(model, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)),
        copy.copy,
        copy.deepcopy,
        through_joblib,
        lambda model: pickle.loads(pickle.dumps(copy.deepcopy(model))),
    ],
)
def test_a_copy_is_fitted_as_the_original(model, frame, copied):
    again = copied(model)
    np.testing.assert_array_equal(predicted(again, frame), predicted(model, frame))
    assert again.reranker_ is not model.reranker_
    assert again.get_params() == model.get_params()
    assert (again.manifest_, again.files_, again.report_) == (model.manifest_, model.files_, model.report_)
    assert again.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    assert again.n_features_in_ == model.n_features_in_


def test_a_copy_is_its_own(model):
    again = copy.deepcopy(model).set_params(hidden=(9,))
    again.files_["golden.jsonl"] = b""
    assert model.hidden == SMALL["hidden"]
    assert len(model.files_["golden.jsonl"]) > 0


def test_a_bundle_of_the_command_line_travels_too(fitted):
    model = training.Qilcm.load(fitted)
    row = [[1.0, 2.0, 3.0, 4.0, "v1"]]
    assert pickle.loads(pickle.dumps(model)).predict(row, ["only"]).tolist() == model.predict(row, ["only"]).tolist()


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy, through_joblib, clone])
def test_what_is_not_fitted_stays_so(copied):
    again = copied(training.Qilcm(hidden=(7,), categorical=("stops",)))
    assert (again.hidden, again.categorical) == ((7,), ("stops",))
    with pytest.raises(NotFittedError):
        again.predict([[1.0]], [1])


def test_a_clone_of_a_fitted_one_is_not_fitted(model):
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert not hasattr(again, "files_")


def test_what_the_caller_adds_goes_along(model):
    again = copy.copy(model)
    again.note = "of last week"
    assert pickle.loads(pickle.dumps(again)).note == "of last week"


def altered(state, name, change):
    return {**state, "files_": {**state["files_"], name: change(state["files_"][name])}}


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("first_stage.txt", lambda text: text[:-1] + b"x", r"first_stage\.txt: does not match its sha256"),
        ("qilcm.onnx", lambda graph: graph[:-1], r"qilcm\.onnx: has \d+ bytes instead of"),
        ("manifest.json", lambda text: text.replace(b"library", b"librarx"), r"manifest\.json: does not match its own"),
        ("manifest.json", lambda text: b"{", r"manifest\.json: not JSON"),
    ],
)
def test_a_pickle_is_checked_as_a_bundle_is(model, name, change, says):
    state = altered(model.__getstate__(), name, change)
    with pytest.raises(BundleError, match=f"pickled Qilcm.*{says}"):
        training.Qilcm().__setstate__(state)


def test_a_pickle_without_a_file_is_refused(model):
    state = model.__getstate__()
    files = {name: content for name, content in state["files_"].items() if name != "qilcm.onnx"}
    with pytest.raises(BundleError, match=r"qilcm\.onnx: is not there"):
        training.Qilcm().__setstate__({**state, "files_": files})


@pytest.fixture
def routed():
    """An estimator whose metadata scikit-learn hands on."""
    with sklearn.config_context(enable_metadata_routing=True):
        small = SMALL | {"model": "first_stage", "max_trees": 3}
        yield training.Qilcm(**small).set_fit_request(qid=True).set_score_request(qid=True)


def test_cross_validation_in_two_processes(routed, frame):
    search = frame["search"].to_numpy()
    words = {"params": {"qid": search, "groups": search}, "cv": GroupKFold(2), "error_score": "raise"}
    X, y = features(frame), frame["clicked"]
    apart = cross_val_score(routed, X, y, n_jobs=2, **words)
    assert apart.tolist() == cross_val_score(routed, X, y, n_jobs=1, **words).tolist()
    assert (apart > 0.5).all()
    with pytest.raises(DataError, match="column price: expected a number that fits float32; found inf"):
        cross_val_score(routed, X.assign(price=np.inf), y, n_jobs=2, **words)


def test_the_best_of_a_search_is_used_and_travels(routed, frame, tmp_path):
    search = frame["search"].to_numpy()
    grid = GridSearchCV(routed, {"max_trees": [1, 4]}, cv=GroupKFold(2), n_jobs=2, error_score="raise")
    grid.fit(features(frame), frame["clicked"], qid=search, groups=search)
    best = grid.best_estimator_
    assert best.max_trees == grid.best_params_["max_trees"]
    again = pickle.loads(pickle.dumps(grid)).best_estimator_
    np.testing.assert_array_equal(predicted(again, frame), predicted(best, frame))
    saved = bundle.load(best.save(tmp_path / "shop" / "1"))
    assert saved.manifest.recipe["first_stage"]["max_trees"] == best.max_trees
