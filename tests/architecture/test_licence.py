"""The licence stands wherever the project goes: in both wheels, in the image, in the document of the service."""

import hashlib
import shutil
import subprocess
import sys
from email import message_from_string
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NAME = "Apache-2.0"
TEXT = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""sha256 of the text as its authors publish it."""

PROJECTS = {"listwright": ROOT, "listwright_client": ROOT / "client"}
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "listwright", "ranking", "listwright_client")
METADATA = "from setuptools import build_meta; build_meta.prepare_metadata_for_build_wheel('made')"


@pytest.fixture(scope="module", params=PROJECTS)
def metadata(request, tmp_path_factory):
    """What a wheel says of itself, made in a copy: the folder of its ``dist-info``."""
    copy = tmp_path_factory.mktemp("wheel")
    for source in (PROJECTS[request.param] / name for name in SOURCES):
        if source.is_dir():
            shutil.copytree(source, copy / source.name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c"))
        elif source.is_file():
            shutil.copy(source, copy)
    (copy / "made").mkdir()
    done = subprocess.run([sys.executable, "-c", METADATA], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = (copy / "made").glob("*.dist-info")
    assert found.name.startswith(f"{request.param}-")
    return found


@pytest.mark.nightly
def test_a_wheel_says_its_licence_and_carries_the_text(metadata):
    said = message_from_string((metadata / "METADATA").read_text(encoding="utf-8"))
    assert said["License-Expression"] == NAME
    assert said.get_all("License-File") == ["LICENSE"]
    assert not [line for line in said.get_all("Classifier", []) if line.startswith("License")]
    assert (metadata / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("folder", PROJECTS.values(), ids=list(PROJECTS))
def test_the_text_is_whole(folder):
    assert hashlib.sha256((folder / "LICENSE").read_bytes()).hexdigest() == TEXT


def test_the_image_is_labelled_and_gets_the_text():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f'org.opencontainers.image.licenses="{NAME}"' in dockerfile
    copied = [line for line in dockerfile.splitlines() if line.startswith("COPY") and "LICENSE" in line.split()]
    assert copied
    assert dockerfile.index(copied[0]) < dockerfile.index("pip install --no-cache-dir --no-deps .")
    assert "!LICENSE" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


def test_the_document_names_it():
    document = yaml.safe_load((ROOT / "openapi.yaml").read_text(encoding="utf-8"))
    assert document["info"]["license"] == {"name": "Apache License 2.0", "identifier": NAME}
