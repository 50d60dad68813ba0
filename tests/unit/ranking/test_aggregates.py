"""What a router sees of a list, each number beside its formula."""

import numpy as np
import pytest
from scipy.stats import entropy as entropy_of
from scipy.stats import kendalltau

from listwright.ranking import aggregates
from listwright.ranking.aggregates import MAX_CATEGORIES, TOP, Aggregates
from listwright.ranking.compiled import list_statistics
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.order import rank_by_score

SCHEMA = FeatureSchema(
    features=(
        Feature(name="price"),
        Feature(name="carrier", kind="categorical", categories=("A5", "B2")),
        Feature(name="bm25", missing_in_training=True),
    )
)


@pytest.fixture(autouse=True, params=["numpy", "compiled"])
def statistics(request, monkeypatch):
    """Both ways to the same numbers."""
    chosen = list_statistics if request.param == "numpy" else aggregates.list_summary
    if chosen is None:
        pytest.skip("ranking.compiled.list_summary is not built: there was no C compiler")
    monkeypatch.setattr(aggregates, "statistics", chosen)
    return chosen


def a_list(length, seed=0, missing=0.3):
    rng = np.random.default_rng(seed)
    features = np.column_stack(
        [rng.normal(size=length), rng.integers(0, 3, size=length), rng.normal(size=length)]
    ).astype(np.float32)
    features[rng.random(length) < missing, 2] = np.nan
    return features, rng.normal(size=length), rng.normal(size=(length, 3)).astype(np.float32)


def aggregated(features, first, scores, anomaly=lambda means: 0.5, scored=None):
    seen = Aggregates(SCHEMA, scores.shape[1])
    scored = np.arange(len(features)) if scored is None else scored
    values = seen.of(features, first, rank_by_score(first), anomaly, scores, scored)
    assert values.shape == (len(seen.names),)
    assert values.dtype == np.float32
    return dict(zip(seen.names, values.tolist(), strict=True))


@pytest.mark.parametrize("length", [1, 2, 9, 10, 11, 40])
def test_statistics_over_the_list_and_over_its_top(length):
    features, first, scores = a_list(length)
    found = aggregated(features, first, scores)
    top = np.argsort(-first, kind="stable")[:TOP]
    for rows, over in ((features, ""), (features[top], " in the top")):
        for column, name in ((0, "price"), (2, "bm25")):
            present = rows[:, column][~np.isnan(rows[:, column])]
            for what, formula in (("mean", np.mean), ("std", np.std), ("min", np.min), ("max", np.max)):
                expected = formula(present) if len(present) else np.nan
                assert found[f"{what} of {name}{over}"] == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_shares_of_categories_and_of_missing_values():
    features, first, scores = a_list(20)
    features[:4, 1] = [0, np.nan, 7, -1]  # missing, missing, and two that no schema knows: all of them unknown
    features[4:, 1] = [1] * 6 + [2] * 10
    found = aggregated(features, first, scores)
    assert found["share of carrier = unknown"] == pytest.approx(4 / 20)
    assert found["share of carrier = A5"] == pytest.approx(6 / 20)
    assert found["share of carrier = B2"] == pytest.approx(10 / 20)
    assert found["share of bm25 missing"] == pytest.approx(np.isnan(features[:, 2]).mean())


def test_first_stage_scores():
    features, _, scores = a_list(3)
    found = aggregated(features, np.array([1.0, 4.0, 2.5]), scores)
    assert found["first stage best"] == 4.0
    assert found["first stage gap"] == pytest.approx(1.5)
    assert found["first stage std"] == pytest.approx(np.std([1.0, 4.0, 2.5]))
    assert found["first stage entropy"] == pytest.approx(entropy_of(np.exp([1.0, 4.0, 2.5])))
    assert found["length"] == 3


def test_one_candidate_has_no_gap_no_entropy_and_full_agreement():
    features, first, scores = a_list(1)
    found = aggregated(features, first, scores)
    assert found["first stage gap"] == found["first stage entropy"] == found["entropy of specialist 0"] == 0.0
    assert found["tau of specialists 0 and 2"] == 1.0


def test_agreement_of_specialists_is_kendalls_tau_over_the_top():
    features, first, scores = a_list(30)
    found = aggregated(features, first, scores)
    top = np.argsort(-first, kind="stable")[:TOP]
    assert found["tau of specialists 0 and 1"] == pytest.approx(kendalltau(scores[top, 0], scores[top, 1])[0])
    assert found["tau of specialists 1 and 2"] == pytest.approx(kendalltau(scores[top, 1], scores[top, 2])[0])
    assert found["entropy of specialist 2"] == pytest.approx(entropy_of(np.exp(scores[:, 2])), rel=1e-5)


def test_specialists_that_score_only_a_few_are_compared_on_these():
    features, first, scores = a_list(30)
    kept = np.sort(np.argsort(-first, kind="stable")[:4])
    found = aggregated(features, first, scores[kept], scored=kept)
    assert found["tau of specialists 0 and 1"] == pytest.approx(kendalltau(scores[kept, 0], scores[kept, 1])[0])


def test_the_anomaly_score_sees_the_means_of_the_top():
    features, first, scores = a_list(30)
    asked = []
    found = aggregated(features, first, scores, anomaly=lambda means: asked.append(means) or 0.25)
    assert found["anomaly"] == 0.25
    seen = Aggregates(SCHEMA, 3)
    assert np.array_equal(asked[0], seen.top_means(features, first, rank_by_score(first)))
    assert seen.numeric == len(asked[0]) == 2


def test_a_column_without_any_value_is_nan_and_nothing_else_is():
    features, first, scores = a_list(12)
    features[:, 2] = np.nan
    found = aggregated(features, first, scores)
    assert {name for name, value in found.items() if np.isnan(value)} == {
        n for n in found if "of bm25" in n and "share" not in n
    }


def test_a_feature_of_too_many_categories_has_no_aggregates():
    many = tuple(f"v{n}" for n in range(MAX_CATEGORIES + 1))
    schema = FeatureSchema(features=(Feature(name="id", kind="categorical", categories=many),))
    assert not any("id" in name for name in Aggregates(schema, 2).names if name.startswith("share"))


@pytest.mark.parametrize(("scores", "expected"), [([1e6, 0.0], 0.0), ([700.0, 700.0], np.log(2))])
def test_large_scores_have_an_entropy(statistics, scores, expected):
    found = np.empty(1, dtype=np.float32)
    statistics.agreement(np.array(scores, dtype=np.float32)[:, None], np.arange(2), found)
    assert found == pytest.approx([expected])
