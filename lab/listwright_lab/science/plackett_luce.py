"""``python -m listwright_lab.science.plackett_luce``: what the exact likelihood is worth, and what it costs.

Writes ``benchmarks/results/plackett_luce.json`` and the figure of ``docs/exact-plackett-luce.md``, in one thread. Each
time is the fastest of several rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from mpmath import mp, mpf  # type: ignore[import-untyped]
from scipy.special import logsumexp
from torch import Tensor

from listwright.training.losses import exact_plackett_luce
from listwright.training.losses.exact_plackett_luce import (
    DEPTHS,
    LabelGroups,
    evaluate,
    log_likelihood,
    log_likelihood_of_top,
)
from listwright_lab import machine
from listwright_lab.science.drawing import GREY, page, plain
from listwright_lab.science.plackett_luce_paper import by_sampling, by_subsets

SIZES = (2, 4, 8, 12, 16, 18, 20, 50, 100, 200, 500, 1000)
SEEDS = range(5)
SPREAD = 2.0
"""Standard deviation of the scores in the section ``methods``."""

LARGEST_BY_SUBSETS = 20
QUICK = ("exact_32", "exact_64", "efron", "breslow")
FEATURES, COMPONENTS, QUERIES, CANDIDATES = 136, 5, 1000, 100
MIDPOINTS = 1000

CASE_SIZES = (1, 2, 5, 20, 100, 300, 1000)
CASE_RANGES = (10.0, 30.0)
CASE_OFFSETS = range(-8, 13)
"""Score of each member of a group of equals, less the log-weight of all below."""

DIGITS = 80
"""Decimal digits of the arithmetic: ``1 - e^-s`` loses up to fifty of them."""

AGREED = 1e-11
"""Largest relative change at the last halving; the error that remains is about its square."""

NEGLIGIBLE = 1e-25
"""Terms below this share of the largest are left out; they lie in both tails."""

FIGURE = machine.CHECKOUT / "docs" / "exact-plackett-luce.svg"

LINES = {
    "breslow": ("Breslow", "#bf8700", ":"),
    "efron": ("Efron", "#bf8700", "--"),
    "sampling_1000": ("1,000 samples", "#e5534b", ":"),
    "sampling_10000": ("10,000 samples", "#e5534b", "--"),
    "subsets": ("subsets", "#8957e5", "-"),
    "exact_32": ("integral, 32 nodes", "#2f81f7", "-"),
    "exact_64": ("integral, 64 nodes", "#2da44e", "-"),
}
TIMED = ("sampling_1000", "sampling_10000", "subsets", "exact_32", "exact_64")


def efron(members: Float[np.ndarray, " members"], below: Float[np.ndarray, " below"]) -> float:
    """Return Efron's approximation, times the ``S!`` orders of the group."""
    size = len(members)
    left = logsumexp(members) + np.log(1 - np.arange(size) / size)
    return float(members.sum() - np.logaddexp(left, logsumexp(below)).sum()) + math.lgamma(size + 1)


def breslow(members: Float[np.ndarray, " members"], below: Float[np.ndarray, " below"]) -> float:
    """Return Breslow's approximation, times the ``S!`` orders of the group."""
    size = len(members)
    total = np.logaddexp(logsumexp(members), logsumexp(below))
    return float(members.sum() - size * total) + math.lgamma(size + 1)


def exact(scores: Float[np.ndarray, " L"], labels: Float[np.ndarray, " L"], nodes: int) -> float:
    """Return the integral, after computing value and gradient."""
    result = evaluate(torch.from_numpy(scores)[None], LabelGroups.of(torch.from_numpy(labels)[None]), nodes=nodes)
    return result.value.item()


class Case(NamedTuple):
    """Label group, and the candidates below it.

    Args:
        name: Description of the difficulty.
        members: ``(members,)`` scores of the group, exact in float32.
        below: ``(below,)`` scores of all candidates below it, exact in float32.
    """

    name: str
    members: Float[np.ndarray, " members"]
    below: Float[np.ndarray, " below"]


