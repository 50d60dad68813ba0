"""The page on gRPC and KServe: its example runs, its table of codes is that of the server, its files are there."""

import json
import re
from pathlib import Path

from contract.conftest import Process, free_port
from listwright.service.grpc.server import CODES
from listwright.service.settings import PREFIX, Settings
from support.pages.figure_blocks import excerpt
from support.service.asgi import serving

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "kserve.md").read_text(encoding="utf-8")


def test_the_demo_answers_its_request():
    (body,) = re.findall(r"-d '(.*?)'\n```", PAGE, re.S)
    (answer,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)
    with serving(ROOT / "models" / "demo" / "1") as client:
        found = client.post("/v2/models/demo/infer", json=json.loads(body)).json()
    assert excerpt(found, json.loads(answer)) == json.loads(answer)


def test_the_example_runs(capsys):
    port = free_port()
    service = Process(bundle=ROOT / "models" / "demo" / "1", grpc_port=port).wait_until_ready()
    try:
        (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
        names = {}
        exec(code.replace("localhost:9000", f"localhost:{port}"), names)  # the page's own code
        names["client"].close()
    finally:
        assert service.stop()[0] == 0
    assert len(capsys.readouterr().out.split()) == 3


def test_the_table_of_codes_is_that_of_the_server():
    rows = re.findall(r"^\| (`[A-Z_`, ]+`) \|.*\| ([\d, ]+) \|$", PAGE, re.M)
    said = {
        (code, int(status))
        for codes, statuses in rows
        for code in re.findall(r"\w+", codes)
        for status in statuses.split(", ")
    }
    expected = {(code.name, status) for status, code in CODES.items()} | {("INTERNAL", 500)}
    assert expected <= said
    # by gRPC itself, and two codes in one row
    assert said - expected == {("RESOURCE_EXHAUSTED", 413), ("UNAUTHENTICATED", 403), ("PERMISSION_DENIED", 401)}


def test_every_name_is_there():
    for name in re.findall(rf"{PREFIX}(\w+)", PAGE):
        assert name.lower() in Settings.model_fields
    for path in re.findall(r"`(deploy/[\w./-]+)`", PAGE):
        assert (ROOT / path).exists()
