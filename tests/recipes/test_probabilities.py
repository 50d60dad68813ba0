"""Probabilities of being relevant, from a fit to the answers of its bundle."""

import io
import json

import lightgbm
import numpy as np
import pytest
from rich.console import Console

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.training.data.load import load
from listwright.training.estimator import Qilcm
from listwright.training.evaluation.probability import NO_BETTER
from listwright.training.pipeline import run as runs
from listwright.training.pipeline import steps
from listwright.training.pipeline.budget import Budget
from listwright.training.recipe import config
from support.training.tiny import TINY

LISTS = TINY.replace("queries = 60", "queries = 150")
FIRST_STAGE_ALONE = LISTS.partition("[model]")[0] + '[model]\nkind = "first_stage"\n'


def recipe_of(folder, text):
    path = folder / "many.toml"
    path.write_text(text)
    return config.load(str(path))


def fitted(recipe, out, budget=None, **options):
    text = io.StringIO()
    runs.run(recipe, [], out, budget=budget, console=Console(file=text, width=200), **options)
    return bundle.load(out), json.loads((out / "report.json").read_text()), text.getvalue()


def sealed(loaded):
    return loaded.manifest.probability, (loaded.path / "probability.txt").read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    recipe = recipe_of(folder, FIRST_STAGE_ALONE)
    return recipe, fitted(recipe, folder / "many" / "1")


def test_a_bundle_states_probabilities_that_fall_along_its_order(alone):
    recipe, (loaded, report, _) = alone
    stage, reranker = loaded.manifest.probability, loaded.reranker
    assert stage.lists == 30
    assert set(stage.temperatures) == {"first_stage"}
    assert "no_probability" not in report["details"]
    assert "probabilities" in report["measured_here"]["seconds"]
    losses, rates = [], []
    for features, labels in load(recipe, []).test.lists():
        ranking = reranker.rerank(CandidateList(features), probability=True)
        assert (np.diff(ranking.probability[ranking.order]) <= 0.0).all()
        assert ranking.probability.sum() == pytest.approx(reranker.calibration.expected(features), abs=1e-9)
        happened = labels > 0
        losses += np.where(happened, -np.log(ranking.probability), -np.log1p(-ranking.probability)).tolist()
        rates += np.where(happened, -np.log(stage.mean), -np.log1p(-stage.mean)).tolist()
    assert np.mean(losses) < np.mean(rates)


def test_too_few_validation_lists_are_told(fitted):
    """The tiny recipe has 12 of them."""
    loaded = bundle.load(fitted)
    assert loaded.manifest.probability is None
    assert not (fitted / "probability.txt").exists()
    reason = json.loads((fitted / "report.json").read_text())["details"]["no_probability"]
    assert "12 validation lists" in reason


@pytest.mark.nightly
def test_the_same_fit_gives_the_same_probabilities(alone, tmp_path):
    recipe, (loaded, _, _) = alone
    assert sealed(fitted(recipe, tmp_path / "many" / "1")[0]) == sealed(loaded)


@pytest.mark.nightly
def test_every_ranker_of_a_bundle_is_calibrated(tmp_path):
    recipe = recipe_of(tmp_path, LISTS)
    loaded, _, _ = fitted(recipe, tmp_path / "many" / "1")
    assert set(loaded.manifest.probability.temperatures) == set(loaded.manifest.strategies) == {"qilcm", "first_stage"}
    features = next(load(recipe, []).test.lists())[0]
    for strategy in loaded.manifest.strategies:
        ranking = loaded.reranker.rerank(CandidateList(features), strategy=strategy, probability=True)
        assert (np.diff(ranking.probability[ranking.order]) <= 0.0).all()


