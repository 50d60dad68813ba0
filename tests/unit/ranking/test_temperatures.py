"""Temperatures of a manifest: whose scores they divide, and what they may be."""

from types import MappingProxyType

import numpy as np
import pytest
from pydantic import ValidationError

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import relevance
from support.service.bundles import make_bundle, rows

TEMPERATURES = MappingProxyType({"first_stage": 3.0, "qilcm": 0.5, "srm": 8.0})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1", specialists=2, graph="nan", cutoff=4)


def with_temperatures(folder, temperatures):
    manifest = bundle.load(folder).manifest
    return bundle.open_unsealed(folder, manifest.model_copy(update={"temperatures": temperatures}))


@pytest.mark.parametrize(("asked", "whose"), [*((name, name) for name in TEMPERATURES), ("auto", "qilcm")])
def test_shares_are_of_the_scores_over_their_rankers_temperature(folder, asked, whose):
    candidates = CandidateList(rows(np.random.default_rng(0), 9))
    plain = bundle.load(folder).reranker.rerank(candidates, strategy=asked)
    warm = with_temperatures(folder, dict(TEMPERATURES)).rerank(candidates, strategy=asked)
    assert np.array_equal(warm.order, plain.order)
    assert np.array_equal(warm.scores, plain.scores, equal_nan=True), "raw scores stay as they are"
    assert plain.relevance == pytest.approx(relevance(plain.scores), nan_ok=True)
    assert warm.relevance == pytest.approx(relevance(plain.scores / TEMPERATURES[whose]), nan_ok=True)
    assert warm.relevance != pytest.approx(plain.relevance, nan_ok=True)


def test_an_earlier_stage_that_answers_has_its_own(folder):
    features = rows(np.random.default_rng(0), 5)
    features[0, 0] = 2000.0  # the second stage gives NaN
    for candidates in (CandidateList(features), CandidateList(np.repeat(features, 2, axis=0))):
        ranking = with_temperatures(folder, dict(TEMPERATURES)).rerank(candidates)
        if ranking.degraded:
            assert ranking.relevance == pytest.approx(relevance(ranking.first_stage_scores / 3.0))
            break
    else:
        pytest.fail("the second stage answered")


@pytest.mark.parametrize(
    ("temperatures", "says"),
    [
        ({"dlcm": 1.0}, "temperatures name dlcm, which the bundle has not"),
        ({"qilcm": 0.0}, "temperatures.qilcm"),
        ({"qilcm": -1.0}, "temperatures.qilcm"),
        ({"qilcm": float("inf")}, "temperatures.qilcm"),
        ({"first_stage": float("nan")}, "temperatures.first_stage"),
    ],
)
def test_a_temperature_is_positive_and_of_a_strategy(folder, temperatures, says):
    values = bundle.load(folder).manifest.model_dump()
    assert Manifest.model_validate(values).temperatures == {}
    with pytest.raises(ValidationError, match=says):
        Manifest.model_validate(values | {"temperatures": temperatures})
