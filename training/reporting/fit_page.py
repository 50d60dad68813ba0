"""The page of a run, ``report.html``, built from ``report.json`` alone.

``listwright page models/demo/1/report.json page.html`` makes it anew.
"""

from __future__ import annotations

import json
from typing import Any

from listwright.training.evaluation.intervals import FEWEST
from listwright.training.reporting import fit_figures as figures
from listwright.training.reporting.fit_figures import Facts, metric_name
from listwright.training.reporting.goals_section import goals_section
from listwright.training.reporting.page import PageFigure, PageSection, PageTable, render
from listwright.training.reporting.score_sections import score_sections
from listwright.training.reporting.sentences import (
    GIVEN,
    anomaly_sentence,
    attention_sentence,
    brought_along,
    budget_sentences,
    choice_sentence,
    compared_rows,
    coverage_sentence,
    default_sentence,
    headline,
    importance_sentence,
    latency_sentence,
    learning_sentence,
    metrics_sentence,
    movement_sentence,
    plain_sentence,
    queries_text,
    scores_sentence,
    wins_sentence,
)

PRINTED_COLUMNS = 3
"""List-relative columns of a feature that are listed with their importance."""

WHY = {"helped": "Most helped", "hurt": "Most hurt", "random": "At random"}


def fit_page(report: Facts) -> str:
    """Return the page as HTML.

    Args:
        report: Contents of ``report.json``.
    """
    gain, repeat = report["gain_over_first_stage"], report["repeat"]
    second = report["rankers"][gain["ranker"]]
    metrics = [metric for metric in report["metrics"] if metric["name"] == gain["metric"]]
    numbers = {metric["ranker"]: f"{metric['mean']:.4f}" for metric in metrics}
    ndcg_of = f"{metric_name(gain['metric'])} of"
    external, default = brought_along(report["first_stage"]), report.get("default_strategy", {})
    name = report["rankers"]["first_stage"]
    if name == "first stage":  # brought along, or of an older report
        name = "the first stage"
    first = numbers["first_stage"], f"{ndcg_of} {name}"
    queries = f"{report['queries']:,}", queries_text(report["first_stage"])
    if gain["ranker"] == "first_stage":
        alone = f"This bundle ranks by {name} only: it has no second stage."
        verdicts, sections, key_figures = [alone], [_metrics(report, [], second)], [first, queries]
    else:
        less = default_sentence(default, gain["ranker"])
        taken_away = less is not None or bool(default.get("compared"))
        verdicts = [headline(gain, second, name, taken_away=taken_away), *([] if less is None else [less])]
        sections = _second_stage(report, second)
        key_figures = [(numbers[gain["ranker"]], f"{ndcg_of} {second}"), first, _gain_number(gain), queries]
    if (over := report.get("default_over_plain")) is not None:
        verdicts.insert(0, plain_sentence(over, report["rankers"]))
        if over["ranker"] == "first_stage":
            plain = numbers["plain_first_stage"], f"{ndcg_of} {report['rankers']['plain_first_stage']}"
            key_figures = [first, plain, _gain_number(over), queries]
    choice = choice_sentence(default, report["rankers"], report.get("budget"), external=external)
    if choice is not None:
        verdicts.insert(0, f"{choice[0].upper()}{choice[1:]}")
    if "routing" in report:
        verdicts.append(report["routing"]["sentence"])
    if external:
        verdicts.append(GIVEN)
    sections += [
        *goals_section(report),
        *choice_section(report),
        *importance_section(report),
        *explained_section(report),
        *score_sections(report),
        *_specialists(report),
        *notes_section(report),
        coverage_section(report["details"]["features"]),
        _latency(report["measured_here"]),
    ]
    return render(
        f"{repeat['bundle']}, {'' if external else 'held-out '}result on {report['queries']:,} test queries",
        verdicts,
        sections,
        command=repeat["command"],
        facts=_facts(report),
        settings=json.dumps(report["recipe"], indent=1),
        key_figures=key_figures,
    )


def _gain_number(gain: Facts) -> tuple[str, str]:
    return f"{gain['mean']:+.4f}", f"gain, 95 % interval {gain['low']:+.4f} to {gain['high']:+.4f}"


