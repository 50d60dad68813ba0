"""The chart's objects of the Prometheus operator: by models made from its own definitions, and by promtool."""

import re
import shutil
import subprocess

import pytest
import yaml
from cloudcoil.models.prometheus_operator import v1

from support.chart import VALUE_SETS, of_kind
from support.waiting import PATIENCE_S
from tools import chart

RULES = chart.FOLDER.parent / "prometheus" / "rules.yml"
MONITORED = VALUE_SETS["production"]


def fields(item):
    """What an object says, without what the model adds; a field that it does not know is missing."""
    model = getattr(v1, item["kind"]).model_validate(item)
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PrometheusRule"])
def test_the_operator_knows_every_field(kind):
    item = of_kind(kind, MONITORED)
    assert fields(item) == item


def test_without_the_switches_there_are_none():
    kinds = {item["kind"] for item in chart.render()}
    assert kinds.isdisjoint({"ServiceMonitor", "PrometheusRule", "HorizontalPodAutoscaler"})


def test_the_rules_are_those_of_prometheus(tmp_path):
    spec = of_kind("PrometheusRule", MONITORED)["spec"]
    assert spec == yaml.safe_load(RULES.read_text(encoding="utf-8"))
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool: install Prometheus (the Debian package prometheus has it)")
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(spec))
    done = subprocess.run(
        [promtool, "check", "rules", "--lint-fatal", "rules.yml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["", "ranker"])
def test_the_alerts_know_the_scrape_job(name):
    monitor = of_kind("ServiceMonitor", MONITORED | {"fullnameOverride": name})
    (relabeling,) = monitor["spec"]["endpoints"][0]["relabelings"]
    (gone,) = [
        rule
        for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "ListwrightGone"
    ]
    job = re.search(r'job=~"([^"]+)"', gone["expr"])[1]
    assert relabeling["targetLabel"] == "job"
    assert re.fullmatch(job, relabeling["replacement"])
