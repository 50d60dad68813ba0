"""The page of a run, ``report.html``, made from ``report.json`` and from nothing else.

``listwright page models/demo/1/report.json page.html`` makes it anew.
"""

from __future__ import annotations

import json
from typing import Any

from listwright.training.reporting import fit_figures as figures
from listwright.training.reporting.data_sections import choice_section, coverage_section, notes_section
from listwright.training.reporting.explained_section import explained_section
from listwright.training.reporting.fit_figures import Facts, metric_name
from listwright.training.reporting.page import PageFigure, PageSection, PageTable, render
from listwright.training.reporting.score_sections import score_sections
from listwright.training.reporting.sentences import (
    GIVEN,
    anomaly_sentence,
    attention_sentence,
    brought_along,
    choice_sentence,
    default_sentence,
    headline,
    latency_sentence,
    learning_sentence,
    metrics_sentence,
    movement_sentence,
    plain_sentence,
    queries_text,
    scores_sentence,
    wins_sentence,
)


def fit_page(report: Facts) -> str:
    """The page as HTML.

    Args:
        report: the contents of ``report.json``.
    """
    gain, repeat = report["gain_over_first_stage"], report["repeat"]
    second = report["rankers"][gain["ranker"]]
    means = {metric["ranker"]: metric["mean"] for metric in report["metrics"] if metric["name"] == gain["metric"]}
    given, default = brought_along(report["first_stage"]), report.get("default_strategy", {})
    name = report["rankers"]["first_stage"]
    if name == "first stage":  # brought along, or of an older report
        name = "the first stage"
    first = f"{means['first_stage']:.4f}", f"{metric_name(gain['metric'])} of {name}"
    queries = f"{report['queries']:,}", queries_text(report["first_stage"])
    if gain["ranker"] == "first_stage":
        alone = f"This bundle ranks by {name} alone: it has no second stage."
        verdicts, sections, numbers = [alone], [_metrics(report, [], second)], [first, queries]
    else:
        less = default_sentence(default, gain["ranker"])
        verdicts = [
            headline(gain, second, name, taken_away=less is not None or _compared(report)),
            *([] if less is None else [less]),
        ]
        sections = _second_stage(report, second)
        numbers = [
            (f"{means[gain['ranker']]:.4f}", f"{metric_name(gain['metric'])} of {second}"),
            first,
            (f"{gain['mean']:+.4f}", f"gain, 95 % interval {gain['low']:+.4f} to {gain['high']:+.4f}"),
            queries,
        ]
    if "default_over_plain" in report:
        verdicts.insert(0, plain_sentence(report["default_over_plain"], report["rankers"]))
    chosen = choice_sentence(default, report["rankers"], report.get("budget"), given=given)
    if chosen is not None:
        verdicts.insert(0, f"{chosen[0].upper()}{chosen[1:]}")
    if "routing" in report:
        verdicts.append(report["routing"]["sentence"])
    if given:
        verdicts.append(GIVEN)
    sections += [
        *choice_section(report),
        *explained_section(report),
        *score_sections(report),
        *_specialists(report),
        *notes_section(report),
        coverage_section(report["details"]["features"]),
        _latency(report["measured_here"]),
    ]
    return render(
        f"{repeat['bundle']}, {'' if given else 'held-out '}result on {report['queries']:,} test queries",
        verdicts,
        sections,
        command=repeat["command"],
        facts=_facts(report),
        settings=json.dumps(report["recipe"], indent=1),
        numbers=numbers,
    )


def _compared(report: Facts) -> bool:
    return bool(report.get("default_strategy", {}).get("compared"))


def _second_stage(report: Facts, second: str) -> list[PageSection]:
    """What it is worth, and what it does."""
    details = report["details"]
    return [
        _metrics(report, details["gains"], second),
        _wins(details),
        _movement(report, second),
        *_attention(details),
        _anomaly(details, report["gain_over_first_stage"]["metric"]),
        _learning(report),
    ]


def _metrics(report: Facts, gains: list[Facts], second: str) -> PageSection:
    by_key = {(metric["ranker"], metric["name"]): metric for metric in report["metrics"]}
    rankers = list(report["rankers"])[::-1]  # the strongest first: on a telephone
    head = [report["rankers"][ranker] for ranker in rankers]
    names = dict.fromkeys(metric["name"] for metric in report["metrics"])
    rows = [[metric_name(name), *(_cell(by_key[ranker, name]) for ranker in rankers)] for name in names]
    conventions = [
        [name, *(f"{means[ranker]:.4f}" for ranker in rankers)]
        for name, means in report["empty_query_conventions"].items()
    ]
    empty = report["empty_queries"]
    tables = [
        PageTable(
            "Means over the test queries",
            ["", *head],
            rows,
            f"Small: {report['interval']}. {report['protocol'][0].upper()}{report['protocol'][1:]}.",
        )
    ]
    if empty:
        tables.append(
            PageTable(
                f"If a query without a relevant candidate ({empty} here) counts 0, 1, or not at all",
                ["NDCG@10", *head],
                conventions,
            )
        )
    caption = (
        f"Mean gain of {second} over the first stage, paired by query. Blue: the interval lies above 0; orange: below "
        "it; grey: it holds 0. Each interval stands for itself: with this many, one may miss by chance."
    )
    if not gains:
        return PageSection("The first stage beside the order that the data came in", (), (), tables)
    return PageSection(metrics_sentence(gains, second), (), [PageFigure(figures.gains(gains), caption)], tables)


def _cell(metric: Facts) -> str:
    return f"{metric['mean']:.4f}\n{metric['low']:.3f}\u2013{metric['high']:.3f}"


