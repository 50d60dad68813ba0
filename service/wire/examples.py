"""Example bodies for the OpenAPI document, one for each form of a request; the first three ask the same."""

from __future__ import annotations

from typing import Any

REQUESTS: dict[str, dict[str, Any]] = {
    "rows_by_name": {
        "summary": "One object per candidate; names in any order, null for a missing value",
        "value": {
            "id": "req-7",
            "candidates": [
                {"id": "sku-1", "features": {"price": 12.5, "stars": 4.5, "carrier": "A5", "bm25": None}},
                {"id": "sku-2", "features": {"bm25": 3.1, "carrier": "B2", "stars": 3.0, "price": 9.0}},
            ],
            "top_n": 10,
        },
    },
    "matrix": {
        "summary": "The fast form: names once, then one array per candidate",
        "value": {
            "feature_names": ["price", "stars", "carrier", "bm25"],
            "features": [[12.5, 4.5, "A5", None], [9.0, 3.0, "B2", 3.1]],
            "ids": ["sku-1", "sku-2"],
            "strategy": "qilcm",
        },
    },
    "columns": {
        "summary": "One array per feature, as search engines collect them",
        "value": {
            "columns": {"price": [12.5, 9.0], "stars": [4.5, 3.0], "carrier": ["A5", "B2"], "bm25": [None, 3.1]},
            "ids": ["sku-1", "sku-2"],
        },
    },
    "specialist_and_context": {
        "summary": "A specialist by its number; what all candidates share stands once, in context",
        "value": {
            "candidates": [
                {"id": "sku-1", "features": {"price": 12.5, "stars": 4.5, "bm25": None}},
                {"id": "sku-2", "features": {"price": 9.0, "stars": 3.0, "bm25": 3.1}},
            ],
            "context": {"carrier": "A5", "device": "phone"},
            "specialist": 2,
        },
    },
}

EXPLANATIONS: dict[str, dict[str, Any]] = {
    "candidate": {
        "summary": "One candidate, compared with another one",
        "value": {**REQUESTS["matrix"]["value"], "candidate": "sku-2", "against": 0},
    },
    "places": {
        "summary": "The candidates at the first two places",
        "value": {**REQUESTS["rows_by_name"]["value"], "explain_top_n": 2},
    },
}

EVENTS: dict[str, dict[str, Any]] = {
    "click": {
        "summary": "One event",
        "value": [
            {
                "event_id": "e-1",
                "query_id": "req-7",
                "action_name": "click",
                "client_id": "browser-5",
                "timestamp": "2026-11-25T12:00:00Z",
                "event_attributes": {"object": {"object_id": "sku-2"}, "position": {"ordinal": 1}},
            }
        ],
    },
    "array": {
        "summary": "Several events",
        "value": [
            {
                "query_id": "req-7",
                "action_name": "impression",
                "timestamp": "2026-11-25T11:59:58Z",
                "event_attributes": {"object": {"object_id": "sku-1"}, "position": {"ordinal": 2}},
            },
            {
                "query_id": "req-7",
                "action_name": "purchase",
                "timestamp": "2026-11-25T12:03:00Z",
                "event_attributes": {"object": {"object_id": "sku-2"}, "position": {"ordinal": 1}},
            },
        ],
    },
}

INFERENCES = {
    "tensors": {
        "summary": "The same list as tensors; the carrier by its code, see the bundle's metadata",
        "value": {
            "id": "req-7",
            "parameters": {"strategy": "qilcm", "top_n": 10},
            "inputs": [
                {
                    "name": "features",
                    "datatype": "FP32",
                    "shape": [2, 4],
                    "data": [[12.5, 4.5, None, 1], [9.0, 3.0, 3.1, 2]],
                },
                {"name": "ids", "datatype": "BYTES", "shape": [2], "data": ["sku-1", "sku-2"]},
            ],
            "outputs": [{"name": "scores"}, {"name": "ids"}],
        },
    }
}
