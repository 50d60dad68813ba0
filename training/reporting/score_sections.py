"""What the page and the terminal say of the scores themselves: whether they keep what was asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from training.reporting.fit_figures import Facts
from training.reporting.page import PageSection, PageTable


def score_lines(details: Mapping[str, object], names: Mapping[str, str]) -> Iterator[str]:
    """What the terminal says, line by line."""
    for row in _rows(details):
        yield f"{_constraint(row)}, {names[row['ranker']]}: {_wrong(row, 'scores')}, {_wrong(row, 'ranks')}."


def score_sections(report: Facts) -> list[PageSection]:
    """The page's sections; reports of earlier versions have none."""
    rows = _rows(report["details"])
    if not rows:
        return []
    cells = [
        [
            _constraint(row),
            report["rankers"][row["ranker"]],
            f"{row['moved']:,}",
            _count(row, "scores"),
            _count(row, "ranks"),
        ]
        for row in rows
    ]
    text = (
        "A test candidate gets a larger value of the feature, drawn from those of training rows; all else stays. "
        "Wrong: its score, or its place in the list, moves against the constraint. The trees of the first stage are "
        "bound by the constraint. Nothing binds a second stage; where that matters, ask for strategy=first_stage."
    )
    head = ["constraint", "ranker", "moved", "scores wrong", "places wrong"]
    return [PageSection(_title(rows), [text], (), [PageTable("", head, cells)])]


def _title(rows: list[Facts]) -> str:
    moved, wrong = (sum(row[name] for row in rows) for name in ("moved", "scores_wrong"))
    if not moved:
        return "No test candidate could be moved: monotone constraints are not measured"
    if not wrong:
        return f"No score moved against a monotone constraint in {moved:,} trials"
    worst = max(rows, key=lambda row: row["scores_wrong"] / max(1, row["moved"]))
    return f"Up to {_share(worst, 'scores')} of scores move against a monotone constraint"


def _rows(details: Mapping[str, object]) -> list[Facts]:
    rows: list[Facts] = details.get("monotone", [])  # type: ignore[assignment]
    return rows


def _constraint(row: Facts) -> str:
    return f"{row['feature']} {row['direction']:+d}".replace("-", "\N{MINUS SIGN}")


def _wrong(row: Facts, what: str) -> str:
    return f"{row[f'{what}_wrong']} of {row['moved']} {what} move the wrong way ({_share(row, what)})"


def _count(row: Facts, what: str) -> str:
    return f"{row[f'{what}_wrong']:,}\n{_share(row, what)}"


def _share(row: Facts, what: str) -> str:
    return f"{100.0 * row[f'{what}_wrong'] / max(1, row['moved']):.1f} %"
