"""Models of LightGBM as one: the sum of their scores, in a text that LightGBM and the compiled engine both read."""

import re

import lightgbm
import numpy as np
import pytest

from listwright.ranking.candidates import lightgbm_input
from listwright.ranking.compiled.first_stage import open_first_stage
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.first_stage import read_booster
from listwright.training.first_stage.lambdamart import summed

RNG = np.random.default_rng(0)
ROWS = np.column_stack([RNG.normal(size=(400, 2)), RNG.integers(0, 5, 400)]).astype(np.float32)
LABELS = RNG.integers(0, 3, 400)
SCHEMA = FeatureSchema(
    features=(
        Feature(name="price"),
        Feature(name="größe"),
        Feature(name="kind", kind="categorical", categories=("a", "b", "c", "d")),
    )
)
SEEN = lightgbm_input(ROWS, SCHEMA)


def fitted(seed, trees):
    params = {"objective": "lambdarank", "num_leaves": 6, "verbosity": -1, "seed": seed, "feature_fraction": 0.7}
    names = list(SCHEMA.names)
    data = lightgbm.Dataset(SEEN, LABELS, group=[40] * 10, categorical_feature=[2], feature_name=names)
    return lightgbm.train(params, data, num_boost_round=trees)


@pytest.mark.parametrize("sizes", [(5,), (1, 1), (4, 12, 3)])
def test_scores_are_the_sum(sizes):
    boosters = [fitted(seed, trees) for seed, trees in enumerate(sizes)]
    model = summed([booster.model_to_string() for booster in boosters])
    expected = np.sum([booster.predict(SEEN, raw_score=True) for booster in boosters], axis=0)
    read = read_booster(model)
    assert re.findall(r"^Tree=(\d+)$", model, re.MULTILINE) == [str(n) for n in range(read.num_trees())]
    assert read.num_trees() == sum(sizes)
    assert read.feature_name() == boosters[0].feature_name()
    assert read.predict(SEEN, raw_score=True) == pytest.approx(expected, abs=1e-12)
    assert read.feature_importance("gain") == pytest.approx(
        sum(b.feature_importance("gain") for b in boosters), rel=1e-5
    )
    for engine in ("compiled", "lightgbm"):
        stage = open_first_stage(model, SCHEMA, engine)
        assert stage.engine == engine
        assert stage.score(ROWS) == pytest.approx(expected, abs=1e-5)


def test_one_model_stays_as_it_is_to_the_byte():
    model = fitted(0, 3).model_to_string()
    assert summed([model]) == model


def test_a_text_without_trees_is_refused():
    model = fitted(0, 3).model_to_string()
    with pytest.raises(ValueError, match="not a LightGBM text model with trees"):
        summed([model, model[: model.find("end of trees")]])