@pytest.mark.nightly
def test_the_pointwise_model_sees_the_columns_of_the_first_stage(tmp_path):
    recipe = recipe_of(tmp_path, FIRST_STAGE_ALONE.replace("folds = 3", 'folds = 3\nrelative = ["z", "rank"]'))
    loaded, report, _ = fitted(recipe, tmp_path / "many" / "1")
    manifest, calibration = loaded.manifest, loaded.reranker.calibration
    assert manifest.probability.relative
    model = lightgbm.Booster(model_file=loaded.path / "probability.txt")
    assert model.num_feature() == len(manifest.feature_schema) + len(manifest.relative)
    test = load(recipe, []).test
    stated = np.concatenate([calibration.pointwise(features) for features, _ in test.lists()])
    loss = -np.log(np.where(test.labels > 0, stated, 1.0 - stated)).mean()
    rival = next(row for row in report["details"]["probability"]["stated"] if row["by"] == "pointwise")
    assert rival["log_loss"] == pytest.approx(loss)


@pytest.mark.nightly
def test_an_interrupted_fit_goes_on_with_its_pointwise_model(alone, tmp_path, monkeypatch):
    recipe, (loaded, _, _) = alone

    def interrupt(*_given):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "write_bundle", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fitted(recipe, tmp_path / "many" / "1")
    monkeypatch.undo()
    monkeypatch.setattr(steps.pointwise, "fit_pointwise", interrupt)
    assert sealed(fitted(recipe, tmp_path / "many" / "1", resume=True)[0]) == sealed(loaded)


class Clock:
    """Stands still, but where a test moves it on."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.nightly
@pytest.mark.parametrize("step", ["fit_pointwise", "trees", "folds"])
def test_what_the_clock_ends_is_told_and_repeated(alone, tmp_path, monkeypatch, step):
    recipe, (whole, _, _) = alone
    clock, first, boost = Clock(), steps.fit_pointwise, steps.pointwise.fit_pointwise

    def late(run, fitted):
        clock.now += 1e4
        return first(run, fitted)

    def late_within(train, valid, *, report, goes_on, **options):
        def report_late(trees, loss):
            clock.now += 1e4 if step == "trees" else 0.0
            report(trees, loss)

        def goes_on_late(fold, seconds):
            clock.now += 1e4 if step == "folds" else 0.0
            return goes_on(fold, seconds)

        return boost(train, valid, report=report_late, goes_on=goes_on_late, **options)

    if step == "fit_pointwise":
        monkeypatch.setattr(steps, "fit_pointwise", late)
    else:
        monkeypatch.setattr(steps.pointwise, "fit_pointwise", late_within)
    ended, report, text = fitted(recipe, tmp_path / "many" / "1", Budget(10.0, clock=clock))
    monkeypatch.undo()
    again, _, _ = fitted(recipe, tmp_path / "many" / "2", Budget(replay=report["budget"]))
    if step == "fit_pointwise":
        assert report["budget"]["left_out"] == ["probabilities"]
        assert report["details"]["no_probability"] in " ".join(text.split())
        assert ended.manifest.probability is again.manifest.probability is None
    else:
        assert report["budget"]["ends"]
        assert sealed(ended) != sealed(whole)
        assert sealed(ended) == sealed(again)


@pytest.mark.nightly
def test_labels_that_nothing_predicts_get_no_probabilities():
    rng = np.random.default_rng(0)
    features, qid = rng.normal(size=(1500, 3)), np.repeat(np.arange(150), 10)
    labels = (rng.random(1500) < 0.3).astype(int)
    shuffled = Qilcm(model="first_stage", trials=1, max_trees=20, folds=2).fit(features, labels, qid)
    assert shuffled.manifest_.probability is None
    assert shuffled.report_["details"]["no_probability"] == NO_BETTER
    planted = (features[:, 0] + 0.5 * rng.normal(size=1500) > 0.7).astype(int)
    estimator = Qilcm(model="first_stage", trials=1, max_trees=20, folds=2).fit(features, planted, qid)
    assert estimator.manifest_.probability is not None
    assert "probability.txt" in estimator.files_
