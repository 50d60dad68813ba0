"""The client and the service say the same words: against the application, and against a live process."""

import dataclasses
import inspect
import json
import os
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import listwright_client
from listwright.ranking.bundle import load
from listwright.ranking.candidates import CandidateList
from listwright.ranking.order import finite_scores
from listwright.service.api import info
from listwright.service.app import create_app
from listwright.service.settings import Settings
from listwright.service.wire import schemas
from listwright_client import AsyncClient, Client, RequestError, answers, options
from support.http.client_calls import CODES, MATRIX, NAMES, ROWS, in_process
from support.service.bundles import make_bundle


def test_the_ranking_is_the_kernels(rerank, reranker):
    coded = [[row["price"], row["stars"], row["bm25"], CODES[row["carrier"]]] for row in ROWS]
    expected = reranker.rerank(CandidateList(np.array(coded, dtype=np.float32)))
    for ranking in (rerank(ROWS), rerank(MATRIX), rerank(MATRIX[:, ::-1], feature_names=NAMES[::-1])):
        np.testing.assert_allclose(ranking.scores, expected.relevance, rtol=1e-6)
        np.testing.assert_array_equal(ranking.ranks, expected.ranks)
        np.testing.assert_array_equal(ranking.order, expected.order)
        assert [result.index for result in ranking.results] == expected.order.tolist()
        assert (ranking.model, ranking.version, ranking.degraded) == ("shop", "7", False)


@pytest.mark.parametrize("features", [ROWS, MATRIX, pd.DataFrame(ROWS), pl.DataFrame(ROWS, nan_to_null=True)])
def test_whole_numbers_are_ids(rerank, features):
    own = [12, 7, 100]
    for ids in (own, np.array(own), pd.Series(own), pl.Series(own)):
        ranking = rerank(features, ids=ids)
        assert [result.id for result in ranking.results] == [own[index] for index in ranking.order]
    with pytest.raises(RequestError, match="'1' was used at 0 already"):
        rerank(features, ids=[1, "1", 2])


def test_a_large_matrix_of_numbers(rerank, reranker):
    numbers = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    numbers[::3, 2] = np.nan
    ranking = rerank(numbers, feature_names=NAMES[:3], context={"carrier": "B2"})
    codes = np.full((40, 1), CODES["B2"])
    expected = reranker.rerank(CandidateList(np.hstack([numbers, codes]).astype(np.float32)))
    np.testing.assert_allclose(ranking.scores, finite_scores(expected.relevance, expected.order), rtol=1e-6)
    np.testing.assert_array_equal(ranking.order, expected.order)
    assert (ranking.scores < 0).sum() == 40 - 5, "the cutoff is 5"
    holey = rerank(numbers, feature_names=NAMES[:3], context={"carrier": "B2"}, finite_scores=False)
    np.testing.assert_allclose(holey.scores, expected.relevance, rtol=1e-6)
    assert [result.relevance_score is None for result in holey.results] == [False] * 5 + [True] * 35


def test_rules_leave_candidates_out_and_are_named(rerank):
    rules = [{"name": "campaign", "action": "pin", "id": "c", "place": 1}, {"action": "exclude", "ids": ["a"]}]
    ranking = rerank(MATRIX, ids=["a", "b", "c"], rules=rules)
    assert ranking.ranks.tolist() == [0, 2, 1]
    assert ranking.order.tolist() == [2, 1]
    assert [(result.id, result.rules) for result in ranking.results] == [("c", ("campaign",)), ("b", ())]
    assert [(rule["name"], rule["action"], rule["candidates"]) for rule in ranking.meta.rules] == [
        ("rule 2", "exclude", 1),
        ("campaign", "pin", 1),
    ]


def test_probabilities_weights_and_a_cutoff_are_the_kernels(tmp_path):
    folder = make_bundle(tmp_path / "shop" / "1", probability="relevance", goals={"margin": 0.3})
    loaded = load(folder)
    app = create_app(Settings(bundle=folder), models=loaded)
    coded = np.array([[row["price"], row["stars"], row["bm25"], CODES[row["carrier"]]] for row in ROWS])
    plain = loaded.reranker.rerank(CandidateList(coded), probability=True)
    expected = loaded.reranker.rerank(CandidateList(coded), probability=True, weights={"margin": 2.0})
    assert plain.order.tolist() != expected.order.tolist()
    lowest = float(expected.probability.max())
    left_out = int((expected.probability < lowest).sum())
    assert left_out > 0
    options = {"probabilities": True, "weights": {"margin": 2.0}, "min_probability": lowest}
    ranking = in_process(app, lambda client: client.rerank(ROWS, **options))
    np.testing.assert_allclose(ranking.probabilities, expected.probability, rtol=1e-6)
    assert ranking.order.tolist() == [index for index in expected.order if expected.probability[index] >= lowest]
    assert [one.probability for one in ranking.results] == ranking.probabilities[ranking.order].tolist()
    assert ranking.meta.weights == {"booked": 1.0, "margin": 2.0}
    assert [(rule["name"], rule["candidates"]) for rule in ranking.meta.rules] == [("min_probability", left_out)]
    info = in_process(app, lambda client: client.info())
    assert info.probability == answers.ProbabilityInfo("relevance", lists=30, mean=0.4)
    assert info.goals == {"booked": 1.0, "margin": 0.3}


@pytest.mark.parametrize("option", [{"probabilities": True}, {"min_probability": 0.5}, {"weights": {"margin": 0.5}}])
def test_a_bundle_without_them_refuses_them_by_name(rerank, client, option):
    with pytest.raises(RequestError) as caught:
        rerank(MATRIX, **option)
    assert (caught.value.status, caught.value.attempts) == (422, 1)
    assert [fault.path for fault in caught.value.errors] == [f"$.{name}" for name in option]
    assert (client.info().probability, client.info().goals) == (None, None)


