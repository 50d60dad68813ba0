"""A file of every version of the served log's schema is read as it was written."""

from pathlib import Path

import numpy as np
import pytest

from listwright.ranking.served_log import files
from listwright.ranking.served_log.encoding import SCHEMA_VERSION

FOLDER = Path(__file__).parent / "served"


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_a_file_of_every_version_is_read(version):
    first, second = files.records([FOLDER / f"version_{version}.avro"])
    assert (first.query_id, first.top_n, first.teams) == ("query-3", 2, ("control", "challenger"))
    assert (first.candidate_ids[3], first.order.tolist()) == ("sku-3-3", [2, 0])
    assert first.categories == {"carrier": ("A5", "Ü2")}
    assert (first.intervention.propensity, first.shadow.order) == (0.125, (1, 0, 2, 3))
    np.testing.assert_array_equal(first.scores, [0.25, np.nan, -1.5, 3.0])
    assert (second.query_id, second.unit, second.shadow) == ("query-4", "unit-1", None)
    assert (first.probabilities, first.weights) == (None, None), "fields that are younger than the file"
    assert second.served_at.isoformat() == "2026-05-01T12:00:04+00:00"
    assert second.features.shape == (4, 3)
