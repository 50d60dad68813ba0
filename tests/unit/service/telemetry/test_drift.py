"""What differs from the training data is counted, and nothing else, and not for every list."""

import gc
import weakref

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from listwright.ranking import bundle
from listwright.ranking.errors import ScoringError
from listwright.ranking.features import MISSING_CODE, QUANTILE_LEVELS, UNKNOWN_CODE, Feature, FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.probability import Calibration
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import AnomalyStage, ProbabilityStage
from listwright.service.telemetry.metrics import ANOMALY, EVERY_S, KINDS, Drift, unusual
from support.service.bundles import make_bundle
from support.stand_ins import Clock, Inline, standing_in

QUANTILES = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
SCHEMA = FeatureSchema(
    features=(
        Feature(name="price", quantiles=QUANTILES),
        Feature(name="carrier", kind="categorical", categories=("A5", "B2")),
        Feature(name="bm25", missing_in_training=True),
    )
)
NAN = np.nan


class Constant:
    """An anomaly score."""

    def __init__(self, score):
        self.score = score

    def of(self, features, first_scores):
        if self.score is None:
            raise ScoringError("no number")
        return self.score


class Ranker(Reranker):
    def __init__(self, anomaly=None, version="7", expected=None):
        quantiles = (0.35, 0.37, 0.42, 0.45, 0.5, 0.6, 0.7)
        stage = AnomalyStage(quantiles=quantiles) if anomaly else None
        self.anomaly, self.relative = anomaly, None
        probability = self.calibration = None
        if expected is not None:
            probability = ProbabilityStage(slope=1.0, intercept=0.0, temperatures={}, lists=9, mean=0.25)
            self.calibration = standing_in(Calibration, expected=lambda features: expected)
        self.manifest = standing_in(
            Manifest, name="shop", version=version, feature_schema=SCHEMA, anomaly=stage, probability=probability
        )


@pytest.fixture
def clock():
    return Clock(0.0)


@pytest.fixture
def drift(clock):
    drift = Drift(Inline(), clock)
    drift.keep(frozenset({("shop", "7")}))
    return drift


def shown(drift):
    registry = CollectorRegistry()
    registry.register(drift)
    lines = generate_latest(registry).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_values_are_held_against_their_own_feature():
    features = np.array(
        [[-2.1, 1, NAN], [-2.0, 0, 1e30], [2.0, 2, 0.0], [2.1, MISSING_CODE, NAN], [NAN, 1, -1e30]], dtype=np.float32
    )
    found = {kind: counts.tolist() for kind, counts in zip(KINDS, unusual(features, SCHEMA), strict=True)}
    assert found == {"missing": [1, 1, 2], "below": [1, 0, 0], "above": [1, 0, 0], "unknown": [0, 1, 0]}, (
        "on the quantile is in range; without quantiles nothing is out of it; a category is never out of range"
    )


def test_counts_add_up_under_the_bundle(drift, clock):
    rows = np.array([[9.0, 0, NAN], [0.0, 1, NAN]], dtype=np.float32)
    for _ in range(3):
        drift.note(rows, np.zeros(2), Ranker())
        clock.now += EVERY_S
    found = shown(drift)
    of = 'model="shop",version="7"'
    assert found[f"listwright_drift_candidates_total{{{of}}}"] == "6.0"
    above = 'listwright_drift_values_total{feature="price",kind="above",model="shop",version="7"}'
    assert found[above] == "3.0"
    assert found[above.replace("price", "bm25").replace("above", "missing")] == "6.0"
    assert found[above.replace("price", "carrier").replace("above", "unknown")] == "3.0"
    assert found[above.replace("above", "below")] == "0.0", "or the first would not be a rise"
    assert found[above.replace("price", "carrier").replace("above", "missing")] == "0.0"
    assert not any('feature="carrier"' in name and ("below" in name or "above" in name) for name in found)
    assert not any("anomal" in name for name in found), "this bundle has no forest"


@pytest.mark.parametrize(
    ("unknown", "missing", "known", "warnings"), [(60, 0, 50, 1), (60, 50, 50, 1), (49, 100, 51, 0), (60, 10, 30, 0)]
)
def test_mostly_unknown_categories_are_said_once_in_the_log(drift, clock, caplog, unknown, missing, known, warnings):
    """Missing ones do not count, and a hundred must be there."""
    codes = [UNKNOWN_CODE] * unknown + [MISSING_CODE] * missing + [1] * known
    rows = np.array([[0.0, code, 0.0] for code in codes], dtype=np.float32)
    for part in np.array_split(rows, 10) * (2 if warnings else 1):
        drift.note(part, np.zeros(len(part)), Ranker())
        clock.now += EVERY_S
    assert [record.levelname for record in caplog.records] == ["WARNING"] * warnings
    assert all("'carrier'" in record.message for record in caplog.records)