def test_every_word_arrives(rerank):
    ranking = rerank(
        MATRIX,
        ids=["a", "b", "c"],
        feature_names=NAMES,
        context={"device": "phone", "age": np.float64("nan")},
        top_n=2,
        strategy="srm",
        specialist=1,
        model="shop",
        version="7",
        raw_scores=True,
        id="q-1",
        request_id="mine-1",
    )
    assert (ranking.id, ranking.request_id, len(ranking.results)) == ("q-1", "mine-1", 2)
    assert [result.id for result in ranking.results] == ["abc"[position] for position in ranking.order[:2]]
    assert (ranking.route.strategy, ranking.route.specialist, ranking.route.decided_by) == ("srm", 1, "caller")
    assert not np.isclose(ranking.scores.sum(), 1.0), "logits"


@pytest.mark.parametrize(
    ("features", "words", "status", "kind", "path"),
    [
        ([dict(ROWS[0], price="cheap")], {}, 422, "candidate", "$.candidates[0].features.price"),
        (np.full((2, 4), 1e39), {}, 422, "candidate", "$.features[0][0]"),
        (np.ones((1, 4)), {"top_n": 0}, 422, "invalid-request", "$.top_n"),
        (np.zeros((0, 4)), {}, 400, "empty-list", "$.features"),
    ],
)
def test_a_fault_comes_back_with_its_path(rerank, features, words, status, kind, path):
    with pytest.raises(RequestError) as caught:
        rerank(features, **words)
    assert (caught.value.status, caught.value.kind) == (status, kind)
    assert [fault.path for fault in caught.value.errors] == [path]
    assert caught.value.attempts == 1


def test_other_features_come_back_with_the_names(rerank):
    with pytest.raises(RequestError) as caught:
        rerank(np.ones((1, 2)), feature_names=["prise", "stars"])
    problem = caught.value.problem
    assert (problem.status, problem.kind) == (409, "schema-mismatch")
    assert (problem.expected, problem.sent) == (tuple(NAMES), ("prise", "stars"))
    assert problem.fingerprint.startswith("sha256:")


def test_info_and_ready(client, app):
    for told in (client.info(), in_process(app, lambda asked: asked.info())):
        assert (told.model, told.version, told.feature_names) == ("shop", "7", tuple(NAMES))
        assert (told.max_candidates, told.max_payload_bytes) == (50, 200_000)
        assert told.features[3] == answers.FeatureInfo("carrier", "categorical", required=False)
        assert told.strategies == ("auto", "qilcm", "srm", "first_stage")
        assert len(told.document["specialists"]) == 3
    assert client.ready()
    assert in_process(app, lambda asked: asked.ready())


def test_every_field_of_a_request_has_its_word():
    words = set(options.RerankOptions.__annotations__) | {"features", "candidates"}
    assert set(schemas.RerankRequest.model_fields) - words == {"columns", "expect_candidates"}, (
        "a matrix under names is as good, and the length goes in a header"
    )
    assert typing.get_args(options.Strategy) == typing.get_args(schemas.Strategy)


@pytest.mark.parametrize(
    ("value", "model"),
    [
        (answers.Result, schemas.Result),
        (answers.Route, schemas.RouteInfo),
        (answers.Meta, schemas.Meta),
        (answers.FeatureInfo, info.FeatureInfo),
        (answers.ProbabilityInfo, info.ProbabilityInfo),
    ],
)
def test_what_the_client_reads_is_what_the_service_says(value, model):
    assert {field.name for field in dataclasses.fields(value)} <= set(model.model_fields)


def test_both_clients_have_the_same_words():
    for name in ("__init__", "rerank", "info", "ready"):
        words, awaited = (list(inspect.signature(getattr(kind, name)).parameters) for kind in (Client, AsyncClient))
        assert words == awaited, name


FORKING = """
import asyncio, json, os, sys
import numpy as np
from listwright_client import AsyncClient, Client

url, children, calls = sys.argv[1], 4, 25
lists = [np.random.default_rng(seed).normal(size=(20, 3)) for seed in range(children)]
words = {"feature_names": ["price", "stars", "bm25"], "context": {"carrier": "A5"}, "timeout": 60.0}
with Client(url) as alone:
    expected = [alone.rerank(one, **words).scores for one in lists]

client, aio = Client(url), AsyncClient(url)
client.rerank(lists[0], **words)
asyncio.run(aio.rerank(lists[0], **words))
go, starts = os.pipe()
ends = []
for number in range(children):
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.close(starts)
        os.read(go, 1)  # all begin at once, when the parent closes its end

        async def ask():
            return [(await aio.rerank(lists[number], **words)).scores for _ in range(calls)]

        try:
            found = [client.rerank(lists[number], **words).scores for _ in range(calls)] + asyncio.run(ask())
            right = sum(np.array_equal(scores, expected[number], equal_nan=True) for scores in found)
            os.write(writes, json.dumps(right).encode())
        except BaseException as error:
            os.write(writes, json.dumps(repr(error)).encode())
        os._exit(0)
    os.close(writes)
    ends.append(reads)
os.close(starts)
mine = [client.rerank(lists[0], **words).scores for _ in range(2 * calls)]
told = [sum(np.array_equal(scores, expected[0], equal_nan=True) for scores in mine)]
for reads in ends:
    with os.fdopen(reads) as end:
        told.append(json.loads(end.read()))
    os.wait()
print(json.dumps(told))
"""


@pytest.mark.nightly
def test_forked_processes_that_ask_at_once_get_their_own_answers(live):
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(live.base_url)]
    env = {**os.environ, "PYTHONPATH": str(Path(listwright_client.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout) == [50] * 5, done.stderr
