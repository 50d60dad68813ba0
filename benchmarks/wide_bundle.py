"""A bundle of the size that people serve, for the clock only: 136 features, 500 trees of 63 leaves, QILCM as published.

Its weights are fitted to noise: how long a ranker takes does not depend on whether it is any good. ``auto`` means
LightGBM and QILCM in it all the same; with specialists it asks a router, which always abstains to these: the longest
way. :func:`check_route` holds every benchmark to that.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import lightgbm
import numpy as np
import torch
from jaxtyping import Float

from listwright.ranking import bundle
from listwright.ranking.candidates import Ranking
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.stages import LightGbmStage, SrmStage
from listwright.training.data.dataset import Dataset, Splits, fit_schema
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.networks.ranker import Ranker
from listwright.training.pipeline.choice import DefaultChoice
from listwright.training.pipeline.run import write_bundle
from listwright.training.pipeline.specialists import FittedSpecialists, judge
from listwright.training.pipeline.steps import Fitted
from listwright.training.recipe.config import Choice, Recipe, Router, Srm
from listwright.training.recipe.data import LetorData
from listwright.training.recipe.model import QilcmSpec
from listwright.training.second_stage.loop import FittedNetwork
from listwright.training.specialists.router import FittedAnomaly, JudgedLists, fit_anomaly, fit_router
from listwright.training.specialists.srm import fit_srm

FEATURES, TREES, LEAVES = 136, 500, 63

RANKER: Final = "qilcm"
"""Strategy that ``auto`` means: LightGBM and QILCM."""

_LISTS, _LENGTH = 250, 100


def build(out: Path, *, specialists: int = 0, features: int = FEATURES) -> Path:
    """Publish the bundle at ``out``, with a router where it has specialists."""
    rng = np.random.default_rng(0)
    data = noise(rng, features)
    model = boost(data)
    spec = QilcmSpec()
    scores = lightgbm.Booster(model_str=model).predict(data.features, raw_score=True)
    torch.manual_seed(0)
    module = Ranker(data.schema, np.column_stack([data.features[:], np.asarray(scores, dtype=np.float32)]), spec)
    first = FittedFirstStage(LightGbmStage(), model, np.asarray(scores), np.asarray(scores), {})
    fitted = FittedNetwork(module.eval(), spec, (), 0, 0.0, np.empty((0, 0)))
    anomaly = fit_anomaly(data, first.train_scores, seed=0)
    assert anomaly is not None
    mixture = _specialists(data, first, anomaly, specialists, rng) if specialists else None
    # a choice was made, by name: a stage that ranks noise worse than LightGBM would else not be the default
    recipe = Recipe(name="wide", about="noise, for the clock", data=LetorData(), model=spec, choice=Choice())
    default = DefaultChoice(RANKER)
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=out.parent))
    whole = Fitted(first, anomaly=anomaly, networks=[fitted], specialists=mixture, default=default)
    write_bundle(folder, out, recipe, Splits(data, data, data, "noise"), whole)
    bundle.publish(folder, out)
    return out


def check_route(ranking: Ranking, strategy: str = RANKER) -> Ranking:
    """Return a ranking, if it was made by the ranker that the benchmark's page names.

    Raises:
        SystemExit: if it was made by another.
    """
    if ranking.route.strategy != strategy or ranking.degraded:
        route = f"{ranking.route.strategy}, decided by {ranking.route.decided_by}"
        answered = f"{ranking.stage_reached} because {ranking.reason}" if ranking.degraded else route
        raise SystemExit(f"ranked by {answered}: this benchmark measures {strategy}; build its bundle anew")
    return ranking


def _specialists(
    data: Dataset, first: FittedFirstStage, anomaly: FittedAnomaly, count: int, rng: np.random.Generator
) -> FittedSpecialists:
    spec = Srm(specialists=count, restarts=1, short_run=1, max_iterations=1)
    srm = fit_srm(spec, data, seed=0)
    stage = SrmStage(specialists=srm.describe())
    judged = judge(srm, data, first.train_scores, anomaly.graph, 10)
    lists = JudgedLists(judged["aggregates"], judged["specialists"], rng.random(len(data)))
    router = fit_router(Router(), lists, seed=0)
    # not None, or it would not be asked at all; no NDCG gains as much
    never = replace(router, stage=router.stage.model_copy(update={"margin": 2.0}))
    return FittedSpecialists(srm, stage, never)


def rows(rng: np.random.Generator, count: int, features: int = FEATURES) -> Float[np.ndarray, "L D"]:
    """Return MSLR-shaped feature rows: a third counts, a third ratios, a third wide numbers."""
    third = features // 3
    counts = rng.poisson(4.0, (count, third))
    ratios = rng.random((count, third))
    wide = rng.lognormal(3.0, 2.0, (count, features - 2 * third))
    return np.round(np.column_stack([counts, ratios, wide]), 6).astype(np.float32)


def noise(rng: np.random.Generator, features: int = FEATURES) -> Dataset:
    """Return lists of the stated shape with random labels."""
    schema = FeatureSchema(features=tuple(Feature(name=f"feature_{d + 1}") for d in range(features)))
    values = rows(rng, _LISTS * _LENGTH, features)
    utility = np.log1p(values[:, ::7]).sum(axis=1) + rng.normal(0.0, 2.0, len(values))
    labels = np.digitize(utility, np.quantile(utility, (0.5, 0.75, 0.9, 0.97))).astype(np.int32)
    offsets = np.arange(0, len(values) + 1, _LENGTH, dtype=np.int64)
    data = Dataset(values, labels, offsets, tuple(map(str, range(_LISTS))), schema)
    return data.with_schema(fit_schema(data))


def boost(data: Dataset) -> str:
    """Return a forest of the stated size, fitted to noise."""
    params = {"objective": "lambdarank", "num_leaves": LEAVES, "learning_rate": 0.02, "verbosity": -1, "seed": 0}
    dataset = lightgbm.Dataset(
        data.features, data.labels, group=data.lengths, feature_name=list(data.schema.names), free_raw_data=True
    )
    return lightgbm.train(params, dataset, num_boost_round=TREES).model_to_string()
