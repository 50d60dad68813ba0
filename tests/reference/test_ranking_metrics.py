"""The metrics against independently computed values, and against other people's code where conventions coincide."""

import json
import shutil

import ir_measures
import lightgbm
import numpy as np
import pytest
from ir_measures import AP, ERR, RR, P, Qrel, ScoredDoc, Success, nDCG
from sklearn.metrics import ndcg_score

from listwright.ranking.metrics import (
    EvalProtocol,
    hit,
    ndcg,
    precision,
    reciprocal_rank,
)
from support.one_list import average_precision, expected_reciprocal_rank

CUTOFFS = (1, 3, 5, 10, 50)


@pytest.fixture(scope="module")
def judged():
    """60 lists of 1 to 30 candidates without tied scores; every fifth has no relevant candidate."""
    rng = np.random.default_rng(3)
    lists = []
    for n in range(60):
        length = int(rng.integers(1, 31))
        labels = rng.integers(0, 5, length) * rng.integers(0, 2, length) if n % 5 else np.zeros(length, dtype=np.int64)
        lists.append((rng.permutation(length) + rng.random(length) / 2, labels))
    return lists


def test_the_reference_values(reference_folder):
    cases = json.loads((reference_folder / "ranking_metrics.json").read_text(encoding="utf-8"))
    assert len(cases) == 40
    for case in cases:
        scores, labels = np.array(case["scores"]), np.array(case["labels"])
        for cutoff, expected in case["ndcg"].items():
            value = np.nan if expected is None else expected
            assert ndcg(scores, labels, cutoff=int(cutoff)) == pytest.approx(value, abs=1e-12, nan_ok=True)
        for cutoff, expected in case["precision"].items():
            assert precision(scores, labels, cutoff=int(cutoff)) == pytest.approx(expected, abs=1e-12)
        for cutoff, expected in case["hit"].items():
            assert hit(scores, labels, cutoff=int(cutoff)) == expected
        assert reciprocal_rank(scores, labels) == pytest.approx(case["reciprocal_rank"], abs=1e-12)


@pytest.fixture
def in_trec_form(judged):
    """Judgments and runs for ir_measures; NDCG, with gains 2^y - 1, and ERR come from TREC's gdeval, to five digits."""
    qrels = [Qrel(f"{n}", f"c{i}", int(y)) for n, (_, labels) in enumerate(judged) for i, y in enumerate(labels)]
    run = [ScoredDoc(f"{n}", f"c{i}", float(s)) for n, (scores, _) in enumerate(judged) for i, s in enumerate(scores)]
    return qrels, run


def test_ir_measures(judged, in_trec_form):
    ours = {AP: [average_precision(*one) for one in judged], RR: [reciprocal_rank(*one) for one in judged]}
    for cutoff in CUTOFFS:
        ours[P @ cutoff] = [precision(*one, cutoff=cutoff) for one in judged]
        ours[Success @ cutoff] = [hit(*one, cutoff=cutoff) for one in judged]
    theirs = {(of.query_id, of.measure): of.value for of in ir_measures.iter_calc(list(ours), *in_trec_form)}
    for measure, values in ours.items():
        assert values == pytest.approx([theirs[f"{n}", measure] for n in range(len(judged))], abs=1e-9), measure


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval, which ir_measures runs, is a Perl script")
def test_gdeval(judged, in_trec_form):
    for cutoff in (1, 5, 10):
        ours = {
            ERR @ cutoff: [expected_reciprocal_rank(*one, cutoff=cutoff) for one in judged],
            nDCG(dcg="exp-log2") @ cutoff: np.nan_to_num([ndcg(*one, cutoff=cutoff) for one in judged]),
        }
        theirs = {(of.query_id, of.measure): of.value for of in ir_measures.iter_calc(list(ours), *in_trec_form)}
        for measure, values in ours.items():
            expected = [theirs.get((f"{n}", measure), 0.0) for n in range(len(judged))]  # it leaves out empty queries
            assert values == pytest.approx(expected, abs=6e-6), measure


def test_scikit_learn(judged):
    """Its gain is the label itself, so it is given 2^y - 1; it refuses lists of one candidate. Equal scores share ranks."""
    protocol = EvalProtocol(empty_queries=0)
    compared = 0
    tied = [(np.floor(scores / 4.0), labels) for scores, labels in judged]
    for scores, labels in judged + tied:
        if len(labels) < 2:
            continue
        for cutoff in CUTOFFS:
            theirs = ndcg_score([2.0**labels - 1.0], [scores], k=cutoff)
            ours = protocol.apply(np.array([ndcg(scores, labels, cutoff=cutoff)]))
            assert ours.item() == pytest.approx(theirs, abs=1e-12)
            compared += 1
    assert compared > 400


def test_lightgbm_counts_an_empty_query_as_one(judged):
    """One round that can split nothing leaves the given scores as they are; LightGBM then reports their mean NDCG."""
    scores = np.concatenate([scores for scores, _ in judged])
    data = lightgbm.Dataset(
        np.zeros((len(scores), 1)),
        np.concatenate([labels for _, labels in judged]),
        group=[len(labels) for _, labels in judged],
        init_score=scores,
        params={"feature_pre_filter": False},
    )
    evaluated: dict[str, dict[str, list[float]]] = {}
    lightgbm.train(
        {"objective": "lambdarank", "metric": "ndcg", "eval_at": CUTOFFS, "num_threads": 1, "verbosity": -1},
        data,
        num_boost_round=1,
        valid_sets=[data],
        valid_names=["given"],
        callbacks=[lightgbm.record_evaluation(evaluated)],
    )
    protocol = EvalProtocol(empty_queries=1)
    for cutoff in CUTOFFS:
        ours = protocol.apply(np.array([ndcg(*one, cutoff=cutoff) for one in judged])).mean()
        assert ours == pytest.approx(evaluated["given"][f"ndcg@{cutoff}"][0], abs=1e-12)
