"""The wheel beside a project that has packages called ``training``, ``service`` and ``ranking`` of its own."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
PROGRAM = """
import asyncio, pathlib, sys
import httpx
import ranking, service, training

assert all(own.OWN for own in (ranking, service, training))

import listwright
from listwright.command import main
from listwright.service.app import create_app
from listwright.service.settings import Settings

assert pathlib.Path(listwright.__file__).is_relative_to(sys.argv[1]), listwright.__file__
assert main(["fit", "small.toml", "--out", "shop/1"]) == 0
assert main(["verify", "shop/1"]) == 0

async def ask():
    app = create_app(Settings(bundle="shop/1"))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            names = [one["name"] for one in (await client.get("/info")).json()["features"] if one["kind"] == "numeric"]
            rows = [{"features": dict.fromkeys(names, value)} for value in (0.0, 1.0, 2.0)]
            answer = await client.post("/rerank", json={"candidates": rows})
            assert answer.status_code == 200, answer.text
            return answer.json()["scores"]

print(*asyncio.run(ask()))
"""
SMALL = """
name = "small"
about = "a few synthetic lists"
minutes = 0
[data]
kind = "synthetic"
queries = 40
min_length = 4
max_length = 8
numeric = 4
categorical = 0
[first_stage]
kind = "lambdamart"
trials = 1
max_trees = 10
[model]
kind = "qilcm"
hidden = [8]
max_epochs = 2
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the unpacked wheel, built from a copy: what a build leaves behind must not stay here."""
    copy, site = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("site")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "listwright"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.pyx"))
        else:
            shutil.copy(source, copy)
    (copy / "setup.py").write_text("from setuptools import setup\n\nsetup()\n")  # NumPy does what is not compiled
    done = subprocess.run([sys.executable, "-c", BUILD, "."], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = copy.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.mark.nightly
def test_the_wheel_holds_one_package(site):
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"listwright"}
    for needed in ("training/recipes/demo.toml", "training/reporting/page.html", "py.typed"):
        assert (site / "listwright" / needed).is_file()


@pytest.mark.nightly
def test_it_fits_and_serves_beside_packages_of_the_same_names(site, tmp_path):
    for name in ("ranking", "service", "training"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWN = True\n")
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "program.py", str(site)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()[-1].split()) == 3


@pytest.mark.nightly
@pytest.mark.parametrize("module", ["training.fit", "service", "listwright"])
def test_a_checkout_runs_its_folders(module):
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: listwright")
