"""Results of the measured servers side by side: the headline, the results file's body, the table and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rivals.rising_load import Observation, knee
from listwright_lab.science.drawing import GREY, page, plain

QUIET_CORES = 0.15

COLOURS = ("#bf8700", "#e5534b", "#8957e5", "#2da44e", "#db61a2")
"""Colours of the rivals, in their order."""

OURS, DASHES = "#2f81f7", ("-", "--", ":", "-.")
"""Colour of our lines, and their dashes in the order of the formats."""

TICKS = [digit * 10.0**power for power in range(-1, 5) for digit in (1, 2, 5)]


@dataclass(frozen=True, slots=True)
class Result:
    """Steps of one server in one format."""

    title: str
    request_format: str
    ours: bool
    versions: dict[str, str]
    body_bytes: int
    ready_s: float
    peak: Observation
    steps: tuple[Observation, ...]

    @property
    def label(self) -> str:
        """Name in a line of the table or of the figure."""
        return f"{self.title}, {self.request_format}" if self.ours else self.title

    def report(self, limit_ms: float) -> dict[str, object]:
        """Return the row for the results."""
        reached = knee(self.steps, limit_ms)
        return {
            "server": self.title,
            "format": self.request_format,
            "versions": self.versions,
            "body_bytes": self.body_bytes,
            "ready_s": round(self.ready_s, 2),
            "sustained_rps": None if reached is None else reached.offered,
            "peak": self.peak.report(),
            "steps": [step.report() for step in self.steps],
        }


def best_rival(results: Sequence[Result], limit_ms: float) -> tuple[Result, Observation] | None:
    """Return the rival that sustains most within the limit, and its step; None if none sustains anything."""
    reached = [(result, knee(result.steps, limit_ms)) for result in results if not result.ours]
    sustained = [(result, step) for result, step in reached if step is not None]
    return max(sustained, key=lambda pair: pair[1].offered, default=None)


def headline(results: Sequence[Result], limit_ms: float) -> dict[str, object] | None:
    """Return each of our formats over the best rival: within the limit, and within the rival's own p99 at its knee."""
    best = best_rival(results, limit_ms)
    if best is None:
        return None
    rival, there = best
    assert there.step.p99_ms is not None
    formats = {}
    for result in results:
        if result.ours:
            formats[result.request_format] = {
                "within_the_limit": _over(knee(result.steps, limit_ms), there),
                "at_the_rivals_p99": _over(knee(result.steps, there.step.p99_ms), there),
                "peak_over_rivals_peak": round(result.peak.offered / rival.peak.offered, 2),
            }
    return {
        "best_rival": rival.title,
        "sustained_rps": there.offered,
        "p99_ms": there.step.p99_ms,
        "peak_rps": round(rival.peak.offered, 1),
        "ours": formats,
    }


def _over(ours: Observation | None, theirs: Observation) -> dict[str, float] | None:
    if ours is None:
        return None
    return {"sustained_rps": ours.offered, "ratio": round(ours.offered / theirs.offered, 2)}


def table(results: Sequence[Result], limit_ms: float) -> list[str]:
    """Return one line per result, those that sustain most first; a dash where nothing was sustained."""
    head = f"p99 <= {limit_ms:g} ms: req/s"
    lines = [f"{'server':<32} {'peak':>7} {head:>24} {'p50':>8} {'p99':>8} {'p99.9':>8} {'CPU ms':>7} {'others':>7}"]
    rows = []
    for result in results:
        reached = knee(result.steps, limit_ms)
        figures = result.peak.report()
        rows.append((0.0 if reached is None else reached.offered, result, reached, figures))
    for _, result, reached, figures in sorted(rows, key=lambda row: -row[0]):
        at = ["-"] * 4
        if reached is not None:
            step = reached.step
            at = [f"{reached.offered:.1f}", *(f"{value:.1f}" for value in (step.p50_ms, step.p99_ms, step.p999_ms))]
        lines.append(
            f"{result.label:<32} {result.peak.offered:>7.1f} {at[0]:>24} {at[1]:>8} {at[2]:>8} {at[3]:>8} "
            f"{figures['server_cpu_ms_per_answer'] or '-':>7} {figures['others_cores']:>7}"
        )
    return lines


def disturbed(results: Sequence[Result]) -> list[str]:
    """Return a warning if others used so much of the machine that the figures are as much theirs as the servers'."""
    most = max((step.others_cores for result in results for step in (result.peak, *result.steps)), default=0.0)
    if most <= QUIET_CORES:
        return []
    return [f"others used up to {most:.2f} cores meanwhile: figures to look at, not to quote"]


def sentences(figures: dict[str, object] | None, limit_ms: float) -> list[str]:
    """Return the headline in words."""
    if figures is None:
        return [f"no rival sustained anything within {limit_ms:g} ms"]
    lines = [f"best rival: {figures['best_rival']}, {figures['sustained_rps']} req/s at p99 {figures['p99_ms']} ms"]
    formats = figures["ours"]
    assert isinstance(formats, dict)
    for request_format, ratios in formats.items():
        within, equal = (ratios[name] for name in ("within_the_limit", "at_the_rivals_p99"))
        lines.append(
            f"Listwright, {request_format}: {_times(within)} within {limit_ms:g} ms, {_times(equal)} within that p99, "
            f"{ratios['peak_over_rivals_peak']} x its peak"
        )
    return lines


def _times(over: dict[str, float] | None) -> str:
    return "nothing sustained" if over is None else f"{over['ratio']} x ({over['sustained_rps']} req/s)"


def draw(results: Sequence[Result], limit_ms: float, path: Path) -> Path:
    """Draw percentiles against load.

    Loads at which more than next to nothing was lost are hollow: their percentile is of the answered ones only.
    """
    with page(path, 8.0, 4.8, salt="rivals") as figure:
        axes = figure.subplots()
        for dashes, result in zip(DASHES, (result for result in results if result.ours), strict=False):
            _line(axes, result, color=OURS, linestyle=dashes, linewidth=2.2)
        for colour, result in zip(COLOURS, (result for result in results if not result.ours), strict=False):
            _line(axes, result, color=colour, linestyle="-", linewidth=1.4)
        axes.axhline(limit_ms, color=GREY, linewidth=1.0, linestyle=(0, (2, 3)))
        axes.annotate(f"{limit_ms:g} ms", (1.0, limit_ms), xycoords=("axes fraction", "data"), ha="right", va="bottom")
        axes.set(yscale="log", xlabel="offered load, requests a second", ylabel="99th percentile, ms")
        axes.set_xlim(left=0)
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in TICKS if low <= tick <= high])
        axes.yaxis.set_major_formatter("{x:g}")
        plain(axes)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, labelcolor=GREY)
    return path


def _line(axes: Any, result: Result, *, color: str, **style: Any) -> None:
    steps = [(o.offered, o.step.p99_ms, o) for o in result.steps if o.step.p99_ms is not None]
    axes.plot([x for x, _, _ in steps], [y for _, y, _ in steps], label=result.label, color=color, **style)
    for x, y, observation in steps:
        whole = observation.sustained(float("inf"))
        axes.plot(x, y, marker="o", markersize=4, color=color, markerfacecolor=color if whole else "none")
