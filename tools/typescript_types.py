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

PREFIX = "#/components/schemas/"
WORDS = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}

Node = dict[str, Any]


def text() -> str:
    """Return the module of types: one for each schema that the client needs."""
    schemas: Node = yaml.safe_load((ROOT / "openapi.yaml").read_text(encoding="utf-8"))["components"]["schemas"]
    names, waiting = set[str](), list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += _references(schemas[name])
    parts = [
        "// Written by tools/typescript_types.py from openapi.yaml.",
        *(_declare(n, schemas[n]) for n in sorted(names)),
    ]
    return "\n\n".join(parts) + "\n"


def _references(node: Any) -> list[str]:
    """Return the names of the schemas that a part of the document refers to."""
    if isinstance(node, list):
        return [name for one in node for name in _references(one)]
    if not isinstance(node, dict):
        return []
    reference = node.get("$ref")
    return [reference.removeprefix(PREFIX)] if isinstance(reference, str) else _references(list(node.values()))


def _declare(name: str, schema: Node) -> str:
    comment = _comment(schema, "")
    if "properties" not in schema:
        return f"{comment}export type {name} = {_type(schema)};"
    members = []
    for member, one in schema["properties"].items():
        mark = "" if member in schema.get("required", ()) else "?"
        members.append(f"{_comment(one, '  ')}  {member}{mark}: {_type(one)};\n")
    return f"{comment}export interface {name} {{\n{''.join(members)}}}"


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
