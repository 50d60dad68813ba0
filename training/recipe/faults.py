"""What is wrong in a recipe, in its own words and places."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError

_OF_A_KIND = {"data", "first_stage", "model"}
"""Sections whose fields depend on their kind, which pydantic puts into the place of a fault."""


def described(error: ValidationError, model: type[BaseModel]) -> str:
    """All faults of a recipe, in one line; a misspelled field gets the name of one that ``model`` has."""
    return "; ".join(_said(fault, model) for fault in error.errors())


def _place(parts: tuple[str | int, ...]) -> str:
    """Where a fault is, as the recipe has it."""
    return ".".join(map(str, parts[:1] + parts[2:] if parts and parts[0] in _OF_A_KIND else parts))


def _fields(model: type[BaseModel]) -> list[str]:
    """Names of all fields that it and its parts can have."""
    schema = model.model_json_schema()
    parts = [schema, *schema["$defs"].values()]
    return sorted({name for part in parts for name in part.get("properties", {})})


def _said(fault: Any, model: type[BaseModel]) -> str:
    """One fault, with its place and what stood there."""
    place, message = _place(fault["loc"]), str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "union_tag_not_found":
        return f"{place}: says no kind"
    if fault["type"] == "union_tag_invalid":
        return f"{place}: there is no kind {fault['ctx']['tag']!r}, use one of {fault['ctx']['expected_tags']}"
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(fault["loc"][-1]), _fields(model), n=1)
        return f"{place}: there is no such field{f'; did you mean {near[0]}?' if near else ''}"
    if fault["type"] == "missing":
        return f"{place}: is missing"
    if not place or isinstance(fault["input"], dict):  # a section: the message names what is wrong in it
        return f"{place}: {message}" if place else message
    return f"{place}: {message} (got {fault['input']!r})"
