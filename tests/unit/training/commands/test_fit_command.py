"""``listwright fit --on``: how many workers there are where none are asked for."""

from argparse import Namespace
from types import SimpleNamespace

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training.commands import fit


def gpus(there, workers=None):
    cluster = SimpleNamespace(cluster_resources=lambda: {"CPU": 8.0, "GPU": float(there)})
    return fit._gpus(cluster, Namespace(on="auto", workers=workers))


def test_each_worker_on_cuda_has_a_gpu():
    assert gpus(3) == gpus(3, 2) == 3
    for there, workers in ((0, None), (1, 2)):
        with pytest.raises(RecipeError, match=f"the nodes have {there} for {workers or 1}: take fewer --workers, or"):
            gpus(there, workers)