def _second_stage(report: Facts, second: str) -> list[PageSection]:
    """Return the section on the second stage: its verdict, and what it changes."""
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
    note = f"Small print: {report['interval']}. {report['protocol'][0].upper()}{report['protocol'][1:]}."
    tables = [PageTable("Means over the test queries", ["", *head], rows, note)]
    if empty := report["empty_queries"]:
        title = f"If a query without a relevant candidate ({empty} here) counts 0, 1, or not at all"
        conventions = report["empty_query_conventions"].items()
        cells = [[name, *(f"{means[ranker]:.4f}" for ranker in rankers)] for name, means in conventions]
        tables.append(PageTable(title, ["NDCG@10", *head], cells))
    caption = (
        f"Mean gain of {second} over the first stage, paired by query. Blue: the interval lies above 0; orange: below "
        "it; grey: it contains 0. The intervals are not corrected for their number."
    )
    if not gains:
        return PageSection("The first stage compared with the order of the data", (), (), tables)
    return PageSection(metrics_sentence(gains, second), (), [PageFigure(figures.gains(gains), caption)], tables)


def _cell(metric: Facts) -> str:
    return f"{metric['mean']:.4f}\n{metric['low']:.3f}\u2013{metric['high']:.3f}"


def _wins(details: Facts) -> PageSection:
    facts = details["wins"]
    caption = (
        f"Gain in {metric_name(facts['metric'])} of every query over the first stage, sorted. Left of the flat part "
        "are the queries that lose, right of it those that win."
    )
    text = (
        f"The query that loses most changes by {facts['gain'][0]:+.3f} {metric_name(facts['metric'])}, the one that "
        f"gains most by {facts['gain'][-1]:+.3f}."
    )
    return PageSection(wins_sentence(facts), [text], [PageFigure(figures.wins(facts), caption)])


def _learning(report: Facts) -> PageSection:
    history, model = report["details"]["learning"], report["model"]
    ndcg_at = report["recipe"]["model"]["ndcg_at"]
    caption = (
        "Mean training loss over the batches of an epoch, and NDCG of the validation queries after it. Dot: the "
        "selected epoch."
    )
    figure = figures.learning(history, model["best_epoch"], ndcg_at)
    text = f"The model has {model['parameters']:,} parameters; the bundle has the weights of the best epoch."
    return PageSection(learning_sentence(model, ndcg_at), [text], [PageFigure(figure, caption)])


def _movement(report: Facts, second: str) -> PageSection:
    """Return the section on movement and scores: what the second stage does inside a list."""
    details = report["details"]
    moved, scores = details["movement"], details["scores"]
    text = [scores_sentence(scores, second)]
    page_figures = [
        PageFigure(
            figures.movement(moved),
            "Ranks gained between first stage and answer by the candidates that the second stage scored. Lines: mean; "
            "bands: the middle half. Relevant: label above 0. Left out: ranks with less than "
            f"{100 * figures.SELDOM:.0f} % of the candidates of that kind.",
        ),
        PageFigure(
            figures.scores(scores, second),
            "Share of candidates by score. Scores of different lists are not comparable, so each list is scaled to "
            "mean 0 and standard deviation 1; the outermost bars include all values beyond.",
        ),
    ]
    if details["looked_at"] < report["queries"]:
        text.append(f"Over {details['looked_at']:,} test queries, evenly spread over all {report['queries']:,}.")
    return PageSection(movement_sentence(moved), text, page_figures)


def _attention(details: Facts) -> list[PageSection]:
    facts = details["attention"]
    if facts is None:
        return []
    caption = (
        "Attention weight times list length by rank in the first stage, over lists of two or more. Line: mean; band: "
        "the middle half. Where it is 1 throughout, the context is the plain mean of the list. Lists of all "
        "lengths are mixed: where many of them end, the line may jump."
    )
    return [PageSection(attention_sentence(facts), (), [PageFigure(figures.attention(facts), caption)])]


def _anomaly(details: Facts, metric: str) -> PageSection:
    facts = details["anomaly"]
    title, text = anomaly_sentence(facts, metric)
    if facts is None:
        return PageSection(title, [text])
    sizes = sorted({row[0] for row in facts["bins"]})
    caption = (
        f"Mean gain over the first stage with its 95 % interval, in groups of {' or '.join(map(str, sizes))} test "
        "queries, by how unlike the training queries they are (Isolation Forest; higher is less like them)."
    )
    return PageSection(title, [text], [PageFigure(figures.anomaly(facts, metric), caption)])


def _specialists(report: Facts) -> list[PageSection]:
    facts = report.get("specialists")
    if facts is None:
        return []
    rows = []
    for k, specialist in enumerate(facts["specialists"]):
        weights = ", ".join(f"{top['feature']} {top['weight']:+.2f}" for top in specialist["top_features"][:3])
        rows.append([f"{k}\n{weights}", f"{specialist['weight']:.3f}", str(specialist["queries"])])
    ended = "converged" if facts["converged"] else "had not converged"
    title = f"{len(rows)} specialists share the queries; EM {ended} after {facts['iterations']} iterations"
    head = ["specialist", "weight", "queries"]
    note = "Small print: largest feature weights of a linear one. Queries: training queries that it most likely ranks."
    tables = [PageTable("", head, rows, note)]
    if "routing" in report:
        ways = [[name.replace("_", " "), f"{value:.4f}"] for name, value in report["routing"]["ndcg"].items()]
        oracle = "Oracle: the best specialist of each query, known only afterwards."
        tables.append(PageTable("Ways to choose among them", ["", "NDCG"], ways, oracle))
    return [PageSection(title, (), (), tables)]


