"""The decision about the JSON scanner shows the committed measurement, and its rule holds there."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "decisions" / "0008-json-scanner.md").read_text(encoding="utf-8")
TABLE = json.loads((ROOT / "benchmarks" / "results" / "scanner.json").read_text(encoding="utf-8"))["table"]
OVER = {(row["form"], row["candidates"], row["reader"]): row["over_scanner"] for row in TABLE}
READERS = ("without the scanner", "msgspec", "simdjson", "pydantic_core")
FORMS = {"rows_by_name": "rows by name", "matrix": "matrix"}


def lines():
    yield f"| time over the scanner's | {' | '.join(READERS)} |"
    yield "|---" * (1 + len(READERS)) + "|"
    for form, called in FORMS.items():
        for length in (10, 100, 1000):
            cells = [f"{OVER[form, length, reader]:.1f}" for reader in READERS]
            yield f"| {called}, {length} candidates | {' | '.join(cells)} |"


def test_the_table_is_the_measurement():
    assert "\n".join(lines()) in PAGE


def test_the_rule_holds_where_lists_are_long():
    libraries = [OVER["rows_by_name", length, reader] for length in (100, 1000) for reader in READERS[1:]]
    assert min(libraries) >= 1.3
