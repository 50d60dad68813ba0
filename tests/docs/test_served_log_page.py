"""``docs/served-log.md`` has the code's fields and reasons, and its Python runs."""

import re
from pathlib import Path

from listwright.ranking.served_log import files
from listwright.ranking.served_log.encoding import SCHEMA
from listwright.ranking.served_log.record import hashed
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


def test_its_python_runs(tmp_path, capsys):
    unit = hashed("customer-17", b"the salt of the service")
    files.write(tmp_path / "1.avro", [served_record(1), served_record(2, unit=unit)])
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code.replace("/var/log/served", str(tmp_path)), "served-log.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["query-1", "query-2"]
    assert [line.rpartition("(4, 3) ")[2] for line in lines] == ["False", "True"]
