"""``python -m listwright_lab.science.srm``: what SRM costs, and how often each kind of start finds the best.

Costs are those of 1,000 queries of 100 candidates and 136 features with K = 5, with one thread and with two: value and
gradient of all specialists, and whole EM iterations: with soft responsibilities (every specialist learns from every
query: the dearest there is) and with hard ones (each learns from its own). Growth is the ratio of the seconds when
queries, candidates or K double. The fastest round counts, because other programs use the machine too; sizes take turns.
Seconds on the wall grow with what else runs. So do the CPU seconds of two threads that wait for each other, but hardly
those of one; ratios and starts are taken with one.

Starts are compared on small planted data sets: even starts of :func:`listwright.training.specialists.srm.fit_srm` are
random weights, odd ones are clusters of queries; each runs until it stops, 10 iterations at most. A start counts as
reaching the best where its penalised log-likelihood comes within 1e-3 (relative) of the highest of all starts of that
data set.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from listwright.training.data.synthetic.planted import generate
from listwright.training.recipe.config import Srm as SrmSpec
from listwright.training.recipe.data import SyntheticData
from listwright.training.specialists.em import Mixture
from listwright.training.specialists.lists import PaddedLists
from listwright.training.specialists.rankers import LinearRanker
from listwright.training.specialists.srm import fit_srm
from listwright_lab import machine

QUERIES, CANDIDATES, FEATURES, SPECIALISTS = 1_000, 100, 136, 5
SIGMA, ALPHA = 0.1, 1.01
GROWTH_QUERIES = 500
"""Half the queries, for ratios: the double is the size above."""

STARTS = 2
"""Number of starts of each kind on a data set."""

REACHED = 1e-3


def lists(queries: int, candidates: int, *, seed: int = 0) -> PaddedLists:
    """Return queries of :data:`SPECIALISTS` planted groups, labels 0 to 4 by rank, about as many of each as in MSLR."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(queries, candidates, FEATURES))
    w = rng.normal(size=(SPECIALISTS, FEATURES)) / FEATURES**0.5
    scores = np.einsum("qcf,qf->qc", x, w[np.arange(queries) % SPECIALISTS]) + 0.3 * rng.gumbel(size=x.shape[:2])
    share_below = (scores.argsort(axis=1).argsort(axis=1) + 0.5) / candidates
    labels = np.searchsorted([0.52, 0.84, 0.97, 0.99], share_below).astype(np.float64)
    rows = torch.from_numpy(x.reshape(-1, FEATURES))
    return PaddedLists.of(rows, torch.from_numpy(labels.ravel()), torch.full((queries,), candidates))


def soft(data: PaddedLists, count: int) -> Mixture:
    """Return an untrained mixture: random weights, responsibilities of about 1 / K."""
    rng = np.random.default_rng(1)
    rankers = [LinearRanker(FEATURES, SIGMA) for _ in range(count)]
    for ranker in rankers:
        ranker.restore({"w": torch.as_tensor(rng.normal(0.0, 0.01, FEATURES))})
    shares = torch.as_tensor(rng.dirichlet(np.full(count, 20.0), len(data)))
    return Mixture(data, list(rankers), shares, alpha=ALPHA, seed=(0,))


