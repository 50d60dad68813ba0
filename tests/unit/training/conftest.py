"""Training and validation queries with a planted order."""

import numpy as np
import pytest

from support.training.planted import ranking_data


@pytest.fixture(scope="module")
def planted_data():
    rng = np.random.default_rng(0)
    return ranking_data(rng), ranking_data(rng, queries=30)
