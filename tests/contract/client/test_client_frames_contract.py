"""A frame that is asked with is read as the frame that was trained on: by either client, of either library."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from listwright import training
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.service.app import create_app
from listwright.service.settings import Settings
from support.http.client_calls import CODES, MATRIX, NAMES, ROWS, in_process
from support.training.searches import SMALL

pytestmark = pytest.mark.nightly

QUERIES, LENGTH = 30, 5


def frames():
    """The candidates of the contract's tests as frames, with other types of missing values."""
    by_pandas = pd.DataFrame(ROWS)
    yield by_pandas
    yield by_pandas.convert_dtypes()
    yield by_pandas.astype({"carrier": "category", "price": "float32"})
    yield pl.DataFrame(ROWS, nan_to_null=True)
    yield pl.DataFrame(ROWS).with_columns(pl.col("carrier").cast(pl.Categorical))


@pytest.mark.parametrize("frame", list(frames()))
def test_a_frame_says_what_its_rows_say(rerank, reranker, frame):
    coded = [[row["price"], row["stars"], row["bm25"], CODES[row["carrier"]]] for row in ROWS]
    expected = reranker.rerank(CandidateList(np.array(coded, dtype=np.float32)))
    for asked in (frame, frame[NAMES[::-1]]):
        ranking = rerank(asked, ids=["a", "b", "c"])
        np.testing.assert_allclose(ranking.scores, expected.relevance, rtol=1e-6)
        np.testing.assert_array_equal(ranking.order, expected.order)
        assert [result.id for result in ranking.results] == ["abc"[position] for position in ranking.order]
    np.testing.assert_array_equal(ranking.scores, rerank(MATRIX).scores)


def trained():
    """Every type that a feature may have, with gaps."""
    rng = np.random.default_rng(0)
    count = QUERIES * LENGTH

    def gaps(values):
        return [None if rng.random() < 0.1 else value for value in values]

    carrier = rng.choice(["x", "y"], count)
    direct = rng.random(count) < 0.5
    price = rng.normal(size=count)
    frame = pd.DataFrame(
        {
            "price": gaps(price),
            "rating": rng.normal(size=count).astype(np.float32),
            "seats": pd.array(gaps(rng.integers(1, 9, count)), dtype="Int64"),
            "stops": pd.array(gaps(rng.integers(0, 3, count)), dtype="Int64"),
            "code": rng.choice(np.float32([0.1, 0.2, 0.3]), count),
            "direct": direct,
            "fee": pd.array(gaps(direct), dtype="boolean"),
            "carrier": pd.Categorical(gaps(carrier)),
            "cabin": rng.choice(["eco", "first"], count),
            "deck": pd.Categorical(rng.integers(1, 4, count)),
        }
    )
    clicked = (price + direct + (carrier == "x") > 1.5).astype(int)
    return frame, clicked, np.repeat(np.arange(QUERIES), LENGTH)


@pytest.fixture(scope="module")
def fitted():
    X, y, qid = trained()
    return training.Qilcm(**SMALL, categorical=("stops", "code")).fit(X, y, qid)


def by_polars(X):
    columns = {name: [None if pd.isna(value) else value for value in X[name].to_list()] for name in X}
    return pl.DataFrame(columns).with_columns(
        pl.col("rating", "code").cast(pl.Float32), pl.col("cabin").cast(pl.Categorical)
    )


@pytest.mark.parametrize("made", [lambda X: X, by_polars], ids=["pandas", "polars"])
def test_types_mean_what_they_meant_in_training(fitted, made, tmp_path):
    """Numbers, booleans, categories of text and of numbers: the scores are those that ``predict`` gives, in their order."""
    X, _, qid = trained()
    scores = fitted.predict(X, qid)
    kinds = {feature.name: feature.kind for feature in fitted.manifest_.feature_schema.features}
    assert [name for name, kind in kinds.items() if kind == "numeric"] == ["price", "rating", "seats"]
    saved = fitted.save(tmp_path / "shop" / "1")
    app = create_app(Settings(bundle=saved), models=bundle.load(saved))

    async def ask(client):
        return [await client.rerank(made(X[qid == query]), raw_scores=True) for query in range(QUERIES)]

    for query, ranking in enumerate(in_process(app, ask)):
        wanted = scores[qid == query]
        assert not ranking.degraded
        np.testing.assert_array_equal(ranking.order, np.argsort(-wanted, kind="stable"))
        rescored = np.isfinite(ranking.scores)
        np.testing.assert_allclose(ranking.scores[rescored], wanted[rescored], rtol=1e-5)
