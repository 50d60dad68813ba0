"""Attempts by name: the others that each needs, and whether it is measured with all seeds or only the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from listwright_lab.science.attempts import foreign, joint, networks, stack, trees
from listwright_lab.science.attempts.networks import ALONE, AVERAGED, BLOCKS, POINTWISE, QILCM, SEEDS, STRONG, single
from listwright_lab.science.attempts.problem import Problem, Scores

RIVAL = "relative"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Attempt to rank better than the rival.

    Args:
        title: Name in the table.
        make: Function from a problem and the scores of the needed attempts to the scores of this one.
        needs: Names of the attempts whose scores it needs.
        screened: Whether it is measured with the first seed only.
    """

    title: str
    make: Callable[..., Scores]
    needs: tuple[str, ...] = ()
    screened: bool = False


ATTEMPTS: dict[str, Attempt] = {
    "plain": Attempt("features alone", trees.plain),
    RIVAL: Attempt("LightGBM + relative columns (the baseline)", trees.relative),
    "sum": Attempt("sum of 8 seeds", trees.summed, (RIVAL,)),
    "xendcg": Attempt("sum of 8, rank_xendcg", trees.summed_xendcg, screened=True),
    "both": Attempt("both sums", stack.blended, ("sum", "xendcg"), screened=True),
    "extended": Attempt("place, gaps, list length", trees.extended),
    "by_query": Attempt("bags of queries", trees.by_query),
    "extended_by_query": Attempt("both of these", trees.extended_by_query),
    "yetirank": Attempt("CatBoost, YetiRank", foreign.catboost),
    "xgboost": Attempt("XGBoost, pairwise", foreign.xgboost),
    "learners_stacked": Attempt(
        "these three, stacked",
        lambda p, *parts: stack.stacked(p, list(parts)),
        ("extended_by_query", "yetirank", "xgboost"),
    ),
    "extended_sum": Attempt("sum of 8, both changes", trees.extended_sum, ("extended_by_query",)),
    "grouped": Attempt("comparisons within categories", trees.grouped),
    "demoted": Attempt("near-duplicates demoted", trees.demoted, (RIVAL,)),
    "linear": Attempt("linear ranker", stack.linear, (RIVAL,)),
    "linear_stacked": Attempt(
        "baseline and linear, stacked", lambda p, r, n: stack.stacked(p, [r, n]), (RIVAL, "linear")
    ),
    "linear_blended": Attempt("rank_xendcg and linear", stack.blended, ("xendcg", "linear")),
    "qilcm2_plain": Attempt(
        "QILCM2 with pooling, plain inputs", lambda p, r: single(p, p.plain, SEEDS, r), (RIVAL,), screened=True
    ),
    "qilcm2": Attempt("QILCM2 with pooling", lambda p, r: single(p, p.wide, SEEDS, r), (RIVAL,), screened=True),
    "blocks": Attempt("QILCM2 with self-attention", lambda p, r: single(p, p.wide, BLOCKS, r), (RIVAL,)),
    "blocks_safe": Attempt("kept above one error", networks.safe, (RIVAL, "blocks")),
    "strong": Attempt("stronger regularisation", lambda p, r: single(p, p.wide, STRONG, r), (RIVAL,)),
    "pretrained": Attempt("pre-trained on planted context", networks.pretrained, (RIVAL,)),
    "piecewise": Attempt("piecewise-linear inputs", lambda p, r: single(p, p.piecewise, BLOCKS, r), (RIVAL,)),
    "batch_ensemble": Attempt("and BatchEnsemble of 4", networks.batch_ensemble, (RIVAL,)),
    "regularised": Attempt("DASALC's noise, dropout", networks.regularised, (RIVAL,)),
    "contrasted": Attempt("contrastive pre-training", networks.contrasted, (RIVAL,)),
    "blocks_crossed": Attempt(
        "4 cross-fitted",
        lambda p, r: networks.crossed(p, p.wide, BLOCKS, r),
        (RIVAL,),
    ),
    "softmax_trees": Attempt("softmax loss", joint.softmax_trees),
    "softmax_sum": Attempt("sum of 8, softmax", trees.softmax_sum, ("softmax_trees",)),
    "xendcg_trees": Attempt("rank_xendcg", joint.xendcg_trees),
    "softmax_by_query": Attempt("softmax, bags of queries", joint.softmax_by_query),
    "softmax_grouped": Attempt("softmax, comparisons within categories", joint.softmax_grouped),
    "distilled": Attempt("softmax, distilled from networks", joint.distilled, ("blocks_crossed",)),
    "alternated": Attempt("alternated with networks", joint.alternated, ("blocks_crossed",)),
    "averaged": Attempt("4 in one graph", lambda p, r: single(p, p.wide, AVERAGED, r), (RIVAL,), screened=True),
    **{
        name: Attempt(
            name,
            lambda p, r, name=name: networks.with_objective(p, p.wide, name, r),
            (RIVAL,),
            screened=True,
        )
        for name in ("softmax", "plackett_luce", "lambda_loss", "neural_ndcg")
    },
    "qilcm": Attempt("QILCM", lambda p, r: single(p, p.wide, QILCM, r), (RIVAL,), screened=True),
    "mlp_plain": Attempt(
        "MLP alone, plain inputs", lambda p, r: single(p, p.plain, POINTWISE, r), (RIVAL,), screened=True
    ),
    "mlp_relative": Attempt(
        "MLP alone, relative inputs",
        lambda p, r: single(p, p.relative_only, POINTWISE, r),
        (RIVAL,),
        screened=True,
    ),
    "mlp": Attempt("MLP alone, both", lambda p, r: single(p, p.wide, POINTWISE, r), (RIVAL,), screened=True),
    "mlp_crossed": Attempt(
        "4 MLPs alone", lambda p, r: networks.crossed(p, p.wide, POINTWISE, r), (RIVAL,), screened=True
    ),
    "mlp_stacked": Attempt(
        "baseline and MLPs, stacked", lambda p, r, m: stack.stacked(p, [r, m]), (RIVAL, "mlp_crossed"), screened=True
    ),
    "alone_crossed": Attempt(
        "4 self-attention networks alone", lambda p, r: networks.crossed(p, p.wide, ALONE, r), (RIVAL,), screened=True
    ),
    "alone_stacked": Attempt(
        "baseline and these, stacked",
        lambda p, r, m: stack.stacked(p, [r, m]),
        (RIVAL, "alone_crossed"),
        screened=True,
    ),
    "sum_stacked": Attempt(
        "all three, stacked",
        lambda p, r, s, m, a: stack.stacked(p, [s, m, a], fitted_on=[r, m, a]),
        (RIVAL, "sum", "mlp_crossed", "alone_crossed"),
        screened=True,
    ),
    "all_blended": Attempt(
        "everything, equal shares",
        stack.blended,
        ("sum", "xendcg", "linear", "mlp_crossed", "alone_crossed"),
        screened=True,
    ),
    "sum_averaged": Attempt(
        "4 networks on the sum",
        lambda p, s: single(p, p.wide, AVERAGED, s),
        ("sum",),
    ),
    "sum_averaged_safe": Attempt("kept above one error", networks.safe, ("sum", "sum_averaged")),
}
"""Attempts in the order of the table; each follows those that it needs."""


def measure(problem: Problem, name: str) -> Scores:
    """Return the scores of an attempt; those that it needs are computed and stored before."""
    attempt = ATTEMPTS[name]
    needed = [measure(problem, other) for other in attempt.needs]
    return problem.scores(name, lambda: attempt.make(problem, *needed))
