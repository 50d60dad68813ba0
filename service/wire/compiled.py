"""The compiled part, None where there was no C compiler to build it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

scan: Any
try:
    scan = import_module("service.wire.json_fast")
except ImportError:
    scan = None
