"""The rules and the dashboard under ``deploy/``: right by Prometheus' own tool, and about metrics that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from listwright.ranking import bundle
from listwright.service.app import create_app
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Drift
from support.experiments import experiment, written
from support.service.asgi import asking
from support.service.bundles import make_bundle
from support.stand_ins import Inline
from support.waiting import PATIENCE_S

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
OURS = r"(?:listwright|process)_\w+"
"""Names of series that the service has; ``up`` is Prometheus' own."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "command",
    [
        ["check", "rules", "--lint-fatal", "rules.yml"],
        ["check", "config", "--lint-fatal", "prometheus.yml"],
        ["test", "rules", "rules_test.yml"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_promtool_agrees(command):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool: install Prometheus (the Debian package prometheus has it)")
    run = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": PATIENCE_S}
    done = subprocess.run([promtool, *command], cwd=RULES.parent, check=False, **run)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """Names of all series of a service that has ranked, degraded, refused and been asked for its metrics, and labels."""
    options = {"graph": "nan", "specialists": 2, "margin": 0.0, "probability": "relevance"}
    folder = make_bundle(tmp_path_factory.mktemp("deploy") / "shop" / "1", **options)
    file = written(folder.parent / "experiments.toml", experiment("shadow", challenger="shop", name="a"))
    rules = folder.parent / "rules.toml"
    rules.write_text("")
    app = create_app(Settings(bundle=folder, experiments=file, explain=True, rules=rules), models=bundle.load(folder))
    telemetry = app.service.telemetry
    counts = app.service.experiments._metrics
    counts.requests.count("a", "shadow_ok")
    counts.failures.labels("a").inc()
    counts.shadow_seconds.labels("a").observe(0.001)
    counts.agreement.labels("a", "rbo").observe(0.9)
    app.service.explainer._metrics.requests.labels("ok").inc()
    telemetry.registry.unregister(telemetry.drift)
    telemetry.drift = Drift(Inline())
    telemetry.registry.register(telemetry.drift)
    with asking(app) as client:
        for price in (1.0, 2000.0):
            rows = [[price, 1.0, 1.0, "A5"], [2.0, 1.0, None, "B2"]]
            assert client.post("/rerank", json={"features": rows, "strategy": "qilcm"}).status_code == 200
        telemetry.routing_faults.labels("hook_timeout").inc()
        telemetry.rules.labels("shop", "pin", "applied").inc()
        telemetry.late.labels("second_stage").inc()
        telemetry.log_records.labels("file").inc()
        telemetry.log_bytes.labels("file").inc()
        telemetry.log_dropped.labels("disk_full").inc()
        telemetry.log_removed_files.labels("age").inc()
        telemetry.events_refused.labels("disk_full").inc()
        telemetry.ignored.labels("shop", "1").inc()
        telemetry.reloads.labels("shop", "refused").inc()
        telemetry.set_bundles({("shop", "1"): "compiled"}, [], [("shop", "2", "it is bad")])
        text = client.get("/metrics").text
    found = {}
    for name, labels in re.findall(rf"^({OURS})(?:\{{(.*)\}})? [0-9.e+-]+$", text, re.M):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def expressions():
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule.get("record") or rule["alert"], rule["expr"]
    dashboard = json.loads((DEPLOY / "grafana" / "listwright.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for entry in dashboard["templating"]["list"]:
        if entry["type"] == "query":
            yield entry["name"], entry["query"]["query"]
    for entry in dashboard["annotations"]["list"]:
        yield entry["name"], entry["expr"]


def test_rules_and_dashboard_speak_of_series_that_there_are(scraped):
    recorded = {r["record"] for g in yaml.safe_load(RULES.read_text())["groups"] for r in g["rules"] if "record" in r}
    for place, expression in expressions():
        names = set(re.findall(rf"\b(?:{OURS}|up\b)", expression))
        rules = set(re.findall(r"listwright(?::\w+)+", expression))
        assert names | rules, place
        assert names <= scraped.keys() | {"up"}, place
        assert rules <= recorded, place
        for name, matchers in re.findall(rf"\b({OURS}|up)\{{([^}}]*)\}}", expression):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', "", matchers)))
            assert labels <= scraped.get(name, set()) | {"job", "instance"}, f"{place}: {name}"


def test_every_metric_is_in_the_dashboard_or_a_rule(scraped):
    said = " ".join(expression for _, expression in expressions())
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in scraped}
    assert not [name for name in families if name not in said]


def test_every_alert_says_what_to_do():
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                assert rule["annotations"].keys() == {"summary", "remedy"}
                assert rule["labels"]["severity"] in ("page", "ticket")
