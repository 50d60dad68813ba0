"""Scores of every network with given weights: the promises alone would hold with another activation, too."""

import pytest
import torch

from listwright.training.networks.ranker import Unbatched
from support.training.networks import SPECS, build, raw_rows


def scores(name):
    """Of three candidates, with weights that no generator draws."""
    ranker = build(name)
    with torch.no_grad():
        for number, parameter in enumerate(ranker.network.parameters()):
            places = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_((0.4 * torch.cos(1.0 + number + 0.7 * places)).reshape(parameter.shape))
        return Unbatched(ranker)(torch.from_numpy(raw_rows(3, name, seed=5)).double()).tolist()


PINNED = {
    "qilcm": [-0.5169534703, -0.6306613897, -0.5958620203],
    "qilcm, paper form": [-0.5192765598, -0.6554906004, -0.6044440804],
    "qilcm-v1": [-0.166371078, -0.4235399665, -0.584622773],
    "qilcm-v2": [-0.5169534703, -0.6306613897, -0.5958620203],
    "qilcm-v3": [-0.5506040239, -0.4934305764, -0.5664025115],
    "qilcm without first stage": [-2.6970751704, 0.5125270486, -1.2227510576],
    "qilcm2, seeds": [-1.7096974114, -1.4312054506, 1.0113228477],
    "qilcm2, blocks": [-1.6122328737, -1.3310436238, 0.4216669854],
    "qilcm2, members": [-1.3526801691, -0.9011037302, 0.7651519402],
    "qilcm2 without first stage": [0.0192158997, 0.480431774, 0.5888563415],
    "dlcm": [-0.0256860909, -0.0166682594, 0.0479738552],
    "dlcm, presented": [-0.6784929455, -0.5730570694, -0.3427378812],
    "dcm": [-0.2390324693, -0.2070319021, -0.2594547447],
    "dcm, presented": [-0.1678382249, -0.0727434053, -0.0444114765],
    "mlp": [-0.19080695, -0.1364563345, -0.2213655669],
}


@pytest.mark.parametrize("name", SPECS)
def test_scores_are_what_they_were(name):
    assert scores(name) == pytest.approx(PINNED[name], abs=1e-9)
