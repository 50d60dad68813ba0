"""The steps from a first bundle to its promoted successor, each by the real commands and the real service."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
from pictures import draw_examination, draw_truth
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.progress import Progress
from shop_service import SALT, info, service, until, visit
from visitors import PLACES, Shop, click_probabilities, look_probabilities, spelled

from listwright.ranking import bundle
from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.candidates import CandidateList
from listwright.ranking.metrics import ndcg
from listwright.service.bundles.folder import point

NEW = "shop-next"

NEWEST = """
import polars as pl

rows = pl.scan_parquet("logged.parquet")
newest = rows.filter(pl.col("served_at") > pl.col("served_at").unique().quantile(0.8))
newest.sink_parquet("newest.parquet", metadata=pl.read_parquet_metadata("logged.parquet"))
"""
"""Program that keeps the newest fifth of the lists, which the fit only tests on."""


@dataclass(frozen=True)
class Sizes:
    """Number of queries of each part."""

    judged: int = 30
    explored: int = 12_000
    shadowed: int = 500
    interleaved: int = 4000
    held_out: int = 500

    @property
    def visits(self) -> int:
        """Number of queries that people send."""
        return self.explored + self.shadowed + self.interleaved

    @classmethod
    def scaled(cls, share: float) -> Sizes:
        """Return the sizes with a share of the traffic; judged and held-out lists stay."""
        whole = cls()
        return cls(
            explored=round(whole.explored * share),
            shadowed=round(whole.shadowed * share),
            interleaved=round(whole.interleaved * share),
        )


class Loop:
    """The steps of the loop, in their order.

    Args:
        folder: Folder for everything that is written.
        shop: Shop that the visitors come to.
        sizes: Number of queries in each step.
        console: Console to print to.
    """

    def __init__(self, folder: Path, shop: Shop, sizes: Sizes, console: Console) -> None:
        self._folder, self._shop, self._sizes, self._console = folder, shop, sizes, console
        self._visited, self._step = 0, 0
        self.facts: dict[str, Any] = {}

    def run(self) -> None:
        """Run all steps."""
        self.fit_first()
        with service(self._folder) as address:
            self.explore(address)
            self.learn()
            self.estimate()
            self.shadow(address)
            self.interleave(address)
            self.promote(address)
        self.forget()
        self.truth()

    def fit_first(self) -> None:
        """Fit bundle 1: LightGBM on lists that experts judged."""
        self._tell(f"Bundle 1: LightGBM, fitted on {self._sizes.judged} judged lists")
        _table(self._shop).write_csv(self._folder / "judged.csv")
        options = "--data judged.csv --qid query --label label --model first_stage --quick --out models/shop/1"
        self._run("fit", options)
        point(self._folder / "models", "shop", "1")

    def explore(self, address: str) -> None:
        """Send traffic, with swaps of neighbouring places in four of five lists."""
        self._tell("Traffic to bundle 1; four in five lists have two neighbouring places swapped")
        self._experiment('name = "places"\nkind = "explore"\ncontrol = "shop"\nswap_share = 0.8')
        clicks = self._visits(address, self._sizes.explored)
        self.facts["explored"] = {"visits": self._sizes.explored, "clicks": clicks}
        self._say(f"{self._sizes.explored:,} visits, {clicks:,} clicks")

    def learn(self) -> None:
        """Fit bundle 2 from the log and the clicks."""
        self._tell("Log and clicks become judged rows")
        self._say(self._run("join", f"{self._joined()} --out rows.parquet"))
        self._tell("How likely each place is looked at, from the swaps")
        self._say(self._run("propensity", "rows.parquet --out propensities.json"))
        self._tell("Bundle 2: fitted on the clicks, each weighed by how seldom its place is looked at")
        shutil.copy(Path(__file__).with_name("shop.toml"), self._folder)
        options = f"shop.toml --data rows.parquet --split time --propensities propensities.json --out models/{NEW}/1"
        self._run("fit", f"{options} --quick")
        point(self._folder / "models", NEW, "1")

    def estimate(self) -> None:
        """Estimate what bundle 2 would have got in the newest lists, which it was not fitted on."""
        self._tell("What bundle 2 would have got in the newest lists")
        self._run("join", f"{self._joined()} --unshown --out logged.parquet")
        self._say(NEWEST)
        subprocess.run([sys.executable, "-c", NEWEST], cwd=self._folder, check=True)
        options = "--data newest.parquet --propensities propensities.json --out estimate.html --json estimate.json"
        self._say(self._run("estimate", f"models/{NEW}/1 {options}"))
        self.facts["estimate"] = json.loads((self._folder / "estimate.json").read_text(encoding="utf-8"))

    def shadow(self, address: str) -> None:
        """Let bundle 2 rank the lists that bundle 1 answers, without showing its rankings."""
        self._tell("Shadow: bundle 2 ranks the same lists, and nobody sees it")
        until(lambda: _serves(address, NEW), f"{NEW} is served")
        self._experiment(f'name = "unseen"\nkind = "shadow"\ncontrol = "shop"\nchallenger = "{NEW}"\ncore_share = 1.0')
        self._visits(address, self._sizes.shadowed, pause_s=0.02)  # a challenger takes the time that is left
        time.sleep(1.0)  # lists that wait are ranked after their answers
        facts = shadow_facts(httpx.get(address + "/metrics").text)
        self.facts["shadow"] = facts
        self._say(
            f"{facts['ok']:.0f} lists ranked, {facts['dropped']:.0f} dropped for want of time, {facts['failed']:.0f} "
            f"failed; the same first candidate in {facts['same_first']:.0%}"
        )

    def interleave(self, address: str) -> None:
        """Show lists interleaved from both bundles, and report which one people prefer."""
        self._tell("Interleave: each list has picks of both bundles")
        self._experiment(f'name = "next"\nkind = "interleave"\ncontrol = "shop"\nchallenger = "{NEW}"')
        clicks = self._visits(address, self._sizes.interleaved)
        self._say(f"{self._sizes.interleaved:,} visits, {clicks:,} clicks")
        self._run("join", f"{self._joined()} --out compared.parquet")
        self._tell("Compare")
        options = "compared.parquet --experiment next --out comparison.html --json comparison.json"
        self._say(self._run("compare", options))
        self.facts["comparison"] = json.loads((self._folder / "comparison.json").read_text(encoding="utf-8"))

    def promote(self, address: str) -> None:
        """Serve the winner to all traffic, without a restart."""
        decision = self.facts["comparison"]["decision"]
        if decision != "challenger":
            self._tell(f"No promotion: the verdict is {decision!r}")
            self.facts["promoted"] = False
            return
        self._tell("Bundle 2 becomes version 2 of the shop, while the service runs")
        (self._folder / "experiments.toml").unlink()
        self._say(self._run("publish", f"models/{NEW}/1 models/shop/2 --current"))
        until(lambda: info(address, "shop")["version"] == "2", "version 2 is served")
        self.facts["promoted"] = True
        self._say(f"GET /info?model=shop says version {info(address, 'shop')['version']}")

    def forget(self) -> None:
        """Remove the rows of one person from the logs."""
        person = self._shop.person(0)
        self._tell(f"{person} wants to be forgotten")
        self._say(self._run("served", f"forget served --unit {person} --events events"))

    def truth(self) -> None:
        """Report the true NDCG and clicks of both bundles on held-out queries, which only the simulation knows."""
        self._tell("The truth, on queries that nobody sent")
        values = {name: true_values(self._folder / "models" / name / "1", self._shop) for name in ("shop", NEW)}
        means = {"bundle 1": _mean(values["shop"][0]), "bundle 2": _mean(values[NEW][0])}
        (gain, half), (clicks, half_clicks) = map(_mean, values[NEW] - values["shop"])
        self.facts["truth"] = {**{name: mean for name, (mean, _) in means.items()}, "gain": gain, "half_width": half}
        self.facts["truth"] |= {"clicks": clicks, "half_width_clicks": half_clicks}
        for name, (mean, _) in means.items():
            self._say(f"true NDCG@10 of {name}: {mean:.4f}")
        self._say(f"bundle 2 gains {gain:+.4f} ± {half:.4f}, and {clicks:+.4f} ± {half_clicks:.4f} clicks of a list")
        draw_truth(self._folder / "truth.svg", means)
        estimate = json.loads((self._folder / "propensities.json").read_text(encoding="utf-8"))["positions"]
        self.facts["propensities"] = estimate
        draw_examination(self._folder / "places.svg", estimate, look_probabilities(PLACES).tolist())

    def _joined(self) -> str:
        return "--served served --events events --labels labels.toml --window 30m"

    def _visits(self, address: str, count: int, pause_s: float = 0.0) -> int:
        first, self._visited = self._visited, self._visited + count
        with Progress(console=self._console, transient=True) as bar:
            task = bar.add_task("   visits", total=count)

            def advance() -> None:
                bar.advance(task)
                time.sleep(pause_s)

            clicks = visit(address, self._shop, first, self._visited, advance)
        time.sleep(2.0)  # the log writes its records every second
        return clicks

    def _experiment(self, text: str) -> None:
        atomic_write(self._folder / "experiments.toml", f"[[experiment]]\n{text}\n")
        time.sleep(1.0)  # the service looks five times a second

    def _tell(self, title: str) -> None:
        self._step += 1
        self._console.print(f"\n[bold]{self._step}. {title}[/]")

    def _say(self, text: str) -> None:
        for line in text.strip("\n").splitlines():
            self._console.print(f"   {line}", markup=False, highlight=False, soft_wrap=True)

    def _run(self, command: str, options: str) -> str:
        """Run a command of listwright; what it prints."""
        self._console.print(
            f"   $ listwright {command} {options}", markup=False, highlight=False, style="dim", soft_wrap=True
        )
        line = [sys.executable, "-m", "listwright", command, *shlex.split(options)]
        salted = os.environ | {"LISTWRIGHT_UNIT_SALT": SALT}
        with self._console.status("running"):
            done = subprocess.run(line, cwd=self._folder, env=salted, capture_output=True, text=True, check=False)
        (self._folder / f"{self._step:02}-{command}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            raise SystemExit(f"listwright {command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout


def _table(shop: Shop) -> pl.DataFrame:
    """Return the judged lists as a table, as a shop would store them."""
    data = shop.judged
    cells = spelled(data, 0, data.rows)
    queries = np.repeat(data.qids, data.lengths)
    columns = {name: [row[place] for row in cells] for place, name in enumerate(shop.names)}
    return pl.DataFrame({"query": queries, "label": data.labels, **columns})


def _serves(address: str, name: str) -> bool:
    return httpx.get(f"{address}/info", params={"model": name}).status_code == httpx.codes.OK


def shadow_facts(metrics: str) -> dict[str, float]:
    """Parse the figures of a shadow from ``GET /metrics``."""
    samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]

    def total(name: str, **labels: str) -> float:
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    outcomes = {
        outcome: total("listwright_experiment_requests_total", outcome=f"shadow_{outcome}")
        for outcome in ("ok", "degraded", "failed", "dropped")
    }
    measured = total("listwright_shadow_agreement_count", measure="top_1")
    differing = total("listwright_shadow_agreement_bucket", measure="top_1", le="0.0")
    return {**outcomes, "same_first": 1.0 - differing / measured if measured else float("nan")}


def true_values(folder: Path, shop: Shop) -> np.ndarray:
    """Return ``(2, N)`` NDCG@10 and expected clicks of a bundle by the true labels of the held-out queries."""
    reranker = bundle.load(folder).reranker
    values = []
    for features, labels in shop.held_out.lists():
        order = reranker.rerank(CandidateList(features)).order
        scores = np.empty(len(labels))
        scores[order] = -np.arange(len(labels))
        clicks = click_probabilities(labels[order[:PLACES]]).sum()
        values.append((ndcg(scores, labels, cutoff=PLACES), clicks))
    return np.array(values).T


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % normal interval."""
    return float(values.mean()), float(1.96 * values.std(ddof=1) / np.sqrt(len(values)))