def _latency(here: Facts) -> PageSection:
    facts = here["latency"]
    text = (
        f"Measured once, in the process of the fit, on {here['machine']}; {facts['repeats']} lists of test rows for "
        "each length, both stages, without HTTP. The numbers depend on the machine and its load."
    )
    rows = [[str(length), f"{median:.2f}", f"{slow:.2f}"] for length, median, slow in facts["rows"]]
    table = PageTable("", ["candidates", "median, ms", "95 % below, ms"], rows)
    return PageSection(latency_sentence(facts), [text], [PageFigure(figures.latency(facts), "")], [table])


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
        "All numbers of this page are in report.json, in the same folder.",
    ]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_short(inner)}" for name, inner in value.items()) + ")"
    return str(value)


def notes_section(report: Facts) -> list[PageSection]:
    """Return the notes on the data; reports of earlier versions have none."""
    notes = [f"{note}." for note in report.get("notes", [])]
    title = "One note" if len(notes) == 1 else f"{len(notes)} notes"
    return [PageSection(f"{title} on the data from before the fit", notes)] if notes else []


def choice_section(report: Facts) -> list[PageSection]:
    """Return how the default was chosen; nothing where it was not chosen."""
    comparisons = compared_rows(report.get("default_strategy", {}), report["rankers"], report.get("budget"))
    rows = [[ranker, over, f"{gain}\n{verdict}"] for ranker, over, gain, verdict in comparisons]
    if not rows:
        return []
    rankers = {comparison["ranker"] for comparison in report["default_strategy"]["compared"]}
    text = [f"No model fitted here ranks a query that it was trained on. Fewer than {FEWEST} queries decide nothing."]
    if "relative" in rankers:
        text.append("LightGBM takes list-relative columns if their mean gain is above 0.")
    if rankers != {"relative"}:
        text.append(
            "A second stage becomes the default if the 95 % interval of its gain lies above 0; with several second "
            "stages the intervals are corrected for their number (Bonferroni)."
        )
    text.append("The test split is not used.")
    text += budget_sentences(report.get("budget"))
    table = PageTable("", ["ranker", "over", "NDCG gain"], rows)
    return [PageSection("How the default was chosen", [" ".join(text)], (), [table])]


def coverage_section(coverage: Facts) -> PageSection:
    """Return the section on how far the test rows lie outside the training rows."""
    rows = [
        [
            name,
            _percent(missing) + ("" if trained is None else f"\n{_percent(trained)} in training"),
            *map(_percent, more),
        ]
        for name, trained, missing, *more in coverage["rows"]
    ]
    text = (
        "Shares of test rows. Beyond: outside the 0.1 % to 99.9 % quantiles of training, where the networks clip; "
        "about 0.2 % are there by chance. Unknown: a category that is missing or does not occur in training."
    )
    if coverage["listed"] > len(rows):
        text += f" Listed: the {len(rows)} features that differ most from training."
    elif coverage["listed"] < coverage["features"]:
        text += " Features without any of these are not listed."
    head = ["feature", "missing", "beyond", "unknown"]
    tables = [PageTable("", head, rows)] if rows else []
    return PageSection(coverage_sentence(coverage), [text], (), tables)


def _percent(share: float | None) -> str:
    if share is None:
        return "·"
    return "0" if share == 0 else "< 0.1 %" if share < 0.001 else f"{share:.1%}".replace("%", " %")