def test_one_list_in_a_while_is_looked_at(drift, clock):
    for _ in range(1000):
        drift.note(np.zeros((1, 3), dtype=np.float32), np.zeros(1), Ranker())
        clock.now += EVERY_S / 100
    (count,) = [value for name, value in shown(drift).items() if name.startswith("listwright_drift_candidates")]
    assert 10 <= float(count) <= 11


def test_anomaly_scores_are_a_distribution_beside_that_of_training(drift, clock):
    scores = (0.2, 0.45, 0.61, 0.95)
    for score in scores:
        drift.note(np.zeros((1, 3), dtype=np.float32), np.zeros(1), Ranker(Constant(score)))
        clock.now += EVERY_S
    drift.note(np.zeros((1, 3), dtype=np.float32), np.array([NAN]), Ranker(Constant(0.5)))
    found = shown(drift)
    bucket = 'listwright_anomaly_score_bucket{{le="{}",model="shop",version="7"}}'
    assert [float(found[bucket.format(le)]) for le in (0.3, 0.425, 0.45, 0.6, 0.625, 0.8, "+Inf")] == [
        1,
        1,
        2,
        2,
        3,
        3,
        4,
    ], "a list without first-stage scores has no top to look at"
    of = '{model="shop",version="7"}'
    assert float(found["listwright_anomaly_score_sum" + of]) == pytest.approx(sum(scores))
    assert found["listwright_anomalous_queries_total" + of] == "2.0", "above 0.6, the 0.99 quantile of training's"
    place = 'listwright_anomaly_training_quantile{{model="shop",quantile="{}",version="7"}}'
    assert [float(found[place.format(level)]) for level in QUANTILE_LEVELS] == [0.35, 0.37, 0.42, 0.45, 0.5, 0.6, 0.7]
    assert list(ANOMALY) == sorted(ANOMALY)


def test_the_mean_probability_is_that_of_candidates_beside_that_of_the_calibration(drift, clock):
    for length, expected in ((1, 0.5), (3, 1.0)):
        drift.note(np.zeros((length, 3), dtype=np.float32), np.zeros(length), Ranker(expected=expected))
        clock.now += EVERY_S
    of, found = '{model="shop",version="7"}', shown(drift)
    assert (found["listwright_probability_sum" + of], found["listwright_probability_count" + of]) == ("1.5", "4.0")
    assert found["listwright_probability_mean_expected" + of] == "0.25"


def test_a_bundle_without_probabilities_has_no_mean(drift):
    drift.note(np.zeros((1, 3), dtype=np.float32), np.zeros(1), Ranker())
    assert not any("probability" in name for name in shown(drift))


def test_a_forest_that_fails_is_logged_and_the_next_list_is_looked_at(drift, clock, caplog):
    drift.note(np.zeros((1, 3), dtype=np.float32), np.zeros(1), Ranker(Constant(None)))
    assert "could not be compared" in caplog.text
    clock.now += EVERY_S
    drift.note(np.zeros((1, 3), dtype=np.float32), np.zeros(1), Ranker(Constant(0.5)))
    assert shown(drift)['listwright_anomaly_score_count{model="shop",version="7"}'] == "1.0"


def test_a_bundle_that_is_gone_leaves_nothing_behind(drift, clock):
    ranker = Ranker(Constant(0.5))
    drift.note(np.zeros((1, 3), dtype=np.float32), np.zeros(1), ranker)
    drift.keep(frozenset({("shop", "8")}))
    clock.now += EVERY_S
    drift.note(np.zeros((1, 3), dtype=np.float32), np.zeros(1), ranker)
    assert shown(drift) == {}, "an answer may outlive its bundle"
    seen = weakref.ref(ranker)
    del ranker
    gc.collect()
    assert seen() is None


def test_the_bundle_scores_queries_with_and_without_a_router(tmp_path):
    folder = make_bundle(tmp_path / "shop" / "1", specialists=3, margin=0.0)
    reranker = bundle.load(folder).reranker
    rows = np.array([[1.0, 2.0, 3.0, 1], [3.0, 2.0, 1.0, 2]], dtype=np.float32)
    score = reranker.anomaly.of(rows, np.array([0.5, 0.1]))
    assert score == pytest.approx(0.1 * (2.0 + 2.0 + 2.0)), "0.1 times the sum of the means"
    manifest = bundle.load(folder).manifest.model_copy(update={"router": None, "srm": None})
    alone = bundle.build(folder, manifest, lambda name: (folder / name).read_bytes())
    assert alone.router is None
    assert alone.anomaly.of(rows, np.array([0.5, 0.1])) == pytest.approx(score)
