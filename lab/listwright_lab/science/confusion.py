"""``python -m listwright_lab.science.confusion``: what the query confusion loss adds to a training step of QILCM.

One batch of 80 lists of 100 candidates, 136 features and the first stage's score: forward, loss, backward, Adam.
The routes take turns, so that whatever else the machine does meets all of them; the fastest round of each counts.
The naive route is so slow that one step of it has to do.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from listwright.training.losses import att_rank
from listwright.training.losses.confusion import confusion_loss
from listwright.training.networks.qilcm import QilcmNetwork
from listwright.training.recipe.model import QilcmSpec
from listwright_lab import machine

LISTS, LENGTH, INPUTS = 80, 100, 137
CONFUSION_WEIGHT = 1e-8
"""Weight of the confusion loss; its size does not change the seconds."""

Confusion = Callable[[Tensor, Tensor, Tensor], Tensor]


def naive(normalised: Tensor, mask: Tensor, _gain: Tensor) -> Tensor:
    """Compute eqs. (13) and (14) as printed, with autograd through every distance."""
    total = normalised.new_zeros(())
    for first in range(len(normalised)):
        for second in range(first + 1, len(normalised)):
            distances = torch.cdist(normalised[first][mask[first]], normalised[second][mask[second]]).square()
            total = total + distances.min(dim=1).values.sum() + distances.min(dim=0).values.sum()
    return total * (2.0 / len(normalised) ** 2)


def routes() -> dict[str, Confusion | None]:
    """Return the ways to treat eq. (13) in a step; None leaves it out."""
    pairs = LISTS * (LISTS - 1) // 2
    rng = np.random.default_rng(0)
    return {
        "without": None,
        "all_pairs": lambda h, mask, gain: confusion_loss(h, mask, gain=gain),
        "quarter_of_pairs": lambda h, mask, gain: confusion_loss(h, mask, gain=gain, pairs=pairs // 4, rng=rng),
    }


def measure(rounds: int, *, with_naive: bool, device: str) -> tuple[dict[str, float], float]:
    """Measure the seconds of each route's fastest step, and the process's GiB before the naive one, with libraries."""
    torch.manual_seed(0)
    network = QilcmNetwork(INPUTS, QilcmSpec()).to(device)
    optimizer = torch.optim.Adam(network.parameters())
    x = torch.rand(LISTS, LENGTH, INPUTS, device=device)
    labels = torch.randint(0, 5, (LISTS, LENGTH), device=device)
    mask = torch.ones(LISTS, LENGTH, dtype=torch.bool, device=device)

    def step(confusion: Confusion | None) -> float:
        started = time.perf_counter()
        optimizer.zero_grad()
        output = network(x, mask, None)
        loss = att_rank(output.logits, labels, mask)
        if confusion is not None:
            loss = loss + CONFUSION_WEIGHT * confusion(output.representation, mask, output.gain)
        torch.autograd.backward(loss)
        optimizer.step()
        loss.item()  # waits for a GPU
        return time.perf_counter() - started

    ways = routes()
    times = [[step(way) for way in ways.values()] for _ in range(rounds + 1)]
    seconds = dict(zip(ways, np.min(times[1:], axis=0).tolist(), strict=True))  # the first round warms up
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {**seconds, "naive": step(naive)} if with_naive else seconds, peak


def main() -> int:
    """Run the command line; write ``benchmarks/results/confusion.json``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.confusion", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds; the fastest counts")
    parser.add_argument(
        "--naive", action="store_true", help="the route as printed in the paper, too (a minute or more)"
    )
    parser.add_argument("--device", default="cpu", help="torch device")
    options = parser.parse_args()
    seconds, peak = measure(options.rounds, with_naive=options.naive, device=options.device)
    ratios = {way: round(value / seconds["without"], 2) for way, value in seconds.items()}
    for way, value in seconds.items():
        print(f"{way:>17}  {1e3 * value:8.1f} ms  {ratios[way]:6.2f} x")
    print(f"{'peak memory':>17}  {peak:8.2f} GiB")
    result = {
        "lists": LISTS,
        "candidates": LENGTH,
        "inputs": INPUTS,
        "representation_width": QilcmNetwork(INPUTS, QilcmSpec()).width,
        "threads": torch.get_num_threads(),
        "device": options.device,
        "rounds": options.rounds,
        "seconds_per_step": {way: round(value, 4) for way, value in seconds.items()},
        "ratio_to_step_without": ratios,
        "peak_memory_gib": round(peak, 2),
    }
    flags = f" --rounds {options.rounds}{' --naive' if options.naive else ''}"
    print(
        machine.save(
            "confusion", f"python -m listwright_lab.science.confusion{flags} --device {options.device}", result
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
