"""``docs/served-log.md`` has the code's fields and reasons, and its Python runs."""

import re
from pathlib import Path

import pytest

from listwright.ranking.served import files
from listwright.ranking.served.encoding import SCHEMA
from listwright.ranking.served.record import hashed
from support.pages.figure_blocks import blocks, result, table
from support.served import served_record

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "served-log.md").read_text(encoding="utf-8")


def test_every_field_of_a_record_is_described():
    table = PAGE.partition("## What is logged")[2].partition("## Files")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE))))
    assert named == {field["name"] for field in SCHEMA["fields"]}


def test_every_reason_of_a_drop_is_described():
    table = PAGE.partition("| `reason` | cause |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE))))
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "service" / "served_log").glob("*.py"))
    used = set(re.findall(r'\.note\(\s*"(\w+)"', code)) | set(re.findall(r'"(disk_full|write_failed)"', code))
    assert named == used
    assert len(used) >= 7


def cost():
    """With and without the log."""
    rows = []
    for name, found in result("served_log")["formats"].items():
        low, high = (f"{100 * value:+.1f}" for value in found["lost_quartiles"])
        latency = found["latency"]
        early, late = (f"{value:+.2f}" for value in latency["later_ms_95"])
        rows.append(
            [
                f"`.{name}`" if name == "npy" else name,
                *(f"{found['per_second'][way]:,.0f}" for way in ("without", "with")),
                f"{100 * found['lost']:.1f} [{low}, {high}]",
                f"{latency['p99_ms']['without']:.2f}",
                f"{latency['later_ms']:+.2f} [{early}, {late}]",
                f"{latency['stalled']['without']}, {latency['stalled']['with']} of {latency['turns']}",
                ", ".join(f"{latency['p99_ms_with_stalls'][way]:.2f}" for way in ("without", "with")),
            ]
        )
    head = ["format", "peak without, a second", "with", "lost, %", "p99 at half the peak, ms", "later, ms"]
    return table([*head, "left out", "p99 of all turns, ms"], rows)


def test_the_table_of_the_cost_is_the_committed_run():
    assert blocks(PAGE) == [cost()]


@pytest.mark.parametrize("number", [0, 1])
def test_its_python_runs(tmp_path, number, capsys):
    unit = hashed("customer-17", b"the salt of the service")
    files.write(tmp_path / "1.avro", [served_record(1), served_record(2, unit=unit)])
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[number].replace("/var/log/served", str(tmp_path))
    names = {}
    exec(compile(code, "served-log.md", "exec"), names)
    if number == 0:
        assert capsys.readouterr().out.count("(4, 3)") == 2
    else:
        assert [record.query_id for record in names["found"]] == ["query-2"]
