"""The demo's golden lists and its service, for clients in other languages."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from support.http.processes import Process

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "models" / "demo" / "1"
KEY = "k" * 20

sys.path.append(str(ROOT / "tools"))
from client_tools import GENERATOR, NODE_MODULES  # noqa: E402

FETCHED = {"openapi-generator": GENERATOR, "tsc": NODE_MODULES / "typescript" / "bin" / "tsc"}


@pytest.fixture(scope="session")
def find():
    """Find a program, or skip the test, which is named in the reason."""

    def find(name):
        path = FETCHED.get(name) or shutil.which(name)
        if path is None or not Path(path).exists():
            pytest.skip(f"no {name}" + (": python tools/client_tools.py fetches it" if name in FETCHED else ""))
        return str(path)

    return find


@pytest.fixture(scope="session")
def run():
    """Run a program, and return what it writes."""

    def run(*command, **more):
        ran = subprocess.run(command, capture_output=True, text=True, check=False, **more)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


@pytest.fixture(scope="module")
def demo():
    """Address of a service of the demo that explains, and has a key."""
    service = Process(bundle=DEMO, explain="true", keys=f"tester:{KEY}").wait_until_ready()
    yield service.url
    service.stop()


@pytest.fixture(scope="session")
def key():
    return KEY


@pytest.fixture(scope="module")
def golden():
    """The golden lists of the default strategy."""
    lists = [json.loads(line) for line in (DEMO / "golden.jsonl").read_text(encoding="utf-8").splitlines()]
    return [one for one in lists if one["strategy"] == "auto"]


@pytest.fixture(scope="module")
def lists(demo, golden, tmp_path_factory):
    """A file with names of features, and the golden lists as a caller sends them: categories by name, not by code."""
    headers = {"Authorization": f"Bearer {KEY}"}
    columns = httpx.get(f"{demo}/v2/models/demo", headers=headers).json()["columns"]

    def sent(row):
        return [
            column["categories"][int(value) - 1] if column["categories"] and value is not None else value
            for value, column in zip(row, columns, strict=True)
        ]

    path = tmp_path_factory.mktemp("lists") / "lists.json"
    names = [column["name"] for column in columns]
    rows = [list(map(sent, one["features"])) for one in golden]
    path.write_text(json.dumps({"names": names, "lists": rows, "golden": golden}))
    return str(path)


@pytest.fixture(scope="module")
def check(golden):
    """Check that each list was ranked twice, as a matrix and as rows, and that both answers are the golden ones."""

    def check(output):
        answers = json.loads(output)
        expected = [one for one in golden for _ in range(2)]
        assert [answer["scores"] for answer in answers] == [one["scores"] for one in expected]
        ranks = [[one["order"].index(at) + 1 for at in range(len(one["order"]))] for one in expected]
        assert [answer["ranks"] for answer in answers] == ranks

    return check
