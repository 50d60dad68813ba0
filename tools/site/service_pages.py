"""The pages of the service's settings and metrics, from the code that declares them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from prometheus_client import CollectorRegistry
from pydantic.fields import FieldInfo
from tables import code, page, plain, table

from listwright.service.app import create_app
from listwright.service.settings import PREFIX, Settings


def settings() -> str:
    """Return Markdown: every environment variable, its default, its bounds and its meaning."""
    rows = [
        [
            code(PREFIX + name.upper()),
            "" if field.default is None else code(str(field.default).lower()),
            _bounds(field),
            plain(str(field.description)),
        ]
        for name, field in Settings.model_fields.items()
    ]
    return page(
        "Settings",
        "After this page you can set every environment variable of `listwright serve`.\n\n"
        "[Run the service](../operations.md) says when to change them.",
        table(["variable", "default", "values", "meaning"], rows),
    )


def metrics() -> str:
    """Return Markdown: every metric of ``GET /metrics``, its type, its labels and its help."""
    registry = create_app(Settings(bundle=Path("NAME/VERSION"))).service.telemetry.registry
    rows = [
        [
            code(family.name + ("_total" if family.type == "counter" else "")),
            family.type,
            labels,
            plain(family.documentation),
        ]
        for family in registry.collect()
        for labels in [", ".join(map(code, _labels(registry, family)))]
    ]
    return page(
        "Metrics",
        "After this page you can name every metric of `GET /metrics` in an alert or a graph.\n\n"
        "A histogram has the series `_bucket`, `_sum` and `_count`. "
        "[Observe the service](../observability.md) says which ones to watch.",
        table(["metric", "type", "labels", "meaning"], rows),
    )


def _bounds(field: FieldInfo) -> str:
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    if choices:
        return ", ".join(map(code, choices))
    bounds: dict[str, Any] = {
        name: getattr(bound, name) for bound in field.metadata for name in ("gt", "ge", "le") if hasattr(bound, name)
    }
    words = {"gt": "above", "ge": "from", "le": "to"}
    return " ".join(f"{word} {bounds[name]:,.15g}" for name, word in words.items() if name in bounds)


def _labels(registry: CollectorRegistry, family: Any) -> list[str]:
    """Return the labels of a family that may have no sample yet, which only prometheus_client's private names give."""
    collector = registry._names_to_collectors.get(family.name)
    declared = getattr(collector, "_labelnames", None) or getattr(family, "_labelnames", None)
    if declared is None:
        declared = dict.fromkeys(label for sample in family.samples for label in sample.labels)
    return [label for label in declared if not re.fullmatch("le|quantile", label)]
