"""Requests for the bundle of ``tests/contract``, as JSON, and what is compared of their answers."""

ROWS = [
    {"price": 1.0, "stars": 0.5, "bm25": 3.0, "carrier": "A5"},
    {"price": -1.0, "stars": 2.5, "bm25": None, "carrier": "B2"},
    {"price": 0.25, "stars": -1.5, "bm25": 0.5, "carrier": "never seen"},
    {"price": 2.0, "stars": 0.0, "bm25": -2.0, "carrier": None},
    {"price": 0.5, "stars": 1.0, "bm25": 1.0, "carrier": "C7"},
    {"price": 0.75, "stars": 1.5, "bm25": 0.0, "carrier": "A5"},
    {"price": -0.5, "stars": -0.5, "bm25": 2.0, "carrier": "B2"},
]
NAMES = ["price", "stars", "bm25", "carrier"]
CODES = {"A5": 1, "B2": 2, "C7": 3}


def by_name(rows=ROWS, **more):
    return {"candidates": [{"id": f"sku-{n}", "features": row} for n, row in enumerate(rows)], **more}


def by_position():
    return {"candidates": [{"id": f"sku-{n}", "features": [row[k] for k in NAMES]} for n, row in enumerate(ROWS)]}


def matrix(order=NAMES):
    order = list(order)
    ids = [f"sku-{n}" for n in range(len(ROWS))]
    return {"feature_names": order, "features": [[row[k] for k in order] for row in ROWS], "ids": ids}


def by_column(order=NAMES):
    ids = [f"sku-{n}" for n in range(len(ROWS))]
    return {"columns": {name: [row[name] for row in ROWS] for name in order}, "ids": ids}


def without_timings(answer):
    answer = dict(answer, meta=dict(answer["meta"]))
    del answer["meta"]["timings_ms"]
    return answer


BODY = {"features": [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]}
BROKEN = {"features": [[5000.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]}
"""Makes the second stage of this bundle fail."""