def values_and_gradients(data: PaddedLists, weights: list[Float[Tensor, " P"]]) -> None:
    """Compute the log-likelihood of every list and its gradient in w, for every specialist."""
    for w in weights:
        likelihood = data.likelihood(data.x @ w)
        _ = likelihood.value.sum(), data.x.T @ likelihood.gradient[data.mask]


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def costs(threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return wall and CPU seconds of the fastest round."""
    torch.set_num_threads(threads)
    data = lists(QUERIES, CANDIDATES)
    weights = [ranker.state()["w"] for ranker in soft(data, SPECIALISTS).rankers]
    sure = nn.functional.one_hot(torch.arange(QUERIES) % SPECIALISTS, SPECIALISTS).double()
    times: dict[str, list[tuple[float, float]]] = {}

    def timed(what: str, work: Callable[[], object]) -> None:
        cpu = time.process_time()
        wall = seconds(work)
        times.setdefault(what, []).append((wall, time.process_time() - cpu))

    for _ in range(rounds):
        for _ in range(8):
            timed("value_and_gradient_of_all_specialists", lambda: values_and_gradients(data, weights))
        for kind, shares in (("soft", None), ("hard", sure)):
            mixture = soft(data, SPECIALISTS)
            mixture.shares = mixture.shares if shares is None else shares
            timed(f"em_iteration_{kind}_first", lambda mixture=mixture: list(mixture.iterate(1)))  # type: ignore[misc]
            timed(f"em_iteration_{kind}_second", lambda mixture=mixture: list(mixture.iterate(2)))  # type: ignore[misc]
    fastest = {what: np.min(rows, axis=0).tolist() for what, rows in times.items()}
    return {what: {"wall": round(wall, 2), "cpu": round(cpu, 2)} for what, (wall, cpu) in fastest.items()}


def growth(rounds: int) -> dict[str, float]:
    """Return the seconds with twice as much over those without, of value and gradient of all specialists."""
    sizes = {
        "half": (GROWTH_QUERIES, CANDIDATES, SPECIALISTS),
        "queries": (2 * GROWTH_QUERIES, CANDIDATES, SPECIALISTS),
        "candidates": (GROWTH_QUERIES, 2 * CANDIDATES, SPECIALISTS),
        "specialists": (GROWTH_QUERIES, CANDIDATES, 2 * SPECIALISTS),
    }
    tasks = {what: (lists(n, length), [torch.zeros(FEATURES).double()] * k) for what, (n, length, k) in sizes.items()}
    times = [[seconds(lambda task=task: values_and_gradients(*task)) for task in tasks.values()] for _ in range(rounds)]  # type: ignore[misc]
    fastest = dict(zip(tasks, np.min(times, axis=0).tolist(), strict=True))
    return {what: round(fastest[what] / fastest["half"], 2) for what in sizes if what != "half"}


def starts(sets: int) -> dict[str, object]:
    """Return the share of starts, and of sets, that reach the best objective of the data set, by kind of start."""
    reached: dict[str, list[list[bool]]] = {"random_weights": [], "clusters": []}
    spec = SrmSpec(specialists=4, sigma=1.0, restarts=2 * STARTS, short_run=10, max_iterations=10)
    for seed in range(sets):
        data, _ = generate(
            SyntheticData(
                queries=60, min_length=5, max_length=15, numeric=8, categorical=0, groups=4, shift=0.0, noise=1.0
            ),
            np.random.default_rng(seed),
        )
        objectives = np.array(fit_srm(spec, data, seed=seed).starts)
        near = objectives >= objectives.max() - REACHED * abs(objectives.max())
        reached["random_weights"].append(near[::2].tolist())
        reached["clusters"].append(near[1::2].tolist())
    return {
        "data_sets": sets,
        "planted_groups": 4,
        "starts_of_each_kind": STARTS,
        "share_of_starts_that_reach_the_best": {kind: round(float(np.mean(v)), 3) for kind, v in reached.items()},
        "data_sets_where_one_does": {kind: int(np.any(v, axis=1).sum()) for kind, v in reached.items()},
    }


def main() -> int:
    """Run the command line; write ``benchmarks/results/srm.json``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.srm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="rounds; the fastest counts")
    parser.add_argument("--sets", type=int, default=12, help="planted data sets for the comparison of starts")
    options = parser.parse_args()
    measured: dict[str, object] = {}
    for name, work in (
        ("seconds_with_2_threads", lambda: costs(2, options.rounds)),
        ("seconds_with_1_thread", lambda: costs(1, options.rounds)),
        ("ratio_when_doubled", lambda: growth(2 * options.rounds)),
        ("starts", lambda: starts(options.sets)),
    ):
        measured[name] = work()
        print(name, measured[name], flush=True)
    result: dict[str, object] = {
        "queries": QUERIES,
        "candidates": CANDIDATES,
        "features": FEATURES,
        "specialists": SPECIALISTS,
        "rounds": options.rounds,
        "counted": "the fastest round, on a machine that other programs use too",
        **measured,
    }
    flags = f"--rounds {options.rounds} --sets {options.sets}"
    print(machine.save("srm", f"python -m listwright_lab.science.srm {flags}", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
