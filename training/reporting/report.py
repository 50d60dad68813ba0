"""The results of a run: the terminal's table of the test split, ``report.json`` and ``report.html`` in the bundle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from listwright.ranking.manifest import Manifest, Metric
from listwright.ranking.metrics import EvalProtocol
from listwright.training.console.command import print_table
from listwright.training.evaluation.intervals import Verdict, verdict_of
from listwright.training.evaluation.protocol import HEADLINE, PLAIN, ROUTED, Evaluation
from listwright.training.evaluation.routing import RoutingEvaluation
from listwright.training.reporting.fit_figures import Facts, metric_name
from listwright.training.reporting.fit_page import fit_page
from listwright.training.reporting.goals_section import goal_lines
from listwright.training.reporting.score_sections import score_lines
from listwright.training.reporting.sentences import (
    GIVEN,
    brought_along,
    budget_sentences,
    choice_sentence,
    compared_rows,
    default_sentence,
    plain_sentence,
)

_NAMES = {"input_order": "input order", PLAIN: "LightGBM", "first_stage": "first stage", ROUTED: "routed"}
TABLE_METRICS = ("ndcg@1", "ndcg@5", "ndcg@10", "hit@1", "mrr", "map", "err@10")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run.

    Args:
        evaluation: Values of each query of the test split, measured through the sealed bundle.
        metrics: Means and intervals under the evaluation's protocol.
        data: Data and their split, in one line.
        notes: Notes on the data from before the fit.
        dropped: Constant columns of the data that became no features: their places (from 0) and their names.
        first_stage, model: Facts on the fitted stages, and how their fits went.
        recipe: Recipe as JSON.
        seconds: Wall-clock time by step.
        specialists: Facts on the specialists; None if the recipe has none.
        routing: Measured effect of choosing among them; None without a router.
        default: Meaning of ``auto`` where no router decides, and the reason if it is not what was fitted; empty for
            several bundles together.
        details: Measurements of :mod:`listwright.training.reporting.measures`, by name.
        repeat: Command, bundle, versions and fingerprints.
        measured_here: Figures that another run of the same recipe need not repeat: machine, time of day, latency.
        titles: Titles of the second stages, by kind.
        budget: Facts of :attr:`listwright.training.pipeline.budget.Budget.facts`; None for a run without a bound.
    """

    evaluation: Evaluation
    metrics: tuple[Metric, ...]
    data: str
    first_stage: Mapping[str, object]
    model: Mapping[str, object]
    recipe: Mapping[str, object]
    seconds: Mapping[str, float]
    notes: Sequence[str] = ()
    dropped: Sequence[tuple[int, str]] = ()
    specialists: Mapping[str, object] | None = None
    routing: RoutingEvaluation | None = None
    default: Mapping[str, object] = field(default_factory=dict)
    details: Mapping[str, object] = field(default_factory=dict)
    repeat: Mapping[str, object] = field(default_factory=dict)
    measured_here: Mapping[str, object] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    budget: Mapping[str, object] | None = None

    @property
    def names(self) -> dict[str, str]:
        """Names of the rankers for display."""
        names, generalist = dict(_NAMES), self.evaluation.generalist
        if not brought_along(self.first_stage):
            names["first_stage"] = "LightGBM + relative" if "relative" in self.first_stage else "LightGBM"
        if generalist not in names:
            names[generalist] = str(self.model["title"])
        return names | dict(self.titles)

    def default_over_plain(self) -> dict[str, object] | None:
        """Return the gain of the default ranker over LightGBM without list-relative columns; None if there are none."""
        ranker = str(self.default.get("strategy", self.evaluation.generalist))
        if PLAIN not in self.evaluation.rankers or ranker not in self.evaluation.rankers:
            return None
        return self._gain(ranker, PLAIN)

    def _gain(self, ranker: str, over: str) -> dict[str, object]:
        gain = self.evaluation.gain(HEADLINE, ranker, over)
        return {"ranker": ranker, "metric": HEADLINE, **gain._asdict(), "verdict": verdict_of(gain.low, gain.high)}

    @property
    def sealed(self) -> dict[str, object]:
        """The results for the manifest: of the rankers in the bundle."""
        own = tuple(metric for metric in self.metrics if metric.ranker != PLAIN)
        return {"protocol": self.evaluation.protocol, "metrics": own}

    def write(self, folder: Path) -> tuple[str, str]:
        """Write ``report.json``, and the page that is built from it alone; return their names."""
        text = self.to_json()
        (folder / "report.json").write_text(text, encoding="utf-8")
        (folder / "report.html").write_text(fit_page(json.loads(text)), encoding="utf-8")
        return "report.json", "report.html"

    def to_json(self) -> str:
        """Return ``report.json``: everything above but the per-query values; ``docs/report.md`` describes it."""
        plain = self.default_over_plain()
        facts = {
            "data": self.data,
            "notes": list(self.notes),
            "dropped": [list(column) for column in self.dropped],
            "protocol": str(self.evaluation.protocol),
            "interval": "95 % percentile bootstrap over queries",
            "rankers": {ranker: self.names[ranker] for ranker in self.evaluation.rankers},
            "queries": self.evaluation.queries,
            "empty_queries": self.evaluation.empty_queries,
            "metrics": [metric.model_dump() for metric in self.metrics],
            **({} if plain is None else {"default_over_plain": plain}),
            "gain_over_first_stage": self._gain(self.evaluation.generalist, "first_stage"),
            **({"default_strategy": dict(self.default)} if self.default else {}),
            **({} if self.budget is None else {"budget": dict(self.budget)}),
            "empty_query_conventions": conventions(self.evaluation),
            "first_stage": dict(self.first_stage),
            "model": dict(self.model),
            **({} if self.specialists is None else {"specialists": dict(self.specialists)}),
            **({} if self.routing is None else {"routing": self.routing.facts() | {"sentence": verdict(self.routing)}}),
            "details": dict(self.details),
            "recipe": dict(self.recipe),
            "repeat": dict(self.repeat),
            "measured_here": {
                **self.measured_here,
                "seconds": {step: round(value, 2) for step, value in self.seconds.items()},
            },
        }
        return _compact(json.dumps(facts, indent=1)) + "\n"


