"""``python tools/typescript_types.py``: the types of the TypeScript client, from ``openapi.yaml``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
TYPES = ROOT / "client" / "typescript" / "src" / "types.ts"
ROOTS = ("RerankRequest", "RerankResponse", "ExplainRequest", "ExplainResponse", "Info", "Problem")
"""Schemas that the client names; those that they refer to are written, too."""

FEWEST_SHARED = 3
"""Members that an interface has at least for another to extend it."""

PREFIX = "#/components/schemas/"
WORDS = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}

Node = dict[str, Any]


def text() -> str:
    """Return the module of types: one for each schema that the client needs.

    An interface extends those whose members it has all of. The forms of a request extend one that is not exported.
    """
    schemas: Node = yaml.safe_load((ROOT / "openapi.yaml").read_text(encoding="utf-8"))["components"]["schemas"]
    names, waiting = set[str](), list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += _references(schemas[name])
    members = {name: _members(schemas[name]) for name in names if "properties" in schemas[name]}
    bases = {}
    for name in names - members.keys():
        forms = [members[form] for form in _references(schemas[name])]
        if forms:
            bases[f"{name}Base"] = [member for member in forms[0] if all(member in form for form in forms)]
    members |= bases
    parts = ["// Written by tools/typescript_types.py from openapi.yaml."]
    for name in sorted(names | bases.keys()):
        comment, export = ("", "") if name in bases else (_comment(schemas[name], ""), "export ")
        if name in members:
            parts.append(f"{comment}{export}interface {name}{_body(name, members)}")
        else:
            parts.append(f"{comment}{export}type {name} = {_type(schemas[name])};")
    return "\n\n".join(parts) + "\n"


def _references(node: Any) -> list[str]:
    """Return the names of the schemas that a part of the document refers to."""
    if isinstance(node, list):
        return [name for part in node for name in _references(part)]
    if not isinstance(node, dict):
        return []
    reference = node.get("$ref")
    return [reference.removeprefix(PREFIX)] if isinstance(reference, str) else _references(list(node.values()))


def _members(schema: Node) -> list[str]:
    """Return the declaration of each member, with its comment."""
    members = []
    for name, value in schema["properties"].items():
        mark = "" if name in schema.get("required", ()) else "?"
        members.append(f"{_comment(value, '  ')}  {name}{mark}: {_type(value)};\n")
    return members


def _body(name: str, members: dict[str, list[str]]) -> str:
    """Return what follows an interface's name: the interfaces that it extends, and the members that they lack."""
    extended, own = [], members[name]
    for other, inherited in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
        shared = len(inherited) >= FEWEST_SHARED and set(inherited) < set(members[name])
        if shared and not set(inherited).isdisjoint(own):
            extended.append(other)
            own = [member for member in own if member not in inherited]
    heritage = f" extends {', '.join(extended)}" if extended else ""
    lines = "\n" + "".join(own) if own else ""
    return f"{heritage} {{{lines}}}"


def _comment(schema: Node, indent: str) -> str:
    return f"{indent}/** {' '.join(schema['description'].split())} */\n" if "description" in schema else ""


def _type(schema: Node) -> str:
    """Return a schema as an expression of TypeScript's.

    Raises:
        ValueError: if it has a form that the document had not before.
    """
    if "$ref" in schema:
        return str(schema["$ref"].removeprefix(PREFIX))
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if parts := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(map(_type, parts)))
    kind = schema.get("type")
    if kind == "array":
        item = _type(schema["items"])
        return f"({item})[]" if "|" in item else f"{item}[]"
    if kind == "object" and "additionalProperties" in schema:
        return f"{{ [name: string]: {_type(schema['additionalProperties'])} }}"
    if kind in WORDS:
        return WORDS[kind]
    raise ValueError(f"no type of TypeScript's for {schema}: add it to tools/typescript_types.py")


if __name__ == "__main__":
    TYPES.write_text(text(), encoding="utf-8")
