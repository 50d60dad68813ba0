"""The committed results on the quality of rankings, and the table that README and the page of results share."""

import json

from support.pages.figure_blocks import page, result, table

DEMO = json.loads(page("models/demo/1/report.json"))
RANKERS = {
    "lambdamart": "LightGBM",
    "lambdamart+relative": "LightGBM + relative",
    "qilcm": "QILCM",
    "shipped": "shipped",
}
PAIRS = (
    ("lambdamart+relative", "lambdamart"),
    ("qilcm", "lambdamart+relative"),
    ("shipped", "lambdamart"),
    ("shipped", "lambdamart+relative"),
)
SETS = ("mq2008", "ohsumed", "airline")
QUALITY = {name: result(f"table2_{name}") for name in SETS}
MISSING = "not measured"


def mean(found):
    return f"{found['mean']:.3f} ±{(found['high'] - found['low']) / 2:.3f}"


def demo(ranker):
    """A mean of the demo bundle's own report."""
    (found,) = (one for one in DEMO["metrics"] if (one["ranker"], one["name"]) == (ranker, "ndcg@10"))
    return mean(found)


def quality():
    """NDCG@10 of every ranker."""
    rows = [
        [name, *(mean(found["methods"][method]["means"]["ndcg@10"]) for method in RANKERS)]
        for name, found in QUALITY.items()
    ]
    shipped = DEMO["default_strategy"]["strategy"]
    rows.append(["demo", demo("plain_first_stage"), demo("first_stage"), MISSING, demo(shipped)])
    return table(["NDCG@10", *RANKERS.values()], rows)
