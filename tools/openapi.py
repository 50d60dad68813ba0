"""``python tools/openapi.py > openapi.yaml``: the contract, generated from the application."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from listwright.service.app import create_app
from listwright.service.settings import Settings


def document() -> dict[str, Any]:
    """Build the OpenAPI document; needs no bundle."""
    return create_app(Settings(bundle=Path("models/demo/1"))).openapi()


def text() -> str:
    """Return the document as YAML, keys in the order of the application."""
    return yaml.safe_dump(document(), sort_keys=False, allow_unicode=True, width=110)


if __name__ == "__main__":
    sys.stdout.write(text())
