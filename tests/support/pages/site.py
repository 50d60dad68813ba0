"""The site of ``docs/``, as ``make docs`` builds it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def mkdocs(*arguments, folder=ROOT):
    """A build; skipped where MkDocs is missing."""
    pytest.importorskip("material", reason="no MkDocs: make docs installs it")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
