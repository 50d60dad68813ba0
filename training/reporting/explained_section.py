"""What the page says of three explained test queries."""

from __future__ import annotations

from listwright.training.reporting.fit_figures import Facts, metric_name
from listwright.training.reporting.page import PageSection, PageTable

WHY = {"helped": "Most helped", "hurt": "Most hurt", "random": "At random"}


def explained_section(report: Facts) -> list[PageSection]:
    """One table a query; reports of earlier versions have none."""
    found = report["details"].get("explained")
    if found is None:
        return []
    text = [
        "First stage: what a column adds to the candidate's score, as difference to the mean over its list. Second "
        "stage: what a feature adds to the final score against the list's median or most frequent category, with its "
        "standard error where it was sampled. Scores compare within one list only."
    ]
    tables = []
    for query in found["queries"]:
        if "fault" in query:
            text.append(f"{WHY[query['why']]}, query {query['qid']}: not explained, because {query['fault']}.")
            continue
        table = _table(query, found["metric"])
        if table.rows:
            tables.append(table)
        else:
            text.append(f"{table.title}. {table.note} No column adds anything.")
    return [PageSection(f"{_count(len(tables))} explained", text, (), tables)]


def _count(queries: int) -> str:
    return "One test query" if queries == 1 else f"{queries} test queries"


def _table(query: Facts, metric: str) -> PageTable:
    gain = "" if query["why"] == "random" else f" by {query['gain']:+.3f} {metric_name(metric)}"
    rows = [
        [f"{part['feature']}\n{value_text(part)}", stage, contribution_text(part)]
        for stage, facts in (("first", query["first_stage"]), ("second", query["second_stage"]))
        if facts is not None
        for part in facts["contributions"]
    ]
    return PageTable(
        f"{WHY[query['why']]}{gain}: query {query['qid']}",
        ["feature", "stage", "adds"],
        rows,
        " ".join([*_place(query), *_passes(query["passing"])]),
    )


def _place(query: Facts) -> list[str]:
    moved = f"from place {query['rank_before']} to {query['rank']}"
    if query["rank_before"] == query["rank"]:
        moved = f"at place {query['rank']} in both stages"
    said = [f"Candidate {query['candidate'] + 1} of {query['length']}, label {query['label']}, {moved}."]
    late = [part for part in query.get("incomplete", ()) if part not in query["faults"]]  # earlier reports have none
    if query["second_stage"] is None and "second_stage" not in {*late, *query["faults"]}:
        said.append("No second stage scored it.")
    said += [f"{part.replace('_', ' ').capitalize()}: not complete, for lack of time." for part in late]
    said += [f"{part.replace('_', ' ').capitalize()}: failed, {fault}." for part, fault in query["faults"].items()]
    return said


def _passes(passing: Facts | None) -> list[str]:
    if passing is None:
        return []
    ways = [" and ".join(map(change_text, changes)) for changes in (passing["one"], passing["two"]) if changes]
    if not ways:
        return ["No change of one or two features that was tried lets it pass the one above."]
    return [f"It would pass the one above with {', or with '.join(ways)}."]


def value_text(part: Facts) -> str:
    """The value of a feature, and what stands in for it where something does."""
    if part["reference"] is None and part["standard_error"] is None:
        return shown(part["value"])
    return f"{shown(part['value'])}, list: {shown(part['reference'])}"


def contribution_text(part: Facts) -> str:
    """A contribution and its standard error, if it was sampled."""
    said = f"{part['contribution']:+.3g}"
    return said if part["standard_error"] is None else f"{said}\n\N{PLUS-MINUS SIGN}{part['standard_error']:.1g}"


def change_text(change: Facts) -> str:
    """One change in words."""
    return f"{change['feature']} {shown(change['to'])} instead of {shown(change['from'])}"


def shown(value: float | str | None) -> str:
    """A value as people write it."""
    if value is None:
        return "missing"
    return value if isinstance(value, str) else f"{value:.4g}"
