"""Workers of a data-parallel fit: each of them on CUDA has a GPU."""

from types import SimpleNamespace

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training import cluster


def gpus(there, workers=None):
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 8.0, "GPU": float(there)})
    return cluster._gpus(ray, "auto", workers or 1)


def test_each_worker_on_cuda_has_a_gpu():
    assert gpus(3) == gpus(3, 2) == 3
    for there, workers in ((0, None), (1, 2)):
        with pytest.raises(RecipeError, match=f"the nodes have {there} for {workers or 1}: take fewer --workers, or"):
            gpus(there, workers)
