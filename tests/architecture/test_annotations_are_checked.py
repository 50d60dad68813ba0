"""Annotations of all three packages are checked where ``CHECK_ANNOTATIONS`` is set."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from listwright.ranking.metrics import hit
from listwright.service.wire.json_codec import nullable
from listwright.training.specialists.router import _average_path
from support.annotated import ENABLED


@pytest.mark.nightly
@pytest.mark.skipif(not ENABLED, reason="CHECK_ANNOTATIONS is not set")
@pytest.mark.parametrize(
    ("function", "good", "untrue"),
    [
        (lambda labels: hit(np.zeros(2), labels, cutoff=1), np.array([1, 0]), np.array([True, False])),
        (nullable, np.array([1.0, 0.0]), np.array([True, False])),
        (_average_path, np.array([1.0, 2.0]), np.array([[1.0, 2.0]])),
    ],
    ids=["ranking", "service", "training"],
)
def test_what_an_annotation_does_not_say_is_noticed(function, good, untrue):
    function(good)
    with pytest.raises(TypeCheckError):
        function(untrue)
