"""One virtual environment per rival, and one for k6, under ``build/rivals``, from its file in ``requirements``."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "rivals"
REQUIREMENTS = Path(__file__).parent / "requirements"

INSTALL_WITHIN_S = 600


class NotInstallableError(Exception):
    """uv could not build an environment."""


def prepare(name: str) -> Path:
    """Return the environment's ``bin`` folder; build it if it is missing or its requirements have changed.

    Raises:
        NotInstallableError: with the last line that uv wrote.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    folder = BUILD / name
    stamp, digest = folder / "requirements.sha256", sha256(requirements.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != digest:
        print(f"(installing {name} into {folder}) ", end="", flush=True)
        uv = find_uv_bin()
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
        python = str(folder / "bin" / "python")
        _run([uv, "pip", "install", "--quiet", "--python", python, "--requirement", str(requirements)])
        stamp.write_text(digest, encoding="utf-8")
    return folder / "bin"


def versions(name: str, *packages: str) -> dict[str, str]:
    """Return the versions of these packages in the requirements."""
    lines = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {package: pinned[package] for package in packages}


def _run(command: list[str]) -> None:
    # uv reads UV_FIND_LINKS where pip reads PIP_FIND_LINKS
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS", "")
    try:
        ran = subprocess.run(
            command,
            env={**os.environ, "UV_FIND_LINKS": links},
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_WITHIN_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NotInstallableError(f"it took more than {INSTALL_WITHIN_S} s to install") from error
    if ran.returncode != 0:
        lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
        raise NotInstallableError(lines[-1] if lines else f"uv ended with {ran.returncode}")
