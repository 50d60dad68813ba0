"""What routing is worth, on queries few enough to count by hand."""

import numpy as np
import pytest

from listwright.training.evaluation.routing import ABSTAINED, RoutingEvaluation
from listwright.training.reporting.report import verdict


def found(**changes):
    values = {
        "generalist": np.array([0.5, 0.5, 0.5, 0.5]),
        "default": np.array([0.5, 0.5, 0.5, 0.5]),
        "specialists": np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.6], [0.3, 0.7]]),
        "routed": np.array([0.9, 0.5, 0.6, 0.3]),
        "hard": np.array([0.9, 0.8, 0.6, 0.3]),
        "mixture": np.array([0.8, 0.7, 0.6, 0.5]),
        "probabilities": np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.8, 0.2]]),
        "gains": np.zeros((4, 2)),
        "route": np.array([0, ABSTAINED, 0, 0]),
        "query": np.arange(4),
    }
    return RoutingEvaluation(**(values | changes))


def test_accuracy_takes_chance_off():
    four = found()
    assert four.coverage == 3 / 4
    assert four.top1 == 3 / 4, "right, right, either is right, wrong"
    assert four.chance == pytest.approx((1 + 1 + 2 + 1) / 8), "equal bests make chance more than 1 / K"
    assert four.accuracy == pytest.approx((3 / 4 - 5 / 8) / (1 - 5 / 8))


def test_value_puts_the_router_between_random_and_oracle():
    mean, oracle = np.mean([0.5, 0.5, 0.6, 0.5]), np.mean([0.9, 0.8, 0.6, 0.7])
    assert found().value == pytest.approx((np.mean([0.9, 0.8, 0.6, 0.3]) - mean) / (oracle - mean))


def test_specialists_that_never_differ_have_no_accuracy():
    same = found(specialists=np.full((4, 2), 0.5), hard=np.full(4, 0.5))
    assert same.accuracy is None
    assert same.value is None


def test_facts_name_every_way_of_choosing():
    facts = found().facts()
    assert facts["ndcg"]["generalist"] == 0.5
    assert facts["ndcg"]["oracle"] == pytest.approx(0.75)
    assert facts["gain_over_generalist"]["mean"] == pytest.approx((0.4 + 0.0 + 0.1 - 0.2) / 4)
    assert facts["mixture_over_hard_route"]["mean"] == pytest.approx((-0.1 - 0.1 + 0.0 + 0.2) / 4)


def test_the_sentence_is_honest():
    many = {
        name: np.tile(getattr(found(), name), (50, 1) if getattr(found(), name).ndim == 2 else 50)
        for name in set(RoutingEvaluation.__slots__) - {"default_is"}
    }
    many["query"] = np.arange(200)
    pays = RoutingEvaluation(**many | {"routed": many["generalist"] + 0.1})
    assert verdict(pays).startswith("Routing pays: 75% of queries go to a specialist, +0.1000 [+0.1000, +0.1000]")
    harms = RoutingEvaluation(**many | {"routed": many["generalist"] - 0.1})
    assert verdict(harms).startswith("Routing does harm")
    noise = np.random.default_rng(0).normal(0, 0.1, 200)
    assert verdict(RoutingEvaluation(**many | {"routed": many["generalist"] + noise - noise.mean()})).startswith(
        "Routing has no significant effect"
    )
    abstains = RoutingEvaluation(**many | {"route": np.full(200, ABSTAINED), "routed": many["generalist"]})
    assert verdict(abstains).startswith("Routing abstains")
