"""One network of every kind, with small layers and random weights."""

import numpy as np
import torch

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import DcmSpec, DlcmSpec, MlpSpec, Qilcm2Spec, QilcmSpec

SMALL = {"encoder_width": 8, "hidden": (8, 4)}
READER = {"encoder_width": 8}
SPECS = {
    "qilcm": QilcmSpec(**SMALL),
    "qilcm, paper form": QilcmSpec(**SMALL, query_norm="paper"),
    "qilcm-v1": QilcmSpec(**SMALL, variant="V1"),
    "qilcm-v2": QilcmSpec(**SMALL, variant="V2"),
    "qilcm-v3": QilcmSpec(**SMALL, variant="V3"),
    "qilcm without first stage": QilcmSpec(**SMALL, first_stage_score=False),
    "qilcm2, seeds": Qilcm2Spec(**SMALL, context="seeds"),
    "qilcm2, blocks": Qilcm2Spec(**SMALL),
    "qilcm2, members": Qilcm2Spec(**SMALL, heads=3, members=2),
    "qilcm2 without first stage": Qilcm2Spec(**SMALL, first_stage_score=False),
    "dlcm": DlcmSpec(**READER),
    "dlcm, presented": DlcmSpec(**READER, order="presented", first_stage_score=False),
    "dcm": DcmSpec(**READER, state_width=8),
    "dcm, presented": DcmSpec(**READER, state_width=8, order="presented", first_stage_score=False),
    "mlp": MlpSpec(**SMALL),
}
SCHEMA = FeatureSchema(
    features=(
        Feature(name="plain"),
        Feature(name="holey", missing_in_training=True),
        Feature(name="kind", kind="categorical", categories=("a", "b", "c")),
    )
)


def raw_rows(count, name, seed=0):
    """Raw input rows; first-stage scores all differ."""
    rng = np.random.default_rng(seed)
    holey = np.where(rng.random(count) < 0.3, np.nan, rng.normal(size=count))
    rows = np.column_stack([rng.lognormal(size=count) * 100, holey, rng.integers(0, 4, count), rng.normal(size=count)])
    return rows[:, : 4 if SPECS[name].first_stage_score else 3].astype(np.float32)


def build(name):
    spec = SPECS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ranker = Ranker(SCHEMA, raw_rows(300, name), spec, 3 if spec.first_stage_score else None)
        with torch.no_grad():
            for parameter in ranker.network.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))  # QILCM2's last layer starts at 0 and would hide it
    return ranker.double().eval()
