"""The compiled parts, each None where there was no C compiler to build it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def _built(name: str) -> Any:
    try:
        return import_module(f"listwright.ranking.compiled.{name}")
    except ImportError:
        return None


relative_columns = _built("relative_columns")
tree_traversal = _built("tree_traversal")
