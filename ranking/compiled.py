"""The compiled parts, each None where there was no C compiler to build it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def _built(name: str) -> Any:
    try:
        return import_module(f"ranking.{name}")
    except ImportError:
        return None


linear = _built("linear")
list_relative = _built("list_relative")
look = _built("look")
traversal = _built("traversal")
