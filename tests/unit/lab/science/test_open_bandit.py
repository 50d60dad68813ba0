"""The estimators of the study on Open Bandit's logs, on a log of four rows."""

import numpy as np
import pytest

from listwright_lab.science import open_bandit

LOGGED, TARGET = np.array([[0.75, 0.25]] * 3), np.array([[0.5, 0.5]] * 3)
PREDICTED = np.array([[0.2, 0.6]] * 4)


@pytest.fixture
def log():
    return open_bandit.Log(
        items=np.array([0, 0, 1, 1]),
        places=np.array([0, 1, 2, 0]),
        clicks=np.array([True, False, True, True]),
        propensities=np.array([0.75, 0.75, 0.25, 0.25]),
        features=np.zeros((4, 2, 1), dtype=np.float32),
    )


def test_estimates_by_hand(log):
    """The weights are 2/3, 2/3, 2, 2, and the errors of the predictions 0.8, -0.2, 0.4, 0.4."""
    columns, _ = open_bandit.value_rows(log, TARGET, PREDICTED)
    facts = open_bandit.summarise(columns, np.array([True, False, False, False]))
    values = {name: each["value"] for name, each in facts["estimates"].items()}
    assert values["naive"] == pytest.approx(0.75)
    assert values["ips"] == pytest.approx((2 / 3 + 2 + 2) / 4)
    assert values["snips"] == pytest.approx((2 / 3 + 2 + 2) / (2 / 3 + 2 / 3 + 2 + 2))
    assert values["dm"] == pytest.approx(0.4)
    assert values["dr"] == pytest.approx(0.4 + 0.5)
    assert values["sndr"] == pytest.approx(0.4 + 0.5 / (4 / 3))
    assert facts["true"]["value"] == 0.25
    assert facts["mean_weight"] == pytest.approx(4 / 3)
    assert facts["effective_rows"] == pytest.approx((16 / 3) ** 2 / (80 / 9))
    assert facts["estimates"]["dm"]["absolute_error"] == pytest.approx(0.15)
    assert facts["estimates"]["dm"]["relative_error"] == pytest.approx(0.6)
    assert facts["estimates"]["dm"]["interval"] == pytest.approx([0.4, 0.4])
    low, high = facts["estimates"]["dm"]["difference_interval"]
    assert (low, high) == pytest.approx((0.4 - 0.75, 0.4)), "0 to 3 clicks of 4 in the central 95 %"


def test_an_action_as_often_as_its_propensity_says_leaves_nothing_to_the_model(log):
    exact = log._replace(items=np.array([0, 0, 0, 1]), propensities=np.array([0.75, 0.75, 0.75, 0.25]))
    columns, _ = open_bandit.value_rows(exact, TARGET, PREDICTED)
    values = open_bandit.combine({name: column.mean() for name, column in columns.items()})
    true = 0.5 * 2 / 3 + 0.5 * 1
    assert [values[name] for name in ("ips", "snips", "dr", "sndr")] == pytest.approx([true] * 4)


def test_heavy_weights_are_left_out_or_shrunk():
    weights = np.array([0.5, 2.0, 4.0])
    assert open_bandit.switch(weights, 2.0).tolist() == [0.5, 2.0, 0.0]
    assert open_bandit.shrink(weights, 4.0) == pytest.approx([0.5 * 4 / 4.25, 1.0, 4 * 4 / 20])
    assert open_bandit.shrink(weights, np.inf).tolist() == weights.tolist()


def test_a_threshold_trades_variance_for_bias():
    even, weights = np.full(100, 0.3), np.full(100, 2.0)
    choose = open_bandit.choose_threshold
    assert choose(open_bandit.switch, weights, np.ones(100), even) == pytest.approx(10.0**0.5), "equal errors: bias"
    assert choose(open_bandit.switch, weights, np.tile([1.0, -1.0], 50), even) == 1.0, "they cancel: variance alone"
    assert choose(open_bandit.shrink, weights, np.ones(100), even) == np.inf


def test_rows_as_lists_by_hand(log):
    values = open_bandit.value_as_lists(log, LOGGED, TARGET, PREDICTED)
    means = {name: value.mean() for name, value in values.items()}
    assert means["listwright dr"] == pytest.approx((2 / 3 + 2 + 2) / 4)
    assert means["listwright snips"] == pytest.approx(0.4), "a uniform target: the predicted clicks"


def test_an_item_that_the_logged_policy_never_shows_is_predicted(log):
    shown = log._replace(items=np.zeros(4, dtype=int), propensities=np.ones(4))
    values = open_bandit.value_as_lists(shown, np.array([[1.0, 0.0]] * 3), TARGET, PREDICTED)
    assert values["listwright dr"].tolist() == pytest.approx([0.5 + 0.3, 0.3, 0.5 + 0.3, 0.5 + 0.3])


def test_a_log_is_read_with_the_features_of_every_item(tmp_path):
    (tmp_path / "men.csv").write_text(
        ",timestamp,item_id,position,click,propensity_score,user_feature_0,user-item_affinity_0,user-item_affinity_1\n"
        "0,t0,1,1,0,0.25,bb,0.0,5.0\n1,t1,0,2,1,0.75,aa,6.0,0.0\n2,t2,0,3,0,0.75,bb,0.0,0.0\n3,t3,0,1,0,0.75,aa,0.0,0.0\n"
    )
    (tmp_path / "item_context.csv").write_text(",item_id,item_feature_0,item_feature_1\n0,1,0.5,x\n1,0,-0.5,y\n")
    log = open_bandit.read_log(tmp_path, "men")
    assert log.items.tolist() == [1, 0, 0, 0]
    assert log.places.tolist() == [0, 1, 2, 0]
    assert log.clicks.tolist() == [False, True, False, False]
    assert log.propensities.tolist() == [0.25, 0.75, 0.75, 0.75]
    assert log.features[0].tolist() == [[1.0, 2.0, 0.0, -0.5, 2.0, 0.0], [1.0, 2.0, 1.0, 0.5, 1.0, 5.0]]
    assert log.features[1, 0].tolist() == [2.0, 1.0, 0.0, -0.5, 2.0, 6.0]
    assert open_bandit.average_policy(log).tolist() == [[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]]
