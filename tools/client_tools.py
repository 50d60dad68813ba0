"""``python tools/client_tools.py``: openapi-generator, TypeScript and ONNX Runtime for tests, into ``build/clients``.

uv and npm do the fetching, from whatever registries they are set up for. Without npm there is only openapi-generator.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from page_libraries import ONNXRUNTIME_VERSION
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "clients"
GENERATOR = FOLDER / "openapi_generator_cli" / "openapi-generator.jar"
NODE_MODULES = FOLDER / "node_modules"

GENERATOR_VERSION = "7.26.0"
TYPESCRIPT_CLIENT = ROOT / "client" / "typescript"


def fetch(folder: Path = FOLDER) -> None:
    """Fetch the jar of openapi-generator, what the TypeScript client is built with, and ONNX Runtime for Node.js."""
    folder.mkdir(parents=True, exist_ok=True)
    package = f"openapi-generator-cli=={GENERATOR_VERSION}"
    uv = [find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target", str(folder)]
    subprocess.run([*uv, package], check=True)
    if shutil.which("npm") is None:
        sys.stderr.write("no npm: TypeScript and ONNX Runtime are not fetched\n")
        return
    packages = json.loads((TYPESCRIPT_CLIENT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    packages |= {"onnxruntime-node": ONNXRUNTIME_VERSION}
    requirements = [f"{name}@{version}" for name, version in packages.items()]
    npm = ["npm", "install", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--silent"]
    subprocess.run([*npm, *requirements], cwd=folder, check=True)


if __name__ == "__main__":
    fetch()
