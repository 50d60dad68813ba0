"""Trees on workers: segments that can be repeated, a search by the validation queries, and no trace of the cluster."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from listwright.ranking.errors import RecipeError
from listwright.training.cluster import Workers
from listwright.training.first_stage import data_parallel, lambdamart
from listwright.training.first_stage.boosting import settings_of
from listwright.training.first_stage.data_parallel import ParallelGrower
from listwright.training.first_stage.lambdamart import SettingsTrial
from support.training.planted import SPEC
from support.training.ray_stand_in import RayStandIn


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("listwright.training.cluster.time.sleep", lambda _seconds: None)


def tuned(planted_data, losses=0):
    grower = ParallelGrower(Workers(RayStandIn(losses=losses), 1))
    return lambdamart.tune(*planted_data, SPEC, seed=3, grower=grower)


def test_it_learns_as_well_as_here(planted_data):
    here, there = lambdamart.tune(*planted_data, SPEC, seed=3), tuned(planted_data)
    assert there.valid_ndcg == pytest.approx(here.valid_ndcg, abs=0.03)
    assert there.trials == here.trials
    assert lightgbm.Booster(model_str=there.model).num_trees() == there.trees


@pytest.mark.parametrize("losses", [1, 4])
def test_a_lost_worker_changes_nothing(planted_data, losses, monkeypatch):
    monkeypatch.setattr(data_parallel, "SEGMENT", 5)
    assert tuned(planted_data, losses) == tuned(planted_data)


def test_segments_go_on_from_the_trees_before(planted_data, monkeypatch):
    monkeypatch.setattr(data_parallel, "SEGMENT", 4)
    grower = ParallelGrower(Workers(RayStandIn(), 1))
    settings = settings_of({"bagging_fraction": 0.5, "num_leaves": 4, "min_data_in_leaf": 5}, 1)
    texts = [grower.boost(planted_data[0], settings, trees) for trees in (8, 10)]
    short, long = (lightgbm.Booster(model_str=text) for text in texts)
    assert (short.num_trees(), long.num_trees()) == (8, 10)
    rows = planted_data[0].features[:50]
    np.testing.assert_array_equal(long.predict(rows, num_iteration=8), short.predict(rows))


def test_what_lightgbm_refuses_is_told_at_once(planted_data):
    ray = RayStandIn()
    wrong = replace(planted_data[0], labels=np.full_like(planted_data[0].labels, 40))
    with pytest.raises(RecipeError, match=r"LightGBM refused the training data: .*40"):
        ParallelGrower(Workers(ray, 1)).boost(wrong, settings_of({}, 1), 2)
    assert ray.killed == 1


def test_a_search_that_goes_on_leaves_no_group_behind(planted_data, tmp_path):
    spec, journal = SPEC.model_copy(update={"trials": 3}), tmp_path / "journal"
    grower = ParallelGrower(Workers(RayStandIn(), 1))
    lambdamart.search_settings(
        *planted_data, SPEC.model_copy(update={"trials": 1}), seed=3, journal=journal, grower=grower
    )
    workers = Workers(RayStandIn(), 1)
    found = lambdamart.search_settings(*planted_data, spec, seed=3, journal=journal, grower=ParallelGrower(workers))
    assert found.trials == 3
    assert len(workers.idle) == 1


def test_nothing_of_the_cluster_is_in_the_model():
    text = (
        "[objective: lambdarank]\n[machines: 10.0.0.1:4711]\n[local_listen_port: 4711]\n[num_machines: 2]\n[seed: 1]\n"
    )
    assert data_parallel._OF_THE_CLUSTER.sub("", text) == "[objective: lambdarank]\n[seed: 1]\n"


def test_cross_validation_and_too_many_workers_are_refused(planted_data):
    grower = ParallelGrower(Workers(RayStandIn(), 1))
    with pytest.raises(RecipeError, match='say select_on = "valid"'):
        lambdamart.trial_of(*planted_data, SPEC.model_copy(update={"select_on": "folds"}), seed=0, grower=grower)
    many = ParallelGrower(Workers(RayStandIn(), 10_000))
    with pytest.raises(RecipeError, match=r"--workers 10000: there are .* training queries; take fewer workers"):
        many.boost(planted_data[0], settings_of({}, 0), 1)


def test_a_trial_elsewhere_is_the_trial_here(planted_data):
    class Read:
        def __call__(self):
            return type("Parts", (), {"train": planted_data[0], "valid": planted_data[1]})()

    def unheard(_step, _value):
        return None

    values = SPEC.settings.model_dump()
    here = lambdamart.trial_of(*planted_data, SPEC, seed=3)(0, values, unheard)
    assert SettingsTrial(Read(), SPEC, 3)(0, values, unheard) == here


@pytest.mark.parametrize(
    ("message", "raised"),
    [
        ("Binding port 51765 failed", ConnectionError),  # another process was faster
        ("Socket recv error, code: 104", ConnectionError),
        ("Label 3 is not supported", RecipeError),
    ],
)
def test_a_fault_of_the_network_repeats_the_step_and_one_of_the_data_does_not(message, raised):
    def fail():
        with data_parallel._refusals():
            raise lightgbm.basic.LightGBMError(message)

    with pytest.raises(raised):
        fail()
