"""The page of the HTTP interface, from ``openapi.yaml``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from tables import code, fenced, page, plain, table

Node = dict[str, Any]


def http(contract: Path) -> str:
    """Return Markdown: every operation with its request and answers, then every schema."""
    document: Node = yaml.safe_load(contract.read_text(encoding="utf-8"))
    operations = [
        (method.upper(), path, operation)
        for path, methods in sorted(document["paths"].items(), key=lambda item: item[0].startswith("/v2"))
        for method, operation in methods.items()
    ]
    listed = table(
        ["operation", "what it does"],
        [
            [f"[`{method} {path}`](#{operation['operationId']})", operation["summary"]]
            for method, path, operation in operations
        ],
    )
    schemas = document["components"]["schemas"]
    return page(
        "HTTP",
        "After this page you can write a request to the service by hand, and read each answer and each problem.\n\n"
        "The same contract for machines: [openapi.yaml](../../openapi.yaml).",
        listed,
        *(_operation(method, path, operation) for method, path, operation in operations),
        "## Keys\n",
        _keys(document["components"]["securitySchemes"]),
        "## Schemas\n",
        *(_schema(name, schema) for name, schema in schemas.items()),
    )


def _operation(method: str, path: str, operation: Node) -> str:
    parts = [
        f"## {method} {path} {{ #{operation['operationId']} }}\n",
        f"{operation.get('description', operation['summary'])}\n",
    ]
    if names := [name for way in operation.get("security", []) for name in way]:
        needed = "" if {} not in operation["security"] else ", where keys are set"
        parts.append(f"Key: {', '.join(f'[`{name}`](#keys)' for name in names)}{needed}.\n")
    if parameters := operation.get("parameters"):
        rows = [[code(p["name"]), p["in"], _parameter_type(p), plain(p.get("description", ""))] for p in parameters]
        parts.append(table(["parameter", "in", "type", "meaning"], rows))
    if "requestBody" in operation:
        rows = [[code(media), _body(content)] for media, content in operation["requestBody"]["content"].items()]
        parts += ["**Request**\n", table(["media type", "body"], rows)]
        for content in operation["requestBody"]["content"].values():
            for example in content.get("examples", {}).values():
                value = json.dumps(example["value"], indent=2, ensure_ascii=False)
                text = f"{example['summary']}:\n\n{fenced(value, 'json')}"
                parts.append(text)
    rows = [
        [
            code(status),
            plain(answer["description"]),
            "<br>".join(_answers(answer)),
            ", ".join(map(code, answer.get("headers", {}))),
        ]
        for status, answer in sorted(operation["responses"].items())
    ]
    parts += ["**Answers**\n", table(["status", "when", "body", "headers"], rows)]
    return "\n".join(parts)


def _parameter_type(parameter: Node) -> str:
    """Describe the type of a parameter, which may be JSON text."""
    if "schema" in parameter:
        return _type(parameter["schema"])
    return f"JSON text: {_type(parameter['content']['application/json']['schema'])}"


def _answers(answer: Node) -> list[str]:
    return [
        f"{code(media)}: {_type(content.get('schema', {}))}" for media, content in answer.get("content", {}).items()
    ]


def _body(content: Node) -> str:
    schema = content.get("schema", {})
    return plain(schema["description"]) if "description" in schema else _type(schema)


def _keys(schemes: Node) -> str:
    rows = [
        [code(name), f"`Authorization: {scheme['scheme'].title()} KEY`", plain(scheme["description"])]
        for name, scheme in schemes.items()
    ]
    return table(["name", "header", "the key"], rows)


def _schema(name: str, schema: Node) -> str:
    required = set(schema.get("required", []))
    rows = [
        [code(name), _type(field), "yes" if name in required else _default(field), plain(field.get("description", ""))]
        for name, field in schema.get("properties", {}).items()
    ]
    fields = table(["field", "type", "required, or default", "meaning"], rows) if rows else f"{_type(schema)}\n"
    return f"### {name} {{ #schema-{name.lower()} }}\n\n{schema.get('description', '')}\n\n{fields}"


def _default(schema: Node) -> str:
    return code(json.dumps(schema["default"])) if "default" in schema else ""


def _type(schema: Node) -> str:
    """Describe a type in words, with a link where it has a section of its own."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#schema-{name.lower()})"
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if either := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, either)))
    return _plain_type(schema)


def _plain_type(schema: Node) -> str:
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    name = " or ".join(kind) if isinstance(kind, list) else str(kind)
    form = schema.get("format", "double")
    return name + (f" ({form})" if form != "double" else "") + _range(schema)


def _range(schema: Node) -> str:
    """Describe the bounds that a caller may meet; JSON's largest whole number is none."""
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
    bounds = [f"{word} {schema[key]:g}" for key, word in words.items() if abs(schema.get(key, 1e15)) < 1e15]
    return f" {' '.join(bounds)}" if bounds else ""