def hard_cases() -> list[Case]:
    """Return label groups that are hard on a quadrature rule: large, at the edges of the range, split, or all equal.

    The hardest known are large groups of equal scores a few nats above all below together: from the left the integrand
    rises like a cliff, and then it stays flat.
    """
    rng = np.random.default_rng(0)
    cases = []
    for size in CASE_SIZES:
        for reach in CASE_RANGES:
            low, high = np.full(size, -reach), np.full(size, reach)
            for name, members, below in (
                ("uniform", rng.uniform(-reach, reach, size), 10),
                ("uniform, 1 below", rng.uniform(-reach, reach, size), 1),
                ("all lowest", low, 10),
                ("all highest", high, 10),
                ("half lowest, half highest", np.where(np.arange(size) % 2 == 0, low, high), 10),
            ):
                scores_below = rng.uniform(-reach, reach, below)
                cases.append(_rounded(f"{size} of ±{reach:.0f}, {name}", members, scores_below))
        for offset in CASE_OFFSETS:
            scores_below = rng.normal(size=10)
            members = np.full(size, logsumexp(scores_below) + offset)
            cases.append(_rounded(f"{size} equal, {offset:+d} nats", members, scores_below))
    return cases


def padded(cases: list[Case]) -> tuple[Float[Tensor, "B L"], Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
    """Return scores, labels and mask of all cases as one batch, the group first in each list."""
    lengths = [len(case.members) + len(case.below) for case in cases]
    scores = torch.zeros(len(cases), max(lengths), dtype=torch.float64)
    labels, mask = torch.zeros(scores.shape, dtype=torch.int64), torch.zeros(scores.shape, dtype=torch.bool)
    for n, (case, length) in enumerate(zip(cases, lengths, strict=True)):
        scores[n, :length] = torch.from_numpy(np.concatenate([case.members, case.below]))
        labels[n, : len(case.members)] = 1
        mask[n, :length] = True
    return scores, labels, mask


def _rounded(name: str, members: Float[np.ndarray, " members"], below: Float[np.ndarray, " below"]) -> Case:
    """Round scores to what both precisions hold exactly, so that only the rule is judged."""
    return Case(name, *(scores.astype(np.float32).astype(np.float64) for scores in (members, below)))


class Truth(NamedTuple):
    """Log-probability of a label group, and its gradient, in eighty digits.

    Args:
        log_mass: log A, the log-probability.
        gradient: ``(members + below,)`` derivative of log A in the scores, the group's members first.
    """

    log_mass: float
    gradient: Float[np.ndarray, " candidates"]


def group_truth(members: Float[np.ndarray, " members"], below: Float[np.ndarray, " below"]) -> Truth:
    """Return ``log P(all members are drawn before any candidate below)`` and its gradient.

    The integral of :mod:`listwright.training.losses.exact_plackett_luce` by another rule: the trapezoidal one over all
    of log-time, in mpmath's arithmetic. The integrand is entire and falls off exponentially on the left and twice
    exponentially on the right, so each halving of the step about doubles the number of correct digits.

    Args:
        members: ``(members,)`` scores of the group; equal ones are computed once.
        below: ``(below,)`` scores of all candidates below it.
    """
    distinct, where, counts = np.unique(members, return_inverse=True, return_counts=True)
    with mp.workdps(DIGITS):
        weights_below = [mp.exp(mpf(float(score))) for score in below]
        total_below = mp.fsum(weights_below)
        weights = [mp.exp(mpf(float(score))) / total_below for score in distinct]
        mass, pulls = _converged(weights, counts.tolist())
        log_mass = float(mp.log(mass))
        pull = np.array([float(p / mass) for p in pulls])[where]
        share = np.array([float(weight / total_below) for weight in weights_below])
    return Truth(log_mass, np.concatenate([pull, -share * pull.sum()]))


def _converged(weights: list[mpf], counts: list[int]) -> tuple[mpf, list[mpf]]:
    step = mpf(1) / 2
    mass, pulls = _sum(weights, counts, step, mpf(0))
    while True:
        between, pulls_between = _sum(weights, counts, step, step / 2)
        mass, before = (mass + between) / 2, mass
        pulls = [(old + new) / 2 for old, new in zip(pulls, pulls_between, strict=True)]
        step /= 2
        if abs(mass - before) <= AGREED * mass:
            return mass, pulls


def _sum(weights: list[mpf], counts: list[int], step: mpf, start: mpf) -> tuple[mpf, list[mpf]]:
    """Sum by the trapezoidal rule on ``start + n step``: upwards, then downwards from 0, the mode bracket's left end.

    The integrand is log-concave: once it has fallen to next to nothing it does not come back.
    """
    mass, largest = mpf(0), mpf(0)
    pulls = [mpf(0)] * len(weights)
    for y, move in ((start, step), (start - step, -step)):
        while True:
            term, phi = _integrand(weights, counts, mp.exp(y))
            largest = max(largest, term)
            if term < NEGLIGIBLE * largest:
                break
            mass += term
            pulls = [pull + term * p for pull, p in zip(pulls, phi, strict=True)]
            y += move  # noqa: PLW2901 the walk's own position
    return mass * step, [pull * step for pull in pulls]


def _integrand(weights: list[mpf], counts: list[int], time: mpf) -> tuple[mpf, list[mpf]]:
    """Return ``t e^-t prod(1 - e^-(w_i t))``, and ``phi`` of each distinct member."""
    term = time * mp.exp(-time)
    phi = []
    for weight, count in zip(weights, counts, strict=True):
        s = weight * time
        left = mp.exp(-s)
        share = 1 - left
        term *= share**count
        phi.append(s * left / share)
    return term, phi


def methods() -> list[dict[str, object]]:
    """Measure error and seconds of every way for groups of growing size.

    There are as many candidates below as in the group.
    """
    rows: list[dict[str, object]] = []
    for size in SIZES:
        errors: dict[str, list[float]] = {}
        seconds: dict[str, list[float]] = {}
        log_p = []
        for seed in SEEDS:
            rng = np.random.default_rng([seed, size])
            scores = rng.normal(0.0, SPREAD, 2 * size)
            labels = np.repeat([1, 0], size)
            truth = group_truth(scores[:size], scores[size:]).log_mass
            log_p.append(truth)
            for way, value in _ways(scores, labels, rng).items():
                started = time.perf_counter()
                errors.setdefault(way, []).append(value() - truth)
                seconds.setdefault(way, []).append(time.perf_counter() - started)
                if way in QUICK:  # so short that the first call is mostly a cold cache
                    seconds[way] += [_seconds(value) for _ in range(3)]
        rows.append(
            {
                "group": size,
                "log_p": [round(value, 3) for value in log_p],
                "largest_error": {way: _digits(float(np.abs(values).max())) for way, values in errors.items()},
                "mean_error": {way: _digits(float(np.mean(values))) for way, values in errors.items()},
                "seconds": {way: _digits(min(values)) for way, values in seconds.items()},
            }
        )
        print(size, rows[-1]["largest_error"], rows[-1]["seconds"], flush=True)
    return rows


def _ways(
    scores: Float[np.ndarray, " L"], labels: Float[np.ndarray, " L"], rng: np.random.Generator
) -> dict[str, Callable[[], float]]:
    size = len(scores) // 2
    ways: dict[str, Callable[[], float]] = {
        "exact_32": lambda: exact(scores, labels, 32),
        "exact_64": lambda: exact(scores, labels, 64),
        "sampling_1000": lambda: by_sampling(scores, labels, 1000, rng),
        "sampling_10000": lambda: by_sampling(scores, labels, 10_000, rng),
        "efron": lambda: efron(scores[:size], scores[size:]),
        "breslow": lambda: breslow(scores[:size], scores[size:]),
    }
    if size <= LARGEST_BY_SUBSETS:
        ways["subsets"] = lambda: by_subsets(scores, labels)
    return ways


def _seconds(way: Callable[[], object]) -> float:
    started = time.perf_counter()
    way()
    return time.perf_counter() - started


def accuracy() -> dict[str, object]:
    """Measure the largest errors of a group's log A and gradient over the hard cases, by nodes and precision."""
    cases = hard_cases()
    truths = [group_truth(case.members, case.below) for case in cases]
    rows = []
    for nodes, depth in DEPTHS.items():
        row: dict[str, object] = {"nodes": nodes, "depth": depth}
        for dtype in (torch.float64, torch.float32):
            row[str(dtype).removeprefix("torch.")] = _errors(cases, truths, nodes, dtype)
        rows.append(row)
        print(row, flush=True)
    return {"cases": len(cases), "largest_group": max(len(case.members) for case in cases), "rows": rows}


def _errors(cases: list[Case], truths: list[Truth], nodes: int, dtype: torch.dtype) -> dict[str, object]:
    """Return absolute errors, and errors relative to a truth above 1: rounding grows with it."""
    scores, labels, mask = padded(cases)
    result = evaluate(scores.to(dtype), LabelGroups.of(labels, mask), nodes=nodes)
    expected = torch.zeros(scores.shape, dtype=torch.float64)
    for n, truth in enumerate(truths):
        expected[n, : len(truth.gradient)] = torch.from_numpy(truth.gradient)
    log_mass = torch.tensor([truth.log_mass for truth in truths], dtype=torch.float64)
    value = (result.value - log_mass).abs()
    gradient = (result.gradient - expected).abs().amax(dim=1)
    return {
        "log_a": _digits(value.max().item()),
        "log_a_relative": _digits((value / log_mass.abs().clamp_min(1.0)).max().item()),
        "log_a_hardest": cases[int(value.argmax())].name,
        "gradient": _digits(gradient.max().item()),
        "gradient_relative": _digits((gradient / expected.abs().amax(dim=1).clamp_min(1.0)).max().item()),
        "gradient_hardest": cases[int(gradient.argmax())].name,
    }


def speed(rounds: int) -> dict[str, object]:
    """Time value and gradient of all components, as an evaluation of EM's M-step needs them, and doubling."""
    shapes = {
        "base": (QUERIES, CANDIDATES, COMPONENTS),
        "queries": (2 * QUERIES, CANDIDATES, COMPONENTS),
        "candidates": (QUERIES, 2 * CANDIDATES, COMPONENTS),
        "components": (QUERIES, CANDIDATES, 2 * COMPONENTS),
    }
    steps = {name: _all_components(*shape) for name, shape in shapes.items()}
    steps["windows"], steps["evaluate"] = _windows_and_evaluate()
    steps["autograd_float32"] = _autograd()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):  # the steps take turns
        for name, step in steps.items():
            step()  # EM repeats one shape: the memory allocator has settled on it
            times[name].append(_seconds(step))
    best = {name: min(values) for name, values in times.items()}
    return {
        "queries": QUERIES,
        "candidates": CANDIDATES,
        "features": FEATURES,
        "components": COMPONENTS,
        "nodes": 32,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "seconds": {name: _digits(value) for name, value in best.items()},
        "ratio_when_doubled": {
            name: round(best[name] / best["base"], 2) for name in ("queries", "candidates", "components")
        },
        "share_of_windows": round(best["windows"] / best["evaluate"], 2),
    }