def importance_section(report: Facts) -> list[PageSection]:
    """Return the importance of features; nothing where none was measured, as in reports of earlier versions."""
    facts = report["details"].get("importance")
    if facts is None or not facts["rows"]:
        return []
    text = (
        f"Loss: decrease of NDCG@10 over {facts['queries']:,} test queries if a feature's values are shuffled among "
        "the candidates of each list, or among lists if the feature varies in fewer than half of them. It includes the "
        "feature's effect through list-relative columns and the second stage. Of several features with the same "
        "information each has a small loss, because the others replace it."
    )
    rows, has_gain = [], any(share is not None for _, share, *_ in facts["rows"])
    for name, share, relative, loss, low, high in facts["rows"]:
        largest = sorted(relative, key=relative.__getitem__, reverse=True)
        columns = [f"{kind} {_percent(relative[kind])}" for kind in largest[:PRINTED_COLUMNS]]
        columns += [f"and {len(largest) - PRINTED_COLUMNS} more"] if len(largest) > PRINTED_COLUMNS else []
        gain = ["\n".join([_percent(share), *columns])] if has_gain else []
        rows.append([name, f"{loss:+.4f}\n{low:+.3f} to {high:+.3f}", *gain])
    if has_gain:
        text += (
            " Split gain: share of the total gain of the trees' splits in training. Small print: shares of the "
            "feature's list-relative columns."
        )
    if len(rows) < facts["features"]:
        listed = "with the largest split gain" if has_gain else "that lose most"
        text += f" Listed: the {len(rows)} of {facts['features']} features {listed}."
    head = ["feature", "loss", *(["split gain"] if has_gain else [])]
    figure = figures.importance(facts["rows"])
    caption = "Loss with its 95 % interval. Blue: the interval lies above 0; orange: below it; grey: it contains 0."
    return [PageSection(importance_sentence(facts), [text], [PageFigure(figure, caption)], [PageTable("", head, rows)])]


def explained_section(report: Facts) -> list[PageSection]:
    """Return one table a query; reports of earlier versions have none."""
    facts = report["details"].get("explained")
    if facts is None:
        return []
    text = [
        "First stage: what a column adds to the candidate's score, as difference to the mean over its list. Second "
        "stage: what a feature adds to the final score against the list's median or most frequent category, with its "
        "standard error where it was sampled. Scores compare within one list only."
    ]
    tables = []
    for query in facts["queries"]:
        if "fault" in query:
            text.append(f"{WHY[query['why']]}, query {query['qid']}: not explained, because {query['fault']}.")
            continue
        table = _explained_query(query, facts["metric"])
        if table.rows:
            tables.append(table)
        else:
            text.append(f"{table.title}. {table.note} No column adds anything.")
    queries = "One test query" if len(tables) == 1 else f"{len(tables)} test queries"
    return [PageSection(f"{queries} explained", text, (), tables)]


def _explained_query(query: Facts, metric: str) -> PageTable:
    gain = "" if query["why"] == "random" else f" by {query['gain']:+.3f} {metric_name(metric)}"
    rows = [
        [f"{part['feature']}\n{value_text(part)}", stage, contribution_text(part)]
        for stage, facts in (("first", query["first_stage"]), ("second", query["second_stage"]))
        if facts is not None
        for part in facts["contributions"]
    ]
    title, note = f"{WHY[query['why']]}{gain}: query {query['qid']}", [*_place(query), *_passes(query["passing"])]
    return PageTable(title, ["feature", "stage", "adds"], rows, " ".join(note))


def _place(query: Facts) -> list[str]:
    moved = f"from place {query['rank_before']} to {query['rank']}"
    if query["rank_before"] == query["rank"]:
        moved = f"at place {query['rank']} in both stages"
    sentences = [f"Candidate {query['candidate'] + 1} of {query['length']}, label {query['label']}, {moved}."]
    late = [part for part in query.get("incomplete", ()) if part not in query["faults"]]  # earlier reports have none
    if query["second_stage"] is None and "second_stage" not in {*late, *query["faults"]}:
        sentences.append("No second stage scored it.")
    sentences += [f"{part.replace('_', ' ').capitalize()}: not complete, for lack of time." for part in late]
    sentences += [f"{part.replace('_', ' ').capitalize()}: failed, {fault}." for part, fault in query["faults"].items()]
    return sentences


def _passes(passing: Facts | None) -> list[str]:
    if passing is None:
        return []
    ways = [" and ".join(map(change_text, changes)) for changes in (passing["one"], passing["two"]) if changes]
    if not ways:
        return ["No tried change of one or two features moves it past the candidate above."]
    return [f"It would pass the candidate above with {', or with '.join(ways)}."]


def value_text(part: Facts) -> str:
    """Return the value of a feature, and its replacement if there is one."""
    if part["reference"] is None and part["standard_error"] is None:
        return value_as_written(part["value"])
    return f"{value_as_written(part['value'])}, list: {value_as_written(part['reference'])}"


def contribution_text(part: Facts) -> str:
    """Return a contribution and its standard error, if it was sampled."""
    text = f"{part['contribution']:+.3g}"
    return text if part["standard_error"] is None else f"{text}\n\N{PLUS-MINUS SIGN}{part['standard_error']:.1g}"


def change_text(change: Facts) -> str:
    """Describe one change."""
    return f"{change['feature']} {value_as_written(change['to'])} instead of {value_as_written(change['from'])}"


def value_as_written(value: float | str | None) -> str:
    """Return a value as people write it."""
    if value is None:
        return "missing"
    return value if isinstance(value, str) else f"{value:.4g}"
