"""The kernel: candidates, features, metrics, the bundle format, and the only code that scores.

``training`` writes bundles with it, ``service`` reads them, and neither knows the other. Each file imports from its own
line or from lines below; ``pyproject.toml`` holds them to it::

    verify                               listwright verify DIR
    bundle                               reads a bundle and checks all of it
    golden                               lists that a bundle must rank as it did when it was made
    explaining/                          why a candidate stands where it stands; loaded at first use
    reranker                             candidates in, a ranking out
    router                               which specialist ranks a list
    aggregates                           the router's input; how unlike the training queries a list is
    compiled/                            Cython code: trees of the first stage, list-relative columns
    first_stage                          LightGBM, a column, or an ONNX graph that was brought along
    scorers                              ONNX graphs; networks, specialists and their mixture
    merchandising                        rules on one list, after the last stage
    manifest, stages                     the manifest of a bundle, and its stages
    candidates                           a list, its route and its ranking
    relative                             list-relative columns
    rules                                rules of merchandising as they are written
    served/                              records of what was served, in Avro files; events
    features, metrics                    the schema, NDCG and others
    experiments                          arms of the traffic; two rankings interleaved into one list
    onnx_graph, deadline                 which graphs are safe; whether a stage fits the deadline
    plain_file                           untrusted files, small JSON and TOML
    errors, order, threads               errors; orders, ties, probabilities; cores and threads of this machine

``docs/glossary.md`` has the words, and the shape letters of docstrings and annotations.
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
