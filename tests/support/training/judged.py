"""Judged rows by hand."""

from datetime import UTC, datetime

import polars as pl


def row(query, position, label=0, **more):
    """One shown candidate; whatever is not said is as in a plain log."""
    return {
        "query_id": query,
        "candidate_id": f"c{position}",
        "position": position,
        "label": label,
        "served_at": datetime(2026, 1, 1, tzinfo=UTC),
        "unit": None,
        "bundle": "shop/1",
        "experiment": "test",
        "arm": None,
        "team": None,
        "intervention": None,
        "propensity": None,
        "swapped": False,
        **more,
    }


TYPES = dict.fromkeys(("unit", "experiment", "arm", "team", "intervention", "bundle"), pl.String) | {
    "propensity": pl.Float64
}


def written(path, rows):
    """The rows as a Parquet file."""
    pl.DataFrame(rows, schema_overrides=TYPES, infer_schema_length=None).write_parquet(path)
    return path
