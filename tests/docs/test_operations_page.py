"""Settings, metrics, alerts and endpoints that the pages of the service name exist, and their figures are the code's."""

import re

from listwright.service.app import create_app
from listwright.service.settings import PREFIX, Settings
from listwright.service.telemetry.logs import MOST_LINES
from listwright.service.transport.server import FINISH_WITHIN_S
from support.pages.figure_blocks import ROOT, page

PAGE = "\n".join(page(f"docs/{name}.md") for name in ("operations", "scaling", "observability"))


def named(pattern):
    found = set(re.findall(pattern, PAGE))
    assert found
    return found


def test_the_settings_exist():
    assert {name.lower() for name in named(rf"{PREFIX}([A-Z_]+)")} <= set(Settings.model_fields)


def test_the_alerts_exist():
    rules = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text(encoding="utf-8")
    assert named(r"`(Listwright\w+)`") <= set(re.findall(r"alert: (\w+)", rules))


def test_endpoints_and_metrics_exist(tmp_path):
    app = create_app(Settings(bundle=tmp_path, explain=True))
    endpoints = {f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods}
    assert named(r"`((?:GET|POST) /[\w/]+)`") <= endpoints
    families = app.service.telemetry.registry.collect()
    names = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    assert named(r"`(listwright_\w+)`") <= names


def test_figures_are_those_of_the_code():
    assert f"{Settings.model_fields['keep_alive_s'].default:,g} s" in PAGE
    assert f"within {FINISH_WITHIN_S} s" in PAGE
    assert f"{MOST_LINES:,} are kept" in PAGE
