"""The alerts about processes, by a real Prometheus that scrapes two real services while these are killed."""

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest
import yaml

from listwright.service.bundles import folder
from support.http.processes import free_port
from support.http.worker_processes import both_ready, workers
from support.waiting import PATIENCE_S

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "prometheus"


def hastened(rules):
    """The rules with a second for each minute that an alert waits; three at least, for a scrape may fail."""
    waits = re.findall(r"^ +for: (\d+)([mh])$", rules, re.M)
    assert len(waits) == len(re.findall(r"^ +for: ", rules, re.M)) > 0
    minutes = {"m": 1, "h": 60}
    return re.sub(r"^( +for: )(\d+)([mh])$", lambda m: f"{m[1]}{max(3, int(m[2]) * minutes[m[3]])}s", rules, flags=re.M)


class Prometheus:
    """With the project's own configuration, in haste, and targets from a file."""

    def __init__(self, at):
        self._targets = at / "targets.json"
        self.scrape()
        (at / "rules.yml").write_text(hastened((DEPLOY / "rules.yml").read_text()))
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"}
        (job,) = config["scrape_configs"]
        del job["static_configs"]
        job["file_sd_configs"] = [{"files": [str(self._targets)], "refresh_interval": "1s"}]
        (at / "prometheus.yml").write_text(yaml.safe_dump(config))
        address = f"127.0.0.1:{free_port()}"
        self._api, self._log = f"http://{address}/api/v1", at / "prometheus.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={at / 'prometheus.yml'}",
                    f"--storage.tsdb.path={at / 'data'}",
                    f"--web.listen-address={address}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def scrape(self, *services):
        """From now on, these and no others."""
        listed = [{"targets": [instance(service) for service in services]}]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(listed if services else []))
        new.replace(self._targets)

    def get(self, path, **parameters):
        return httpx.get(f"{self._api}/{path}", params=parameters, timeout=30).raise_for_status().json()["data"]

    def value(self, expression):
        """Of the only series, or None if there is none."""
        found = [float(series["value"][1]) for series in self.get("query", query=expression)["result"]]
        assert len(found) < 2, expression
        return found[0] if found else None

    def firing(self):
        """Names of alerts, and about whom they are."""
        alerts = [alert["labels"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"]
        return {(labels["alertname"], labels.get("instance") or labels.get("model")) for labels in alerts}

    def wait_until(self, fires, **values):
        """Until exactly these alerts fire, and expressions have these values."""
        end, found = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < end:
            try:
                found = self.firing(), {expression: self.value(expression) for expression in values}
            except httpx.TransportError as error:  # it has not opened its port yet
                assert self.process.poll() is None, self._log.read_text()
                found = repr(error)
            if found == (fires, values):
                return
            time.sleep(0.2)
        raise AssertionError(f"waited for {(fires, values)}, found {found}")


@pytest.fixture
def prometheus(tmp_path):
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus: install it (the Debian package prometheus has it)")
    (at := tmp_path / "prometheus").mkdir()
    started = Prometheus(at)
    yield started
    started.process.kill()
    started.process.wait()


def instance(service):
    return service.url.removeprefix("http://")


def swap(service, models, version):
    folder.point(models, "shop", version)
    service.process.send_signal(signal.SIGHUP)


@pytest.mark.nightly
def test_each_alert_about_processes_fires_when_it_should_and_no_other_does(library, prometheus, serve, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for models in (first, second):
        shutil.copytree(library / "shop", models / "shop")
        folder.point(models, "shop", "1")
    pair = both_ready(serve(models=first, workers=2, poll_s=0))
    single = serve(models=second, poll_s=0)
    prometheus.wait_until({("ListwrightNotScraped", None)})
    prometheus.scrape(pair, single)
    prometheus.wait_until(set(), **{"sum(up)": 2, "sum(listwright_ready_workers)": 3, "sum(listwright_workers)": 3})

    single.process.kill()
    prometheus.wait_until({("ListwrightGone", instance(single))})
    starts = f'changes(process_start_time_seconds{{instance="{instance(single)}"}}[1h])'
    port = single.url.rpartition(":")[2]
    single = serve(models=second, poll_s=0, port=port)
    prometheus.wait_until(set(), **{starts: 1})
    single.process.kill()
    single = serve(models=second, poll_s=0, port=port)
    again = ("ListwrightRestarts", instance(single))
    prometheus.wait_until({again}, **{starts: 2})

    swap(single, second, "2")
    prometheus.wait_until({again, ("ListwrightVersionsDiffer", "shop")})
    swap(pair, first, "2")  # each keeps version 1 in memory, for a rollback
    prometheus.wait_until({again})

    replaced = ("ListwrightRestarts", instance(pair))
    ready, restarts = (
        f'{name}{{instance="{instance(pair)}"}}'
        for name in ("listwright_ready_workers", "listwright_worker_restarts_total")
    )
    workers(pair)[0].kill()
    prometheus.wait_until({again, replaced}, **{ready: 2, restarts: 1})
    shutil.rmtree(first / "shop")
    workers(pair)[0].kill()
    prometheus.wait_until({again, replaced, ("ListwrightFewWorkers", instance(pair))}, **{ready: 1})
    assert prometheus.value(f'changes(process_start_time_seconds{{instance="{instance(pair)}"}}[1h])') == 0