def default_facts(manifest: Manifest) -> dict[str, object]:
    """Describe what ``auto`` means without a router, why, and by which comparisons: none for a forced model."""
    facts: dict[str, object] = {"strategy": manifest.strategy, "reason": manifest.default_reason}
    recipe = manifest.recipe
    has_comparison = recipe.get("choice") is not None and recipe.get("router") is None
    if manifest.choice and (has_comparison or recipe["model"]["kind"] == "first_stage"):
        facts["compared"] = [comparison.model_dump() for comparison in manifest.choice]
    return facts


def repeat_facts(manifest: Manifest, command: str, data_fingerprint: str) -> dict[str, object]:
    """Return what was run, and how to run it again."""
    return {
        "bundle": f"{manifest.name}/{manifest.version}",
        "command": command,
        "seed": manifest.recipe["seed"],
        "data_fingerprint": f"sha256:{data_fingerprint}",
        "schema_fingerprint": manifest.fingerprint,
        "made_with": manifest.made_with,
    }


def renamed(report: str, bundle: str) -> dict[str, str]:
    """Return ``report.json`` of a renamed bundle, and its page; by name of the file."""
    facts = json.loads(report)
    facts["repeat"]["bundle"] = bundle
    return {"report.json": _compact(json.dumps(facts, indent=1)) + "\n", "report.html": fit_page(facts)}


def _compact(text: str) -> str:
    """Put rows of numbers on one line each: thousands of lines fewer."""
    return re.sub(r"\[[^\[\]{}]*\]", lambda row: re.sub(r"\n\s*", " ", row[0]), text)


def conventions(evaluation: Evaluation) -> dict[str, dict[str, float]]:
    """Return the mean NDCG of every ranker under each of the three conventions for empty queries."""
    result: dict[str, dict[str, float]] = {}
    for convention in (0, 1, "drop"):
        under = replace(evaluation, protocol=EvalProtocol.model_validate({"empty_queries": convention}))
        result[str(convention)] = {ranker: under.mean(HEADLINE, ranker) for ranker in evaluation.rankers}
    return result


def show_means(
    metrics: Iterable[Facts], rankers: Mapping[str, str], columns: Sequence[str], title: str, console: Console
) -> None:
    """Print the means of rankers, by their names for display, and half the width of each interval."""
    cells = {(metric["ranker"], metric["name"]): metric for metric in metrics}
    rows = []
    for ranker, name in rankers.items():
        own = [cells.get((ranker, column)) for column in columns]
        if any(own):
            rows.append([name, *(f"{of['mean']:.4f}\n±{(of['high'] - of['low']) / 2:.3f}" if of else "" for of in own)])
    print_table(console, title, ["ranker", *map(metric_name, columns)], rows)


