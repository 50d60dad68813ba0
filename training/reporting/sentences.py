"""The headings of a run's page: what its figures show, in whole sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from listwright.training.console.progress import format_count, format_duration
from listwright.training.evaluation.intervals import FEWEST, choice_verdict_of, verdict_of
from listwright.training.recipe.model import TITLES
from listwright.training.reporting.fit_figures import Facts, metric_name

GIVEN = (
    "The first stage was fitted elsewhere. Figures and verdicts are valid only for queries that it was not fitted on."
)
"""Printed wherever such a first stage is measured: its training data may include these queries."""


def brought_along(first_stage: Mapping[str, object]) -> bool:
    """Return whether the first stage was made elsewhere: a model, or scores in the data."""
    return first_stage.get("kind") in ("model", "column")


def queries_text(first_stage: Mapping[str, object]) -> str:
    """Describe the test queries."""
    if brought_along(first_stage):
        return "test queries, which the given first stage may have been fitted on"
    return "test queries, not used for fitting or tuning"


def default_sentence(default: Mapping[str, object], second: str) -> str | None:
    """Return what was removed from ``auto``, and why; None if nothing was.

    Args:
        default: Object ``default_strategy`` of ``report.json``.
        second: Kind of the second stage.
    """
    if default.get("reason") is None or default.get("compared"):
        return None
    if default["strategy"] == "first_stage":
        return f"This bundle answers with the first stage unless a request says strategy={second}: {default['reason']}."
    return f"The router of this bundle always abstains: {default['reason']}."


def choice_sentence(
    default: Mapping[str, Any],
    names: Mapping[str, str],
    budget: Mapping[str, Any] | None = None,
    *,
    external: bool = False,
) -> str | None:
    """Describe what ``auto`` means, where it was chosen by comparing; None where nothing was compared.

    Args:
        default: Object ``default_strategy`` of ``report.json``.
        names: Names of the rankers for display.
        budget: Object ``budget`` of ``report.json``; None for a fit without a bound.
        external: Whether the first stage was fitted elsewhere, perhaps on these queries.
    """
    comparisons = default.get("compared")
    if not comparisons:
        return None
    ranker = names.get(default["strategy"], default["strategy"])
    second = [comparison["n"] for comparison in comparisons if comparison["ranker"] != "relative"]
    n = min(second or [comparisons[0]["n"]])
    queries = f"{n:,} queries" if external else f"{n:,} held-out queries"
    if n < FEWEST:
        why = f"{queries} are too few to choose another; {FEWEST} are needed."
    elif second:
        why = (
            f"chosen on {queries}. The default is the simplest ranker. A second stage replaces it only if its gain "
            "is statistically significant."
        )
    else:
        why = f"list-relative columns gain {gain_text(comparisons[0])} on {queries}."
    independence = "" if external else " No model ranks a query that it was trained on."
    rankers = [*budget["left_out"], *(TITLES[kind] for kind in budget["undecided"])] if budget else []
    open_rankers = ", ".join(name for name in rankers if not name.startswith("settings"))
    out_of_time = f" Not decided for lack of time: {open_rankers}." if open_rankers else ""
    return f"auto means {ranker}: {why}{independence}{out_of_time}"


def budget_sentences(budget: Mapping[str, Any] | None) -> list[str]:
    """Return what the fit had time for.

    Args:
        budget: Object ``budget`` of ``report.json``; None for a fit without a bound.
    """
    if budget is None:
        return []
    unit, planned = budget["lightgbm_fit_seconds"], budget["planned"]
    if budget["seconds"] is None:
        sentences = ["This fit repeats the decisions of another one."]
    else:
        origin = "by default" if budget["minutes"] is None else "by --minutes"
        sentences = [f"The time limit of this fit was {format_duration(budget['seconds'])}, {origin}."]
    if unit is not None and "settings" in planned:
        ends = [done for name, done in budget["ends"].items() if name.startswith("settings of ")]
        tried = f", of which {min(ends)} tried in time" if ends else ""
        settings = format_count(planned["settings"], "setting")
        folds = format_count(planned["folds"], "fold") if planned["folds"] else "no out-of-fold scores"
        sentences.append(
            f"One LightGBM fit takes {format_duration(unit)}. The plan was {settings}{tried}, and {folds}."
        )
    cut = [name.removeprefix("epochs of ") for name in budget["ends"] if name.startswith(("epochs of ", "trees of "))]
    if cut:
        sentences.append(f"Stopped by the time limit before early stopping: {', '.join(cut)}.")
    if budget["left_out"]:
        sentences.append(f"Not tried for lack of time: {', '.join(budget['left_out'])}.")
    if budget["left_out"] or budget["undecided"]:
        sentences.append("Raise --minutes to try more; 0 tries everything.")
    return [" ".join(sentences)]


def compared_rows(
    default: Mapping[str, Any], names: Mapping[str, str], budget: Mapping[str, Any] | None = None
) -> list[tuple[str, str, str, str]]:
    """Return the comparisons: ranker, what it had to beat, the gain, and the verdict."""
    undecided = () if budget is None else budget["undecided"]
    called = {**TITLES, **names, "plain": "LightGBM", "relative": "LightGBM + relative"}
    return [
        (
            called.get(comparison["ranker"], comparison["ranker"]),
            called.get(comparison["over"], comparison["over"]),
            gain_text(comparison),
            choice_verdict_of(
                comparison["low"], comparison["high"], comparison["n"], in_time=comparison["ranker"] not in undecided
            ),
        )
        for comparison in default.get("compared", ())
    ]


def gain_text(gain: Facts) -> str:
    """Format mean and interval."""
    return f"{gain['mean']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}]"


def headline(gain: Facts, second: str, first: str, *, taken_away: bool = False) -> str:
    """Return whether the second stage pays on the test queries, and what to do if not and not yet ``taken_away``."""
    metric, verdict = metric_name(gain["metric"]), verdict_of(gain["low"], gain["high"])
    who, sure = f"On the test queries, {second}", "the 95 % interval excludes 0."
    if verdict == "gain":
        return f"{who} beats {first} by {gain['mean']:.4f} {metric}; {sure}"
    if verdict == "harm":
        text = f"{who} is worse than {first} by {-gain['mean']:.4f} {metric}; {sure}"
        return text if taken_away else f"{text} Serve {first}."
    change = f"{metric} changes by {gain['mean']:+.4f}"
    return f"{who} does not beat {first} significantly: {change}, and the 95 % interval contains 0."


def plain_sentence(gain: Facts, names: Mapping[str, str]) -> str:
    """Return the default's gain over LightGBM without list-relative columns on the test queries.

    Args:
        gain: ``default_over_plain`` of ``report.json``.
        names: Names of the rankers for display.
    """
    who, rival = f"On the test queries, the default, {names[gain['ranker']]},", "LightGBM without list-relative columns"
    text = {
        "gain": f"{who} beats {rival} by {gain['mean']:.4f}",
        "harm": f"{who} is worse than {rival} by {-gain['mean']:.4f}",
        "no difference shown": f"{who} does not beat {rival} significantly: the difference is {gain['mean']:+.4f}",
    }
    interval = f"95 % interval {gain['low']:+.4f} to {gain['high']:+.4f}"
    return f"{text[gain['verdict']]} {metric_name(gain['metric'])}, {interval}."


def metrics_sentence(gains: list[Facts], second: str) -> str:
    """Return in how many metrics the gain or the loss is significant."""
    verdicts = [verdict_of(gain["low"], gain["high"]) for gain in gains]
    won, lost = verdicts.count("gain"), verdicts.count("harm")
    text = f"{second}'s gain has an interval above 0 in {won or 'none'} of {len(gains)} metrics"
    return f"{text}, and one below 0 in {lost}" if lost else text


def wins_sentence(facts: Facts) -> str:
    """Return how the gain is spread over queries."""
    won, lost, queries = facts["won"], facts["lost"], facts["queries"]
    same = queries - won - lost
    shares = [count / max(1, queries) for count in (won, lost, same)]
    return "{:.0%} of queries gain, {:.0%} lose, {:.0%} stay the same".format(*shares).replace("%", " %")


def learning_sentence(model: Facts, ndcg_at: int) -> str:
    """Return which epoch was selected, and whether there was time for a better one."""
    best, epochs = model["best_epoch"], model["epochs"]
    if best == 0:
        return f"None of {epochs} epochs ranked the validation queries better than the first stage does"
    text = f"Validation NDCG@{ndcg_at} was best after epoch {best} of {epochs}, at {model['valid_ndcg']:.4f}"
    if best == epochs:
        return f"{text}: it was still rising when training ended"
    return text


def movement_sentence(facts: Facts) -> str:
    """Return how relevant candidates move."""
    up, down = facts["relevant"]["mean"], facts["irrelevant"]["mean"]
    if up is None or down is None:
        kind = "relevant" if up is None else "irrelevant"
        return f"No {kind} candidate reached the second stage"
    return f"Relevant candidates {_moved(up)} on average, irrelevant ones {_moved(down)}"


def _moved(ranks: float) -> str:
    if abs(ranks) < 0.005:
        return "stay where they are"
    size = abs(ranks)
    return f"move {'up' if ranks > 0 else 'down'} {size:.2f} {'rank' if round(size, 2) == 1.0 else 'ranks'}"


def scores_sentence(facts: Facts, second: str) -> str:
    """Return how often a relevant candidate scores above an irrelevant one."""
    before, after = (facts[stage]["pairs_right"] for stage in ("first_stage", "second_stage"))
    if before is None:
        return "No list has both relevant and irrelevant candidates, so there are no pairs to compare."
    return (
        f"{second} orders {after:.1%} of all pairs of a relevant and an irrelevant candidate of a list correctly, the "
        f"first stage {before:.1%}."
    ).replace("%", " %")


def attention_sentence(facts: Facts) -> str:
    """Return where attention goes."""
    often = 0.2 * facts["by_rank"][0][0]  # ranks that few lists reach say little
    means = [row[1] for row in facts["by_rank"] if row[0] >= often]
    top, last = means[0], len(means)
    if max(abs(mean - 1.0) for mean in means) < 0.1:
        return "Attention is close to even: the context is nearly the plain mean of the list"
    peak = max(range(last), key=means.__getitem__) + 1
    say = f"The first stage's first candidate gets {top:.2f} times an even share of the attention"
    return (
        f"{say}; most goes to rank {peak}, {means[peak - 1]:.2f} times" if peak > 1 else f"{say}, the most of all ranks"
    )


def anomaly_sentence(facts: Facts | None, metric: str) -> tuple[str, str]:
    """Return heading and text on whether the gain grows with how strange a query is."""
    if facts is None:
        return (
            "This bundle has no anomaly score",
            "The data have no numeric feature, or the score could not be computed. It shows whether the second stage "
            "helps more on queries whose top ten candidates have unusual features.",
        )
    if facts["gap"] is None:
        return "Too few test queries to compare usual and unusual ones", "The comparison needs at least 10."
    gap, (usual, strange) = facts["gap"], (facts["bins"][0], facts["bins"][-1])
    ends = ("mean", "low", "high")
    text = (
        f"Most unusual group: {gain_text(dict(zip(ends, strange[3:], strict=True)))} {metric_name(metric)} over the "
        f"first stage; most usual group: {gain_text(dict(zip(ends, usual[3:], strict=True)))}; the gap between them: "
        f"{gain_text(gap)}."
    )
    verdict = verdict_of(gap["low"], gap["high"])
    if verdict != "no difference shown":
        size = "larger" if verdict == "gain" else "smaller"
        return f"The gain is {size} on unusual queries than on usual ones; the interval of the gap excludes 0", text
    return "The gain does not differ significantly between unusual and usual queries", text


def importance_sentence(facts: Facts) -> str:
    """Return which feature loses most, of those whose interval lies above 0."""
    for name, _, _, loss, low, _ in facts["rows"]:
        if low > 0.0:
            return f"Shuffling {name} costs {loss:.4f} NDCG@10, the largest significant loss"
    return "No single feature has a significant loss"


def coverage_sentence(facts: Facts) -> str:
    """Return whether the test rows look like the training rows."""
    parts = [
        (facts["missing"], "missing values more often than in training"),
        (facts["clipped_often"], "more than 1 % of values beyond the training quantiles"),
        (facts["unknown"], "unknown categories"),
    ]
    clauses = [f"{count} {'has' if count == 1 else 'have'} {what}" for count, what in parts if count]
    if not clauses:
        return f"Test rows look like training rows in all {facts['features']} features"
    *others, last = clauses
    text = f"{', '.join(others)} and {last}" if others else last
    return f"Of {facts['features']} features, {text} in the test rows"


def latency_sentence(facts: Facts) -> str:
    """Return what a long list costs."""
    length, median, _slow = facts["rows"][-1]
    return f"The median latency for {length} candidates was {median:.1f} ms, over {facts['repeats']} lists"
