"""``python -m benchmarks.speed.epoch``: what drawing and padding batches takes of an epoch, what sorting by length
saves, and from which size of a batch on all threads are faster than one. Set ``OMP_WAIT_POLICY=PASSIVE``, as commands
do.

Lists of 5 to 100 candidates, lengths spread evenly over magnitudes, 136 features and the first stage's score, batches
of 80. Every model takes one epoch to warm up, then the fastest of the timed ones counts. The cheaper the model, the
larger the share of the batches: the pointwise MLP is the worst case.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np
import torch
from jaxtyping import Int

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import MlpSpec, NetworkSpec, Qilcm2Spec, QilcmSpec
from listwright.training.second_stage import batching
from listwright.training.second_stage.batching import Lists
from listwright.training.second_stage.loop import loss_of
from listwright_lab import machine

QUERIES, SHORTEST, LONGEST, FEATURES = 1600, 5, 100, 136

MODELS: dict[str, NetworkSpec] = {
    "mlp": MlpSpec(),
    "qilcm without confusion": QilcmSpec(variant="V2"),
    "qilcm, a quarter of the pairs": QilcmSpec(confusion_pairs=790),
    "qilcm, one pair a list": QilcmSpec(),
    "qilcm": QilcmSpec(confusion_pairs="all"),
}

BY_THREADS: dict[str, NetworkSpec] = {"qilcm": QilcmSpec(), "qilcm2": Qilcm2Spec()}
LENGTHS = (5, 10, 20, 40, 100)
"""Lengths of lists of which one thread and all are compared; 16 features."""


def planted(rng: np.random.Generator) -> Dataset:
    """Return random numbers as data; only the time is measured."""
    return of_lengths(rng, np.exp(rng.uniform(np.log(SHORTEST), np.log(LONGEST + 1), QUERIES)).astype(int), FEATURES)


def of_lengths(rng: np.random.Generator, lengths: Int[np.ndarray, " N"], count: int) -> Dataset:
    """Return lists of some lengths with so many features."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Dataset(
        features=rng.random((int(offsets[-1]), count), dtype=np.float32),
        labels=rng.integers(0, 5, int(offsets[-1])).astype(np.int32),
        offsets=offsets,
        qids=tuple(f"q{n}" for n in range(len(lengths))),
        schema=FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(count))),
    )


def epoch(model: Ranker, lists: Lists, spec: NetworkSpec, optimizer: torch.optim.Optimizer) -> tuple[float, float]:
    """Return the seconds of one epoch: in drawing and padding batches, and in all."""
    rng = np.random.default_rng(0)
    weight = 1e-8 if isinstance(spec, QilcmSpec) and spec.confusion > 0.0 else 0.0
    begun, drawing = time.perf_counter(), 0.0
    batches = lists.batches(spec.batch_size, rng)
    while True:
        started = time.perf_counter()
        batch = next(batches, None)
        drawing += time.perf_counter() - started
        if batch is None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # steps are queued there
            return drawing, time.perf_counter() - begun
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(model, batch, spec, weight, rng)[0])
        optimizer.step()


def measure(spec: NetworkSpec, data: Dataset, epochs: int, device: str) -> dict[str, float]:
    """Return the fastest of some epochs of a model."""
    torch.manual_seed(0)
    scores = np.random.default_rng(1).normal(size=data.rows)
    lists = Lists(data, scores, cutoff=spec.cutoff, append_score=True, device=device)
    model = Ranker(data.schema, lists.matrix, spec, len(data.schema)).to(device).train()
    optimizer = torch.optim.Adam(model.parameters())
    times = [epoch(model, lists, spec, optimizer) for _ in range(epochs + 1)][1:]
    drawing, whole = min(times, key=lambda pair: pair[1])
    return {"seconds": round(whole, 4), "batches_seconds": round(drawing, 4), "share": round(drawing / whole, 4)}


def padding(data: Dataset, size: int) -> dict[str, float]:
    """Return padded over real candidates: sorted by length within buckets, as trained, and unsorted."""
    lists = Lists(data, np.zeros(data.rows), cutoff=LONGEST, append_score=False)
    rng = np.random.default_rng(0)
    sorted_by_length = sum(batch.mask.numel() for batch in lists.batches(size, rng))
    order = rng.permutation(len(lists))
    unsorted = sum(lists.batch(order[start : start + size]).mask.numel() for start in range(0, len(order), size))
    return {
        "buckets": round(sorted_by_length / data.rows, 3),
        "without": round(unsorted / data.rows, 3),
        "batches_per_bucket": batching.BUCKETS,
    }


def by_threads(name: str, length: int, epochs: int) -> dict[str, object]:
    """Return the seconds of an epoch over lists of one length by one thread and by all, taken in turns."""
    rng, spec, smallest = np.random.default_rng(0), BY_THREADS[name], batching.LARGE
    data = of_lengths(rng, np.full(max(400, 16_000 // length), length), 16)
    timings: dict[str, list[float]] = {"one": [], "all": []}
    for _ in range(epochs):
        for threads, batching.LARGE in (("one", data.rows), ("all", 0)):
            timings[threads].append(measure(spec, data, 1, "cpu")["seconds"])
    batching.LARGE = smallest
    seconds = {threads: min(values) for threads, values in timings.items()}
    ratio = round(seconds["all"] / seconds["one"], 2)
    return {"model": name, "length": length, "candidates": spec.batch_size * length, **seconds, "ratio": ratio}


def main() -> int:
    """Run the command line; write ``benchmarks/results/epoch.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.epoch", description=__doc__)
    parser.add_argument("--epochs", type=int, default=2, help="timed epochs of each model; the fastest counts")
    parser.add_argument("--device", default="cpu", help="torch device")
    options = parser.parse_args()
    data = planted(np.random.default_rng(0))
    models = {name: measure(spec, data, options.epochs, options.device) for name, spec in MODELS.items()}
    for name, figures in models.items():
        print(f"{name:>30}  epoch {figures['seconds']:7.3f} s, batches {100 * figures['share']:5.2f} %")
    padded = padding(data, 80)
    print(f"padded over real candidates: {padded['buckets']}, without buckets {padded['without']}")
    rows = [by_threads(name, length, options.epochs) for name in BY_THREADS for length in LENGTHS]
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    result: dict[str, object] = {
        "queries": QUERIES,
        "candidates": data.rows,
        "lengths": [SHORTEST, LONGEST],
        "features": FEATURES,
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "models": models,
        "padded_over_real_candidates": padded,
        "by_threads": rows,
    }
    command = f"python -m benchmarks.speed.epoch --epochs {options.epochs} --device {options.device}"
    print(machine.save("epoch", command, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
