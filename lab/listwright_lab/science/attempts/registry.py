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
    "xendcg": Attempt("sum of 8 by rank_xendcg", trees.summed_xendcg, screened=True),
    "both": Attempt("sum of 8 seeds and of 8 by rank_xendcg", stack.blended, ("sum", "xendcg"), screened=True),
    "extended": Attempt("columns of place, gaps and list length", trees.extended),
    "by_query": Attempt("bags of whole queries", trees.by_query),
    "extended_by_query": Attempt(
        "bags of whole queries, and columns of place, gaps and list length", trees.extended_by_query
    ),
    "yetirank": Attempt("CatBoost, YetiRank", foreign.catboost),
    "xgboost": Attempt("XGBoost, pairwise", foreign.xgboost),
    "learners_stacked": Attempt(
        "LightGBM, CatBoost and XGBoost, stacked",
        lambda p, *parts: stack.stacked(p, list(parts)),
        ("extended_by_query", "yetirank", "xgboost"),
    ),
    "extended_sum": Attempt(
        "sum of 8 with bags of whole queries and columns of place, gaps and list length",
        trees.extended_sum,
        ("extended_by_query",),
    ),
    "grouped": Attempt("comparisons within categories", trees.grouped),
    "demoted": Attempt("near-duplicates demoted", trees.demoted, (RIVAL,)),
    "linear": Attempt("linear ranker", stack.linear, (RIVAL,)),
    "linear_stacked": Attempt(
        "baseline and linear ranker, stacked", lambda p, r, n: stack.stacked(p, [r, n]), (RIVAL, "linear")
    ),
    "linear_blended": Attempt("sum of 8 by rank_xendcg and linear ranker", stack.blended, ("xendcg", "linear")),
    "qilcm2_plain": Attempt(
        "QILCM2 with pooling, plain inputs", lambda p, r: single(p, p.plain, SEEDS, r), (RIVAL,), screened=True
    ),
    "qilcm2": Attempt("QILCM2 with pooling", lambda p, r: single(p, p.wide, SEEDS, r), (RIVAL,), screened=True),
    "blocks": Attempt("QILCM2 with self-attention", lambda p, r: single(p, p.wide, BLOCKS, r), (RIVAL,)),
    "blocks_safe": Attempt("QILCM2 where it gains more than one standard error", networks.safe, (RIVAL, "blocks")),
    "strong": Attempt("QILCM2 with stronger regularisation", lambda p, r: single(p, p.wide, STRONG, r), (RIVAL,)),
    "pretrained": Attempt("QILCM2 pre-trained on planted context", networks.pretrained, (RIVAL,)),
    "piecewise": Attempt(
        "QILCM2 with piecewise-linear inputs", lambda p, r: single(p, p.piecewise, BLOCKS, r), (RIVAL,)
    ),
    "batch_ensemble": Attempt(
        "QILCM2 with piecewise-linear inputs and BatchEnsemble of 4", networks.batch_ensemble, (RIVAL,)
    ),
    "regularised": Attempt("QILCM2 with DASALC's noise and dropout", networks.regularised, (RIVAL,)),
    "contrasted": Attempt("QILCM2 with contrastive pre-training", networks.contrasted, (RIVAL,)),
    "blocks_crossed": Attempt(
        "4 cross-fitted QILCM2",
        lambda p, r: networks.crossed(p, p.wide, BLOCKS, r),
        (RIVAL,),
    ),
    "softmax_trees": Attempt("softmax loss", joint.softmax_trees),
    "softmax_sum": Attempt("sum of 8 by softmax loss", trees.softmax_sum, ("softmax_trees",)),
    "xendcg_trees": Attempt("LightGBM by rank_xendcg", joint.xendcg_trees),
    "softmax_by_query": Attempt("softmax loss, bags of whole queries", joint.softmax_by_query),
    "softmax_grouped": Attempt("softmax loss, comparisons within categories", joint.softmax_grouped),
    "distilled": Attempt("softmax loss, distilled from networks", joint.distilled, ("blocks_crossed",)),
    "alternated": Attempt("LightGBM alternated with networks", joint.alternated, ("blocks_crossed",)),
    "averaged": Attempt("4 QILCM2 in one graph", lambda p, r: single(p, p.wide, AVERAGED, r), (RIVAL,), screened=True),
    **{
        name: Attempt(
            f"QILCM2 by {name}",
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
    "mlp": Attempt(
        "MLP alone, plain and relative inputs", lambda p, r: single(p, p.wide, POINTWISE, r), (RIVAL,), screened=True
    ),
    "mlp_crossed": Attempt(
        "4 MLPs alone", lambda p, r: networks.crossed(p, p.wide, POINTWISE, r), (RIVAL,), screened=True
    ),
    "mlp_stacked": Attempt(
        "baseline and 4 MLPs, stacked", lambda p, r, m: stack.stacked(p, [r, m]), (RIVAL, "mlp_crossed"), screened=True
    ),
    "alone_crossed": Attempt(
        "4 self-attention networks alone", lambda p, r: networks.crossed(p, p.wide, ALONE, r), (RIVAL,), screened=True
    ),
    "alone_stacked": Attempt(
        "baseline and 4 self-attention networks, stacked",
        lambda p, r, m: stack.stacked(p, [r, m]),
        (RIVAL, "alone_crossed"),
        screened=True,
    ),
    "sum_stacked": Attempt(
        "sum of 8, 4 MLPs and 4 self-attention networks, stacked",
        lambda p, r, s, m, a: stack.stacked(p, [s, m, a], fitted_on=[r, m, a]),
        (RIVAL, "sum", "mlp_crossed", "alone_crossed"),
        screened=True,
    ),
    "all_blended": Attempt(
        "both sums, linear ranker, MLPs and self-attention networks in equal shares",
        stack.blended,
        ("sum", "xendcg", "linear", "mlp_crossed", "alone_crossed"),
        screened=True,
    ),
    "sum_averaged": Attempt(
        "4 networks on the sum",
        lambda p, s: single(p, p.wide, AVERAGED, s),
        ("sum",),
    ),
    "sum_averaged_safe": Attempt(
        "4 networks on the sum where they gain more than one standard error", networks.safe, ("sum", "sum_averaged")
    ),
}
"""Attempts in the order of the table; each follows those that it needs."""


def measure(problem: Problem, name: str) -> Scores:
    """Return the scores of an attempt; those that it needs are computed and stored before."""
    attempt = ATTEMPTS[name]
    needed = [measure(problem, other) for other in attempt.needs]
    return problem.scores(name, lambda: attempt.make(problem, *needed))
