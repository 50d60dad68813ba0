"""The router: calibrated, cautious, and exported as it was fitted."""

import numpy as np
import pytest

from listwright.ranking.errors import DataError
from listwright.ranking.router import decide
from listwright.ranking.scorers import OnnxScorer
from listwright.ranking.stages import ColumnStage
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.letor.text import letor_schema
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.pipeline import specialists as fit
from listwright.training.pipeline.workspace import RunContext
from listwright.training.recipe import config
from listwright.training.recipe.config import Router
from listwright.training.recipe.model import QilcmSpec
from listwright.training.specialists.router import FEWEST, JudgedLists, calibrate, choose_margin, fit_router
from support.training.progress import RecordedProgress

SPEC = Router(trees=30)


def judged(rng, count, *, told, specialists=3):
    """Lists whose best specialist one aggregate tells, or none does; the generalist is as good as a mean specialist."""
    best = rng.integers(0, specialists, size=count)
    values = np.clip(0.5 + 0.1 * rng.normal(size=(count, specialists)), 0, 1)
    values[np.arange(count), best] += 0.3
    aggregates = rng.normal(size=(count, 6)).astype(np.float32)
    if told:
        aggregates[:, 2] = best + 0.1 * rng.normal(size=count)
    aggregates[rng.random(aggregates.shape) < 0.02] = np.nan
    return JudgedLists(aggregates, values, values.mean(axis=1) + 0.05)


def test_where_an_aggregate_tells_the_group_lists_are_routed_and_gain():
    rng = np.random.default_rng(0)
    fitted = fit_router(SPEC, judged(rng, 300, told=True), seed=0)
    assert fitted.stage.margin is not None
    fresh = judged(rng, 200, told=True)
    output = OnnxScorer(fitted.graph, 6, columns=6).score(fresh.aggregates).astype(np.float64)
    chosen = [decide(row[:3].tolist(), row[3:], fitted.stage).choice.specialist for row in output]
    routed = [n for n, k in enumerate(chosen) if k is not None]
    assert len(routed) > 150
    assert np.mean([fresh.gains[n, chosen[n]] for n in routed]) > 0.1
    assert np.mean([fresh.best[n, chosen[n]] for n in routed]) > 0.9


@pytest.mark.parametrize("seed", range(4))
def test_where_nothing_tells_it_abstains(seed):
    fitted = fit_router(SPEC, judged(np.random.default_rng(seed), 300, told=False), seed=seed)
    assert fitted.stage.margin is None
    assert fitted.facts["coverage"] == 0.0


def test_estimates_are_held_out():
    """In its own training lists a forest finds a pattern in noise; the facts must not."""
    fitted = fit_router(Router(trees=30, max_depth=20), judged(np.random.default_rng(1), 200, told=False), seed=0)
    assert fitted.facts["top1"] == pytest.approx(1 / 3, abs=0.12)


def test_equal_bests_share_the_target():
    lists = JudgedLists(np.zeros((2, 1)), np.array([[0.5, 0.5, 0.1], [0.0, 0.0, 0.0]]), np.array([0.4, 0.2]))
    assert lists.best == pytest.approx(np.array([[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]]))
    assert lists.gains == pytest.approx(np.array([[0.1, 0.1, -0.3], [-0.2, -0.2, -0.2]]))


@pytest.mark.parametrize("sharper", [0.5, 1.0, 2.0])
def test_calibration_finds_the_temperature_that_was_planted(sharper):
    rng = np.random.default_rng(0)
    truth = rng.dirichlet([1.0, 1.0, 1.0], size=4000)
    best = np.eye(3)[[rng.choice(3, p=p) for p in truth]]
    said = truth**sharper / (truth**sharper).sum(axis=1, keepdims=True)
    assert calibrate(said, best) == pytest.approx(sharper, rel=0.1)


def test_a_temperature_that_does_not_help_out_of_fold_is_not_taken():
    """Of right shares; of 40 lists, a fitted temperature follows chance."""
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = rng.dirichlet([1.0, 1.0, 1.0], size=40)
        found.append(calibrate(truth, np.eye(3)[[rng.choice(3, p=p) for p in truth]]))
    assert found.count(1.0) >= 10


def test_margin_keeps_what_surely_gains():
    rng = np.random.default_rng(0)
    estimated = np.linspace(-1, 1, 1000)
    gained = np.where(estimated > 0.5, 0.2, -0.2) + 0.05 * rng.normal(size=1000)
    margin, bound = choose_margin(estimated, gained, confidence=0.95)
    assert margin == pytest.approx(0.5, abs=0.01)
    assert 0.15 < bound < 0.2


@pytest.mark.parametrize("tied", [False, True])
def test_specialists_whose_order_never_changes(tied):
    """One is the best everywhere, or all are equal: nothing to tell apart, and no reason to fail."""
    rng = np.random.default_rng(0)
    values = np.tile([0.5, 0.5, 0.5] if tied else [0.9, 0.5, 0.1], (80, 1))
    lists = JudgedLists(rng.normal(size=(80, 4)).astype(np.float32), values, np.full(80, 0.6))
    fitted = fit_router(SPEC, lists, seed=0)
    assert (fitted.stage.margin is None) == tied
    assert fitted.facts["top1"] == 1.0


def test_equal_estimates_are_routed_together_or_not_at_all():
    estimated = np.repeat([0.3, 0.1], [100, 400])
    gained = np.repeat([0.2, -0.3], [100, 400]) + 0.01 * np.random.default_rng(0).normal(size=500)
    margin, _ = choose_margin(estimated, gained, confidence=0.95)
    assert margin is not None
    assert (estimated > margin).sum() == 100


def test_margin_of_noise_is_none():
    rng = np.random.default_rng(0)
    false_alarms = sum(
        choose_margin(rng.normal(size=200), rng.normal(size=200), confidence=0.95)[0] is not None for _ in range(200)
    )
    assert false_alarms <= 20  # 5 % for all tries together, 10 of 200


def test_too_few_lists_route_nothing():
    assert choose_margin(np.ones(FEWEST - 1), np.ones(FEWEST - 1), confidence=0.95) == (None, None)
    with pytest.raises(DataError, match="6 queries are too few for a router"):
        fit_router(SPEC, judged(np.random.default_rng(0), 6, told=True), seed=0)


def test_margin_is_never_below_zero():
    margin, _ = choose_margin(np.linspace(-1, 0.1, 500), np.ones(500) + 0.01 * np.arange(500), confidence=0.95)
    assert margin >= 0.0


def test_folds_are_told_before_the_first_is_done(monkeypatch, tmp_path):
    """So that whoever waits for a fold does not read of the step before it."""
    data = Dataset(
        np.zeros((40, 2), np.float32),
        np.zeros(40, np.int32),
        np.arange(0, 41, 4),
        tuple(map(str, range(10))),
        letor_schema(2),
    )

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit, "fit_network", stopped)
    recipe = config.changed(config.load("planted"), {"router": Router(folds=2)})
    splits = Splits(data, data, data, "made up")
    first = FittedFirstStage(ColumnStage(feature="f1"), None, np.zeros(40), np.zeros(40), {})
    progress = RecordedProgress()
    with pytest.raises(KeyboardInterrupt):
        fit._cross_fit(RunContext(recipe, splits, tmp_path, progress), QilcmSpec(), None, first, b"")
    ((title, told),) = progress.begun
    assert "folds" in title
    assert told.reached == []
