"""An estimator that is fitted once for all tests that only ask it."""

import pytest

import training
from searches import SMALL, features, searched


@pytest.fixture(scope="session")
def frame():
    return searched()


@pytest.fixture(scope="session")
def model(frame):
    """A fitted ``training.Qilcm``."""
    return training.Qilcm(**SMALL, categorical=("stops",)).fit(features(frame), frame["clicked"], frame["search"])