def show(report: Report, console: Console) -> None:
    """Print the table, the paired gain and the protocol."""
    evaluation, generalist = report.evaluation, report.evaluation.generalist
    names = report.names
    title = f"Test split, {evaluation.queries} queries, through the sealed bundle"
    rankers = {ranker: names[ranker] for ranker in evaluation.rankers}
    show_means([metric.model_dump() for metric in report.metrics], rankers, TABLE_METRICS, title, console)
    _show_choice(report, console)
    for line in budget_sentences(report.budget):
        console.print(line)
    if (plain := report.default_over_plain()) is not None:
        console.print(plain_sentence(plain, names))
    if generalist != "first_stage":
        mean, low, high = evaluation.gain(HEADLINE, generalist, "first_stage")
        console.print(
            f"{names[generalist]} over {names['first_stage']}, NDCG@10: {mean:+.4f} [{low:+.4f}, {high:+.4f}]: "
            f"{verdict_of(low, high)} (paired, 95 % bootstrap over test queries; ± above is half the interval's width)"
        )
        for note in _notes(report, verdict_of(low, high)):
            console.print(f"[yellow]Note:[/] {escape(note)}")
    if brought_along(report.first_stage):
        console.print(f"[yellow]Note:[/] {GIVEN}")
    if report.routing is not None:
        console.print(verdict(report.routing))
    for line in (*goal_lines(report.details), *score_lines(report.details, names)):
        console.print(line, markup=False)
    if evaluation.empty_queries:
        by_convention = "; ".join(
            f"{name}: {', '.join(f'{names[ranker]} {value:.4f}' for ranker, value in means.items())}"
            for name, means in conventions(evaluation).items()
        )
        console.print(
            f"NDCG@10 if a query without a relevant candidate ({evaluation.empty_queries} here) counts {by_convention}"
        )
    console.print(f"Protocol: {evaluation.protocol}")
    console.print(f"Data: {report.data}", markup=False)
    console.print("Seconds: " + ", ".join(f"{step} {value:.1f}" for step, value in report.seconds.items()))


def _show_choice(report: Report, console: Console) -> None:
    """Print what the default was chosen by."""
    brought = brought_along(report.first_stage)
    sentence = choice_sentence(report.default, report.names, report.budget, external=brought)
    if sentence is None:
        return
    title = "Compared" if brought else "Compared on held-out queries"
    head = ("ranker", "over", "NDCG gain, 95 % interval", "verdict")
    print_table(console, title, head, compared_rows(report.default, report.names, report.budget), texts=4)
    console.print(f"{sentence[0].upper()}{sentence[1:]}")


def _notes(report: Report, result: Verdict) -> Iterator[str]:
    """Yield what the verdict means for the operator of the bundle."""
    generalist = report.evaluation.generalist
    changed = default_sentence(report.default, generalist)
    if changed is not None:
        forced = "" if report.recipe.get("choice") else " This also applies to a model requested with --model."
        yield f"{changed}{forced}"
    elif report.default.get("compared"):
        return
    elif result == "harm":
        yield "the interval lies below 0: serve the first stage."
    elif result == "no difference shown" and report.routing is None:
        yield (
            f"no difference shown: the interval contains 0. The bundle answers with {report.names[generalist]} unless "
            "a request says strategy=first_stage; compare on more queries before you choose."
        )


def verdict(routing: RoutingEvaluation) -> str:
    """Return the sentence whether routing pays on these queries."""
    mean, low, high = routing.gain(routing.routed, routing.default)
    if routing.coverage == 0.0:
        return (
            "Routing abstains: no specialist has a significant gain on such queries; every answer comes from the "
            f"{routing.default_is}."
        )
    says = {
        "gain": "Routing pays",
        "harm": "Routing does harm",
        "no difference shown": "Routing has no significant effect",
    }
    result = verdict_of(low, high)
    return (
        f"{says[result]}: {routing.coverage:.0%} of queries go to a specialist, {mean:+.4f} [{low:+.4f}, {high:+.4f}] "
        f"over the {routing.default_is} alone.{' Switch it off.' if result == 'harm' else ''}"
    )
