"""``python tools/chart.py``: write what is made from the Helm chart, and what the chart takes from the service.

Writes ``deploy/kubernetes/rendered/listwright.yaml``, the chart with its default values, and the ``settings`` of
``values.schema.json``, with the bounds that the service has. ``python tools/chart.py FILE...`` prints the chart with
the values of these files instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart

from listwright.service.settings import PREFIX, Settings

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "kubernetes"
CHART, RENDERED = FOLDER / "chart", FOLDER / "rendered" / "listwright.yaml"
SCHEMA = CHART / "values.schema.json"
RELEASE = "listwright"

OF_THE_CHART = {
    "admin_key", "bundle", "drain_s", "events_log", "experiments", "host", "keys", "keys_file", "models", "port",
    "served_log", "served_stream", "tls_cert", "tls_key", "unit_salt", "workers",
}  # fmt: skip
"""Settings that follow from other values of the chart, or belong into a Secret."""

HEAD = "# Made by `python tools/chart.py` from the chart beside this folder, with its default values: edit those.\n"


def render(values: dict[str, Any] | None = None, *, release: str = RELEASE) -> list[dict[str, Any]]:
    """Render the objects of the chart, in the order of their files.

    Raises:
        helm_python.errors.HelmError: if the values do not fit the chart; the message names the value.
    """
    objects = []
    with Chart.load(CHART) as chart:
        chart.validate_schema(values)
        for name, text in sorted(chart.render(values, name=release, namespace="default").items()):
            if name.endswith(".yaml"):
                objects += [document for document in yaml.safe_load_all(text) if document is not None]
    return objects


def as_yaml(objects: Sequence[dict[str, Any]]) -> str:
    """Dump objects as one stream of YAML."""
    return yaml.safe_dump_all(objects, sort_keys=False, width=120, explicit_start=True)


def settings_schema() -> dict[str, Any]:
    """Return the JSON schema of ``settings``: the service's settings, but for :data:`OF_THE_CHART`."""
    properties = {}
    for name, field in Settings.model_json_schema()["properties"].items():
        if name not in OF_THE_CHART:
            (setting,) = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
            bounds = {key: value for key, value in setting.items() if key not in ("default", "title", "format")}
            properties[PREFIX + name.upper()] = bounds | {"description": field["description"]}
    return {
        "description": "environment variables of the service; others follow from other values of the chart",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "patternProperties": {"^OTEL_[A-Z_]+$": {"type": ["string", "number", "boolean"]}},
        "additionalProperties": False,
    }


def schema_text() -> str:
    """Return ``values.schema.json`` with the settings of this service."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    schema["properties"]["settings"] = settings_schema()
    return json.dumps(schema, indent=2) + "\n"


def merge_values(files: Sequence[Path]) -> dict[str, Any]:
    """Merge the values of several files as Helm does: later files win."""
    values: dict[str, Any] = {}
    for file in files:
        _merge(values, yaml.safe_load(file.read_text(encoding="utf-8")) or {})
    return values


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def main() -> int:
    """Write the files, or print a rendering."""
    parser = argparse.ArgumentParser(prog="python tools/chart.py", description=__doc__)
    parser.add_argument("values", nargs="*", type=Path, metavar="FILE", help="values: print the chart with them")
    files = parser.parse_args().values
    if files:
        print(as_yaml(render(merge_values(files))), end="")
        return 0
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    RENDERED.write_text(HEAD + as_yaml(render()), encoding="utf-8")
    print(f"{SCHEMA}\n{RENDERED}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