def _all_components(queries: int, candidates: int, components: int) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(queries * candidates, FEATURES, dtype=torch.float64, generator=generator)
    w = 0.1 * torch.randn(FEATURES, components, dtype=torch.float64, generator=generator)
    groups = LabelGroups.of(torch.randint(0, 5, (queries, candidates), generator=generator))

    def step() -> object:
        scores = x @ w
        by_row = torch.empty_like(scores)
        for k in range(components):
            result = evaluate(scores[:, k].reshape(queries, candidates), groups)
            by_row[:, k] = result.gradient.flatten()
        return x.T @ by_row

    return step


def _windows_and_evaluate() -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the search for the windows alone, and the whole of which it is a part."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(QUERIES, CANDIDATES, dtype=torch.float64, generator=generator)
    groups = LabelGroups.of(torch.randint(0, 5, scores.shape, generator=generator))
    a = scores.flatten()[groups.members] - groups.log_weight_below(scores)[groups.group_of]
    return lambda: exact_plackett_luce._windows(a, groups, DEPTHS[32]), lambda: evaluate(scores, groups)


def _autograd() -> Callable[[], object]:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(80, 120, generator=generator, requires_grad=True)
    labels = torch.randint(0, 5, scores.shape, generator=generator)

    def step() -> object:
        scores.grad = None
        torch.autograd.backward(log_likelihood(scores, labels).sum())
        return scores.grad

    return step


