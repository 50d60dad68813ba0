"""The compiled part, None where there was no C compiler to build it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

json_fast: Any
try:
    json_fast = import_module("listwright.service.wire.json_fast")
except ImportError:
    json_fast = None
