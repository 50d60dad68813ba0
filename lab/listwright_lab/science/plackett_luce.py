"""``python -m listwright_lab.science.plackett_luce``: what the exact likelihood is worth, and what it costs.

Writes ``benchmarks/results/plackett_luce.json`` and the figure of ``docs/exact-plackett-luce.md``, in one thread. Each
time is the fastest of several rounds.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import logsumexp

from listwright.training.losses import exact_plackett_luce
from listwright.training.losses.exact_plackett_luce import (
    DEPTHS,
    LabelGroups,
    evaluate,
    log_likelihood,
    log_likelihood_of_top,
)
from listwright_lab import machine
from listwright_lab.science import plackett_luce_figure, plackett_luce_truth
from listwright_lab.science.plackett_luce_cases import Case, hard_cases, padded
from listwright_lab.science.plackett_luce_paper import by_sampling, by_subsets

SIZES = (2, 4, 8, 12, 16, 18, 20, 50, 100, 200, 500, 1000)
SEEDS = range(5)
SPREAD = 2.0
"""Standard deviation of the scores in the section ``methods``."""

LARGEST_BY_SUBSETS = 20
QUICK = ("exact_32", "exact_64", "efron", "breslow")
FEATURES, COMPONENTS, QUERIES, CANDIDATES = 136, 5, 1000, 100
MIDPOINTS = 1000


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
            truth = plackett_luce_truth.group(scores[:size], scores[size:]).log_mass
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
    truths = [plackett_luce_truth.group(case.members, case.below) for case in cases]
    rows = []
    for nodes, depth in DEPTHS.items():
        row: dict[str, object] = {"nodes": nodes, "depth": depth}
        for dtype in (torch.float64, torch.float32):
            row[str(dtype).removeprefix("torch.")] = _errors(cases, truths, nodes, dtype)
        rows.append(row)
        print(row, flush=True)
    return {"cases": len(cases), "largest_group": max(len(case.members) for case in cases), "rows": rows}


def _errors(
    cases: list[Case], truths: list[plackett_luce_truth.Truth], nodes: int, dtype: torch.dtype
) -> dict[str, object]:
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
    print(plackett_luce_figure.draw())
    return 0


if __name__ == "__main__":
    sys.exit(main())
