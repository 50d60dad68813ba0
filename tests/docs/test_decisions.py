"""Decisions about what is made by hand show the committed measurements, and their rules hold there."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READERS = ("without the scanner", "msgspec", "simdjson", "pydantic_core")
FORMS = {"rows_by_name": "rows by name", "matrix": "matrix"}
LENGTHS = (10, 100, 1000)
FAULTS = {
    "a killed worker is replaced, s": ("killed", "another_starts_after_s", ".2f"),
    "a stalled worker is replaced, s": ("stalled", "another_starts_after_s", ".1f"),
    "workers fail as they start: starts in 20 s": ("failing", "starts", "d"),
    "a stop ends a stalled worker, s": ("told_to_end", "ended_after_s", ".1f"),
    "the supervisor is killed: its port is free, s": ("orphaned", "port_is_free_after_s", ".1f"),
}
SCRAPES = {
    "what a request counts, µs": ("request_us", ".1f"),
    "a scrape, ms": ("scrape_ms", ".1f"),
    "a scrape after 50 replaced workers, ms": ("scrape_after_ms", ".1f"),
    "what these workers leave behind, KiB": ("left_kib", ",.0f"),
}


def figures(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def over_scanner():
    rows = figures("scanner")["table"]
    return {(row["form"], row["candidates"], row["reader"]): row["over_scanner"] for row in rows}


def scanner():
    over = over_scanner()
    yield f"| time over the scanner's | {' | '.join(READERS)} |"
    yield "|---" * (1 + len(READERS)) + "|"
    for form, called in FORMS.items():
        for length in LENGTHS:
            cells = [f"{over[form, length, reader]:.1f}" for reader in READERS]
            yield f"| {called}, {length} candidates | {' | '.join(cells)} |"


def supervisor():
    faults = figures("supervisor")["faults"]
    kinds = ("ours", "uvicorn", "gunicorn")
    yield f"| fault | {' | '.join(kinds)} |"
    yield "|---" * (1 + len(kinds)) + "|"
    for title, (fault, figure, form) in FAULTS.items():
        values = [faults[fault][kind][figure] for kind in kinds]
        yield f"| {title} | {' | '.join('never' if value is None else f'{value:{form}}' for value in values)} |"


def scrapes():
    ways = figures("scrapes")["ways"]
    yield "| median | ours | prometheus_client |"
    yield "|---|---|---|"
    for title, (figure, form) in SCRAPES.items():
        yield f"| {title} | {ways['ours'][figure]:{form}} | {ways['prometheus_client'][figure]:{form}} |"


def transport():
    found = figures("transport")
    each = {name: f"{row['per_second']:,.0f}" for name, row in found["connection"].items()}
    yield (
        f"| connection | requests a second, 10 candidates, 4 callers | {each['ours']} | uvicorn over httptools "
        f"{each['httptools']}; over h11 {each['h11']} |"
    )
    turns = found["accept"]
    ours, plain = turns["ours"], turns["plain_accept"]
    yield (
        f"| turns, 2 workers, 4 callers | requests a second, 100 candidates | {ours['per_second']:.0f} | taken at "
        f"once: {plain['per_second']:.0f} |"
    )
    yield (
        f"| | work of the busier worker | {100 * ours['busiest_worker']:.0f} % | {100 * plain['busiest_worker']:.0f} % |"
    )


@pytest.mark.parametrize(
    ("page", "table"),
    [("0008-json-scanner", scanner), ("0009-supervisor", supervisor), ("0010-merged-metrics", scrapes)],
)
def test_a_table_is_the_measurement(page, table):
    assert "\n".join(table()) in (ROOT / "docs" / "decisions" / f"{page}.md").read_text(encoding="utf-8")


def test_the_transport_rows_are_the_measurement():
    page = (ROOT / "docs" / "decisions" / "0005-transport.md").read_text(encoding="utf-8")
    for row in transport():
        assert row in page


def test_the_scanner_is_faster_than_any_library_where_lists_are_long():
    over = over_scanner()
    libraries = [over["rows_by_name", length, reader] for length in (100, 1000) for reader in READERS[1:]]
    assert min(libraries) >= 1.3


def test_merging_by_messages_costs_less_than_files():
    ways = figures("scrapes")["ways"]
    for figure in ("request_us", "scrape_after_ms", "left_kib"):
        assert ways["ours"][figure] < ways["prometheus_client"][figure]
