"""An interrupted run loses nothing and is never mixed with another."""

from pathlib import Path

import numpy as np
import pytest

from listwright.ranking.errors import RecipeError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.job_folder import folder_of
from listwright.training.pipeline.workspace import Workspace, next_version
from listwright.training.recipe import config


@pytest.fixture
def out(tmp_path):
    return tmp_path / "shop" / "1"


def recipe(seed=0):
    return config.load("demo", seed=seed)


def interrupted(out, recipe):
    """A run that was stopped after it had finished something."""
    with Workspace(out, recipe, resume=False) as workspace:
        (workspace.state / "trials.journal").write_text("done")
        (workspace.bundle / "qilcm.onnx").write_text("half")


def test_interrupted_run_needs_resume(out):
    interrupted(out, recipe())
    with pytest.raises(RecipeError, match="continue it with --resume"):
        Workspace(out, recipe(), resume=False)
    with Workspace(out, recipe(), resume=True) as workspace:
        assert workspace.state.is_dir()


def test_resume_keeps_checkpoints_and_drops_half_written_bundle_files(out):
    interrupted(out, recipe())
    with Workspace(out, recipe(), resume=True) as again:
        assert (again.state / "trials.journal").read_text() == "done"
        assert list(again.bundle.iterdir()) == []


def test_resume_with_another_recipe_is_refused(out):
    interrupted(out, recipe())
    with pytest.raises(RecipeError, match="had another recipe"):
        Workspace(out, recipe(seed=1), resume=True)
    with Workspace(out, recipe(), resume=True) as again:
        assert (again.state / "trials.journal").exists(), "the refusal must not have harmed it"


def test_a_run_that_finished_nothing_leaves_nothing(out):
    with Workspace(out, recipe(), resume=False):
        assert folder_of(out).is_dir()
    assert not folder_of(out).exists()


def test_a_run_that_is_going_on_is_left_alone(out):
    with Workspace(out, recipe(), resume=False) as running:
        (running.bundle / "qilcm.onnx").write_text("half")
        for resume in (False, True):
            with pytest.raises(RecipeError, match="is going on"):
                Workspace(out, recipe(), resume=resume)
        assert (running.bundle / "qilcm.onnx").exists()


def test_out_names_a_bundle_and_a_version():
    with pytest.raises(RecipeError, match="expected NAME/VERSION at its end"):
        Workspace(Path("shop"), recipe(), resume=False)


def test_nothing_to_resume_says_so(out):
    with pytest.raises(RecipeError, match="nothing to resume"):
        Workspace(out, recipe(), resume=True)


def test_a_published_bundle_is_never_overwritten(out):
    out.mkdir(parents=True)
    with pytest.raises(RecipeError, match="exists already"):
        Workspace(out, recipe(), resume=False)


@pytest.mark.parametrize("content", ["{", "{}", None])
def test_a_damaged_run_folder_says_what_to_do(out, content):
    interrupted(out, recipe())
    file = folder_of(out) / "run.json"
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(RecipeError, match="delete it"):
        Workspace(out, recipe(), resume=True)


def test_next_version_is_the_first_free_number(tmp_path):
    assert next_version(tmp_path, "shop") == tmp_path / "shop" / "1"
    (tmp_path / "shop" / "1").mkdir(parents=True)
    (tmp_path / "shop" / "3").mkdir()
    assert next_version(tmp_path, "shop") == tmp_path / "shop" / "2"


def test_resume_with_another_model_in_the_same_file_is_refused(out, tmp_path):
    values = np.zeros((2, 1), dtype=np.float32)
    schema = FeatureSchema(features=(Feature(name="f"),))
    part = Dataset(values, np.array([0, 1], np.int32), np.array([0, 2]), ("q",), schema)
    splits, model = Splits(part, part, part, "two rows"), tmp_path / "ranker.onnx"
    model.write_bytes(b"one")
    with Workspace(out, recipe(), resume=False) as workspace:
        workspace.belongs_to(splits, model)
        (workspace.state / "trials.journal").write_text("done")
    with Workspace(out, recipe(), resume=True) as again:
        again.belongs_to(splits, model)
        model.write_bytes(b"two")
        with pytest.raises(RecipeError, match="had another first stage"):
            again.belongs_to(splits, model)
