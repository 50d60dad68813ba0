"""From requests to judged rows: what the service logs is what it ranked, and what it acknowledged is joined."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from listwright.ranking import bundle
from listwright.training.commands import join
from listwright.training.traffic.join.replay import replay
from support.service.asgi import serving
from support.service.bundles import CATEGORY, NUMERIC, make_bundle, rows

QUERIES, LENGTH, SHOWN = 30, 8, 5


@pytest.fixture
def logged(tmp_path):
    """Thirty answered lists, each with a click on the second shown candidate, and the bundle that ranked them."""
    (tmp_path / "served").mkdir()
    folder = make_bundle(tmp_path / "models" / "shop" / "7", cutoff=6, specialists=3, margin=0.25)
    with serving(folder, served_log=tmp_path / "served", events_log=tmp_path / "events") as client:
        for number in range(QUERIES):
            values = rows(np.random.default_rng(number), LENGTH).tolist()
            features = [[None if v != v else v for v in row[:-1]] + [_category(row[-1])] for row in values]  # noqa: PLR0124
            body = {
                "query_id": f"q-{number}",
                "ids": [f"sku-{place}" for place in range(LENGTH)],
                "feature_names": [*NUMERIC, CATEGORY.name],
                "features": features,
                "top_n": SHOWN,
            }
            answer = client.post("/rerank", json=body).json()
            event = {
                "query_id": f"q-{number}",
                "action_name": "click",
                "timestamp": (datetime.now(UTC) + timedelta(seconds=5)).isoformat(),
                "event_attributes": {
                    "object": {"object_id": answer["results"][1]["id"]},
                    "position": {"ordinal": answer["results"][1]["rank"]},
                },
            }
            for _ in range(2):  # a sender that did not see the first answer
                assert client.post("/ubi/events", json=event).status_code == 202
    return folder, tmp_path


def _category(code):
    return CATEGORY.categories[int(code) - 1] if code else None


def test_what_was_served_is_joined_and_ranks_again_to_the_bit(logged, capsys):
    folder, tmp_path = logged
    (tmp_path / "labels.toml").write_text("[labels]\nclick = 1\n")
    words = ["--served", tmp_path / "served", "--events", tmp_path / "events", "--labels", tmp_path / "labels.toml"]
    assert join.main([*map(str, words), "--out", str(tmp_path / "rows.parquet")]) == 0, capsys.readouterr().out
    judged = pl.read_parquet(tmp_path / "rows.parquet")
    assert judged.height == QUERIES * SHOWN
    assert judged.filter(pl.col("label") == 1)["position"].to_list() == [2] * QUERIES
    assert judged["n_click"].sum() == QUERIES
    assert set(judged["bundle"]) == {"shop/7"}
    assert set(judged[CATEGORY.name].drop_nulls()) <= set(CATEGORY.categories)
    found = replay(tmp_path / "served", bundle.load(folder), 1000)
    assert (found.same, found.differing) == (QUERIES, 0)