def concavity() -> dict[str, object]:
    """Count the midpoints of two score vectors that lie below their chord, which no concave function allows."""
    generator = torch.Generator().manual_seed(3)
    first, second = (2 * torch.randn(MIDPOINTS, 8, dtype=torch.float64, generator=generator) for _ in range(2))
    labels = torch.randint(0, 3, first.shape, generator=generator)

    def violations(value: Callable[[torch.Tensor], torch.Tensor]) -> int:
        middle = value((first + second) / 2)
        return int((middle < (value(first) + value(second)) / 2 - 1e-6).sum())

    return {
        "midpoints": MIDPOINTS,
        "candidates": 8,
        "labels": 3,
        "full_event": violations(lambda scores: log_likelihood(scores, labels)),
        "top_3": violations(lambda scores: log_likelihood_of_top(scores, labels, top=3)),
    }


def draw() -> Path:
    """Draw error and time of every way against the size of the label group."""
    rows = json.loads((machine.RESULTS / "plackett_luce.json").read_text(encoding="utf-8"))["methods"]
    with page(FIGURE, 9.0, 4.4, salt="plackett_luce") as figure:
        error, seconds = figure.subplots(1, 2)
        for way, (name, colour, dashes) in LINES.items():
            _line(error, rows, "largest_error", way, label=name, color=colour, linestyle=dashes)
            if way in TIMED:
                _line(seconds, rows, "seconds", way, color=colour, linestyle=dashes)
        error.set_title("Largest error of log A, in nats")
        seconds.set_title("Seconds for one list")
        for axes in (error, seconds):
            axes.set(xscale="log", yscale="log", xlabel="candidates in the label group")
            plain(axes)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, labelcolor=GREY)
    return FIGURE


def _line(axes: Any, rows: list[dict[str, Any]], measure: str, way: str, **style: str) -> None:
    points = [(row["group"], max(row[measure][way], 1e-16)) for row in rows if way in row[measure]]
    axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1.6, **style)


def _digits(value: float) -> float:
    """Round to three significant digits: more of a measured figure says nothing."""
    return float(f"{value:.2e}")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.plackett_luce", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of the section speed; the fastest counts")
    parser.add_argument("--figure", action="store_true", help="only draw the figure again, from the committed results")
    options = parser.parse_args()
    if not options.figure:
        torch.set_num_threads(1)
        measured = speed(options.rounds)
        print(measured, flush=True)
        result = {
            "seeds": list(SEEDS),
            "spread": SPREAD,
            "methods": methods(),
            "accuracy": accuracy(),
            "speed": measured,
            "concavity": concavity(),
        }
        print(
            machine.save(
                "plackett_luce", f"python -m listwright_lab.science.plackett_luce --rounds {options.rounds}", result
            )
        )
    print(draw())
    return 0


if __name__ == "__main__":
    sys.exit(main())
