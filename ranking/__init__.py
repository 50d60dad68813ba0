"""The kernel: candidates, features, metrics, the bundle format, and the only code that scores.

``training`` writes bundles with it, ``service`` reads them, and neither knows the other. ``docs/architecture.md``
has the modules, ``docs/glossary.md`` the words, and the shape letters of docstrings and annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from listwright.exports import on_demand

if TYPE_CHECKING:
    from listwright.ranking.bundle import Bundle, load
    from listwright.ranking.candidates import CandidateList, Ranking, Route
    from listwright.ranking.errors import (
        BundleError,
        CandidateError,
        DataError,
        ListwrightError,
        RecipeError,
        RoutingError,
        SchemaMismatchError,
        ScoringError,
        UnknownStrategyError,
    )
    from listwright.ranking.features import Feature, FeatureSchema
    from listwright.ranking.manifest import Manifest
    from listwright.ranking.metrics import EvalProtocol, hit, ndcg, precision, reciprocal_rank
    from listwright.ranking.reranker import Reranker
    from listwright.ranking.router import Choice, Query

_MODULES = {
    "Bundle": "bundle",
    "BundleError": "errors",
    "CandidateError": "errors",
    "CandidateList": "candidates",
    "Choice": "router",
    "DataError": "errors",
    "EvalProtocol": "metrics",
    "Feature": "features",
    "FeatureSchema": "features",
    "ListwrightError": "errors",
    "Manifest": "manifest",
    "Query": "router",
    "Ranking": "candidates",
    "RecipeError": "errors",
    "Reranker": "reranker",
    "Route": "candidates",
    "RoutingError": "errors",
    "SchemaMismatchError": "errors",
    "ScoringError": "errors",
    "UnknownStrategyError": "errors",
    "hit": "metrics",
    "load": "bundle",
    "ndcg": "metrics",
    "precision": "metrics",
    "reciprocal_rank": "metrics",
}

__all__ = [
    "Bundle",
    "BundleError",
    "CandidateError",
    "CandidateList",
    "Choice",
    "DataError",
    "EvalProtocol",
    "Feature",
    "FeatureSchema",
    "ListwrightError",
    "Manifest",
    "Query",
    "Ranking",
    "RecipeError",
    "Reranker",
    "Route",
    "RoutingError",
    "SchemaMismatchError",
    "ScoringError",
    "UnknownStrategyError",
    "hit",
    "load",
    "ndcg",
    "precision",
    "reciprocal_rank",
]

__getattr__ = on_demand(__name__, _MODULES)
