"""A reranker whose stages can be computed by hand."""

from datetime import UTC, datetime

import numpy as np

from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import ScoringError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import LightGbmStage, NetworkStage

SCHEMA = FeatureSchema(features=(Feature(name="price"), Feature(name="stars")))


class Column:
    """Scores a list by one of its columns and remembers what it saw."""

    engine = "column"

    def __init__(self, column, sign=1.0):
        self.column, self.sign, self.seen = column, sign, None

    def score(self, features):
        self.seen = features
        return self.sign * features[:, self.column].astype(np.float64)


class Broken:
    engine = "column"

    def score(self, features):
        raise ScoringError("no oil")


def reranker(first, second, *, cutoff=100, first_stage_score=True, strategy="qilcm"):
    manifest = Manifest(
        name="hand",
        version="1",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        recipe={},
        data="none",
        feature_schema=SCHEMA,
        fingerprint=SCHEMA.fingerprint,
        first_stage=LightGbmStage(),
        second_stages=(NetworkStage(cutoff=cutoff, first_stage_score=first_stage_score),),
        strategy=strategy,
    )
    return Reranker(manifest, first, {"qilcm": second})


def candidates(*rows):
    return CandidateList(np.array(rows, dtype=np.float32))


FOUR = candidates([1, 10], [3, 30], [2, 40], [4, 20])  # by price: 3 1 2 0; by stars: 2 1 3 0