def _wins(details: Facts) -> PageSection:
    found = details["wins"]
    caption = (
        f"Gain in {metric_name(found['metric'])} of every query over the first stage, sorted. Left of the flat part "
        "are the queries that lose, right of it those that win."
    )
    text = (
        f"The query that loses most changes by {found['gain'][0]:+.3f} {metric_name(found['metric'])}, the one that "
        f"gains most by {found['gain'][-1]:+.3f}."
    )
    return PageSection(wins_sentence(found), [text], [PageFigure(figures.wins(found), caption)])


def _learning(report: Facts) -> PageSection:
    found, model = report["details"]["learning"], report["model"]
    ndcg_at = report["recipe"]["model"]["ndcg_at"]
    caption = "Mean training loss over the batches of an epoch, and NDCG of the validation queries after it. Dot: kept."
    drawn = figures.learning(found, model["best_epoch"], ndcg_at)
    text = f"The model has {model['parameters']:,} parameters; the weights of the best epoch are those that serve."
    return PageSection(learning_sentence(model, ndcg_at), [text], [PageFigure(drawn, caption)])


def _movement(report: Facts, second: str) -> PageSection:
    """Movement and scores: what the second stage does inside a list."""
    details = report["details"]
    moved, scores = details["movement"], details["scores"]
    text = [scores_sentence(scores, second)]
    drawn = [
        PageFigure(
            figures.movement(moved),
            "Ranks gained between first stage and answer by the candidates that the second stage scored. Lines: mean; "
            "bands: the middle half. Relevant: label above 0. Left out: ranks with less than "
            f"{100 * figures.SELDOM:.0f} % of the candidates of that kind.",
        ),
        PageFigure(
            figures.scores(scores, second),
            "Share of candidates by score. Scores mean nothing between lists, so each list has mean 0 and standard "
            "deviation 1; the outermost bars hold what lies beyond.",
        ),
    ]
    if details["looked_at"] < report["queries"]:
        text.append(f"Over {details['looked_at']:,} test queries, evenly spread over all {report['queries']:,}.")
    return PageSection(movement_sentence(moved), text, drawn)


def _attention(details: Facts) -> list[PageSection]:
    found = details["attention"]
    if found is None:
        return []
    caption = (
        "Attention weight times list length by rank in the first stage, over lists of two or more. Line: mean; band: "
        "the middle half. Where it is 1 throughout, the context is the plain mean of the list. Lists of all "
        "lengths are mixed: where many of them end, the line may jump."
    )
    return [PageSection(attention_sentence(found), (), [PageFigure(figures.attention(found), caption)])]


def _anomaly(details: Facts, metric: str) -> PageSection:
    found = details["anomaly"]
    title, text = anomaly_sentence(found, metric)
    if found is None:
        return PageSection(title, [text])
    sizes = sorted({row[0] for row in found["bins"]})
    caption = (
        f"Mean gain over the first stage with its 95 % interval, in groups of {' or '.join(map(str, sizes))} test "
        "queries, by how unlike the training queries they are (Isolation Forest; higher is stranger)."
    )
    return PageSection(title, [text], [PageFigure(figures.anomaly(found, metric), caption)])


def _specialists(report: Facts) -> list[PageSection]:
    found = report.get("specialists")
    if found is None:
        return []
    rows = []
    for k, one in enumerate(found["specialists"]):
        weights = ", ".join(f"{top['feature']} {top['weight']:+.2f}" for top in one["top_features"][:3])
        rows.append([f"{k}\n{weights}", f"{one['weight']:.3f}", str(one["queries"])])
    ended = "converged" if found["converged"] else "had not converged"
    title = f"{len(rows)} specialists share the queries; EM {ended} after {found['iterations']} iterations"
    head = ["specialist", "weight", "queries"]
    note = "Small: largest feature weights of a linear one. Queries: training queries that are most likely its own."
    tables = [PageTable("", head, rows, note)]
    if "routing" in report:
        values = report["routing"]["ndcg"]
        ways = [[name.replace("_", " "), f"{value:.4f}"] for name, value in values.items()]
        tables.append(PageTable("Ways to choose among them", ["", "NDCG"], ways, "Oracle: known only afterwards."))
    return [PageSection(title, (), (), tables)]


def _latency(here: Facts) -> PageSection:
    found = here["latency"]
    text = (
        f"Measured once, in the process that fitted, on {here['machine']}; {found['repeats']} lists of test rows per "
        "length, both stages, without HTTP. It is no property of the model: another machine, or this one when "
        "busy, gives other numbers."
    )
    rows = [[str(length), f"{median:.2f}", f"{slow:.2f}"] for length, median, slow in found["rows"]]
    table = PageTable("", ["candidates", "median, ms", "95 % below, ms"], rows)
    return PageSection(latency_sentence(found), [text], [PageFigure(figures.latency(found), "")], [table])


def _facts(report: Facts) -> list[str]:
    repeat, here = report["repeat"], report["measured_here"]
    first = ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in report["first_stage"].items())
    return [
        f"Data: {report['data']}.",
        f"Data fingerprint, over features, labels and lists of all splits: {repeat['data_fingerprint']}",
        f"Feature schema: {repeat['schema_fingerprint']}",
        f"Seed: {repeat['seed']}. Bundle: {repeat['bundle']}, made {here['created_at']}.",
        f"First stage: {first}.",
        f"Made with {', '.join(f'{name} {number}' for name, number in repeat['made_with'].items())}.",
        "Seconds: " + ", ".join(f"{step} {value:.1f}" for step, value in here["seconds"].items()) + ".",
        "Every number here stands in report.json beside this page.",
    ]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_short(inner)}" for name, inner in value.items()) + ")"
    return str(value)
