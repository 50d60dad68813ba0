"""Every attempt by name: what it needs, and whether it is measured with all seeds or with the first only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.science.attempts import foreign, joint, linear, networks, stack, trees
from benchmarks.science.attempts.networks import ALONE, AVERAGED, BLOCKS, POINTWISE, QILCM, SEEDS, STRONG, single
from benchmarks.science.attempts.problem import Problem, Scores

RIVAL = "relative"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt.

    Args:
        title: a row of the table.
        make: from a problem and the scores of what it needs.
        needs: names of other attempts.
        screened: measured with the first seed only.
    """

    title: str
    make: Callable[..., Scores]
    needs: tuple[str, ...] = ()
    screened: bool = False


ATTEMPTS: dict[str, Attempt] = {
    "plain": Attempt("LightGBM", trees.plain),
    RIVAL: Attempt("LightGBM + relative columns (the baseline)", trees.relative),
    "sum": Attempt("sum of 8 baselines with other seeds", trees.summed, (RIVAL,)),
    "three": Attempt("sum of 3 baselines with other seeds", lambda p, one: trees.summed(p, one, 3), (RIVAL,)),
    "xendcg": Attempt("sum of 8, rank_xendcg", trees.summed_xendcg, screened=True),
    "both": Attempt("both sums, equal shares", stack.blended, ("sum", "xendcg"), screened=True),
    "extended": Attempt("place, gaps and list length too", trees.extended),
    "by_query": Attempt("bags of whole queries", trees.by_query),
    "extended_by_query": Attempt("both of these", trees.extended_by_query),
    "yetirank": Attempt("CatBoost, YetiRank, on the same columns", foreign.catboost),
    "xgboost": Attempt("XGBoost, 8 pairs of each candidate, on the same columns", foreign.xgboost),
    "learners_stacked": Attempt(
        "LightGBM with both changes and these two, stacked",
        lambda p, *parts: stack.stacked(p, list(parts)),
        ("extended_by_query", "yetirank", "xgboost"),
    ),
    "extended_sum": Attempt("sum of 8 with both changes", trees.extended_sum, ("extended_by_query",)),
    "extended_three": Attempt(
        "sum of 3 with both changes", lambda p, one: trees.extended_sum(p, one, 3), ("extended_by_query",)
    ),
    "grouped": Attempt("rank, gap and count within each category", trees.grouped),
    "demoted": Attempt("lower behind better ones of the same categories", trees.demoted, (RIVAL,)),
    "linear": Attempt("linear ranker, relative columns too", linear.linear, (RIVAL,)),
    "linear_stacked": Attempt(
        "baseline and linear ranker, stacked", lambda p, r, n: stack.stacked(p, [r, n]), (RIVAL, "linear")
    ),
    "linear_blended": Attempt(
        "sum of 8, rank_xendcg, and linear ranker, equal shares", stack.blended, ("xendcg", "linear")
    ),
    "qilcm2_plain": Attempt(
        "QILCM2 with pooling, columns of the set", lambda p, r: single(p, p.plain, SEEDS, r), (RIVAL,), screened=True
    ),
    "qilcm2": Attempt(
        "QILCM2 with pooling, relative columns too", lambda p, r: single(p, p.wide, SEEDS, r), (RIVAL,), screened=True
    ),
    "blocks": Attempt("QILCM2 with self-attention", lambda p, r: single(p, p.wide, BLOCKS, r), (RIVAL,)),
    "blocks_safe": Attempt("the same, kept above one standard error", networks.safe, (RIVAL, "blocks")),
    "strong": Attempt("the same, stronger regularisation", lambda p, r: single(p, p.wide, STRONG, r), (RIVAL,)),
    "pretrained": Attempt("the same, begun with what planted context taught", networks.pretrained, (RIVAL,)),
    "piecewise": Attempt("the same, piecewise-linear inputs", lambda p, r: single(p, p.piecewise, BLOCKS, r), (RIVAL,)),
    "batch_ensemble": Attempt("4 of these with shared weights (BatchEnsemble)", networks.batch_ensemble, (RIVAL,)),
    "regularised": Attempt("the same, noise and dropout of DASALC", networks.regularised, (RIVAL,)),
    "contrasted": Attempt("the same, begun with what lists without labels taught", networks.contrasted, (RIVAL,)),
    "blocks_crossed": Attempt(
        "4 of the same, each fitted without a fourth of the queries",
        lambda p, r: networks.crossed(p, p.wide, BLOCKS, r),
        (RIVAL,),
    ),
    "softmax_trees": Attempt("LightGBM by the softmax loss", joint.softmax_trees),
    "xendcg_trees": Attempt("LightGBM by rank_xendcg", joint.xendcg_trees),
    "softmax_by_query": Attempt("LightGBM by the softmax loss, bags of whole queries", joint.softmax_by_query),
    "objectives_blended": Attempt(
        "LightGBM by both losses, bags of whole queries, equal shares", stack.blended, ("by_query", "softmax_by_query")
    ),
    "chosen": Attempt("loss and bags as the search chooses", trees.chosen),
    "softmax_extended": Attempt("the same, place, gaps and list length too", joint.softmax_extended),
    "distilled": Attempt("the same, half of the target from these 4 networks", joint.distilled, ("blocks_crossed",)),
    "alternated": Attempt(
        "LightGBM on what these 4 networks leave, and a network on the sum", joint.alternated, ("blocks_crossed",)
    ),
    "averaged": Attempt(
        "4 of the same in one graph", lambda p, r: single(p, p.wide, AVERAGED, r), (RIVAL,), screened=True
    ),
    **{
        name: Attempt(
            f"the same, objective {name}",
            lambda p, r, name=name: networks.with_objective(p, p.wide, name, r),
            (RIVAL,),
            screened=True,
        )
        for name in ("softmax", "plackett_luce", "lambda_loss", "neural_ndcg")
    },
    "qilcm": Attempt("QILCM, relative columns too", lambda p, r: single(p, p.wide, QILCM, r), (RIVAL,), screened=True),
    "mlp_plain": Attempt(
        "MLP alone, columns of the set", lambda p, r: single(p, p.plain, POINTWISE, r), (RIVAL,), screened=True
    ),
    "mlp_relative": Attempt(
        "MLP alone, relative columns only",
        lambda p, r: single(p, p.relative_only, POINTWISE, r),
        (RIVAL,),
        screened=True,
    ),
    "mlp": Attempt("MLP alone, both", lambda p, r: single(p, p.wide, POINTWISE, r), (RIVAL,), screened=True),
    "mlp_crossed": Attempt(
        "4 MLPs alone, both", lambda p, r: networks.crossed(p, p.wide, POINTWISE, r), (RIVAL,), screened=True
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
        "sum of 8, MLPs and self-attention networks, stacked",
        lambda p, r, s, m, a: stack.stacked(p, [s, m, a], fitted_on=[r, m, a]),
        (RIVAL, "sum", "mlp_crossed", "alone_crossed"),
        screened=True,
    ),
    "all_blended": Attempt(
        "both sums, linear ranker, 4 MLPs and 4 self-attention networks, equal shares",
        stack.blended,
        ("sum", "xendcg", "linear", "mlp_crossed", "alone_crossed"),
        screened=True,
    ),
    "sum_averaged": Attempt(
        "4 networks with self-attention in one graph, on the sum of 8",
        lambda p, s: single(p, p.wide, AVERAGED, s),
        ("sum",),
    ),
    "sum_averaged_safe": Attempt("the same, kept above one standard error", networks.safe, ("sum", "sum_averaged")),
}
"""In the order of the table; each stands behind what it needs."""


def measure(problem: Problem, name: str) -> Scores:
    """Return the scores of an attempt; those that it needs are computed and stored before."""
    attempt = ATTEMPTS[name]
    needed = [measure(problem, other) for other in attempt.needs]
    return problem.scores(name, lambda: attempt.make(problem, *needed))
