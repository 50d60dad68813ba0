"""Lists for offline scoring, as a frame for the bundle of ``make_bundle``."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import polars as pl

from listwright.ranking import bundle
from listwright.service.app import create_app
from listwright.service.settings import Settings
from listwright.training.scoring import run as scoring_run
from listwright.training.scoring.job import Job
from listwright.training.scoring.run import parts
from support.service.asgi import asking
from support.service.bundles import CATEGORY, NUMERIC, rows

LENGTHS = (1, 7, 120, 3, 40)
"""One list is longer than the cutoff of the bundle: its tail has no score."""


def lists(lengths, seed=0):
    """Rows of so many lists, with a column beside the features; categories by name, a few of them unknown."""
    rng = np.random.default_rng(seed)
    count = int(sum(lengths))
    made = rows(rng, count).astype(np.float64)
    names = ("Z9", *CATEGORY.categories)
    return pl.DataFrame(
        {
            "query": np.repeat([f"q{n}" for n in range(len(lengths))], lengths),
            "note": [f"row {n}" for n in range(count)],
            **{name: pl.Series(made[:, d], nan_to_null=True) for d, name in enumerate(NUMERIC)},
            CATEGORY.name: [names[int(code)] for code in made[:, -1]],
        }
    )


def job(folder, data, **changes):
    """To score the file with the bundle into ``out.parquet`` beside it, in parts of a list or a few."""
    out = changes.pop("out", data.with_name("out.parquet"))
    return Job(folder, data, out, **{"qid": "query", "part_rows": 30} | changes)


def rank_by_threads(monkeypatch, part_rows):
    """Rank parts of about so many rows in threads of this process: further processes would take seconds to start."""

    @contextmanager
    def threads(_on, jobs, *, local_jobs):
        with ThreadPoolExecutor(jobs or local_jobs) as executor:
            yield executor, jobs or local_jobs

    monkeypatch.setattr(scoring_run, "side_by_side", threads)
    monkeypatch.setattr(scoring_run, "parts", partial(parts, rows=part_rows))


def answers(folder, frame, names=(*NUMERIC, CATEGORY.name), **options):
    """What ``POST /rerank`` says of each list: scores, ranks, first-stage scores, strategy."""
    with asking(create_app(Settings(bundle=folder), models=bundle.load(folder))) as client:
        for rows in frame.partition_by("query", maintain_order=True):
            features = rows.select(names).rows()
            said = client.post("/rerank", json={"features": [list(row) for row in features], **options}).json()
            first = {one["index"]: one["first_stage_score"] for one in said["results"]}
            yield from zip(
                said["scores"],
                said["ranks"],
                [first[n] for n in range(len(first))],
                [said["route"]["strategy"]] * len(first),
                strict=True,
            )
