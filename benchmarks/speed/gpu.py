"""``python -m benchmarks.speed.gpu``: an epoch on the GPU, on the same machine's CPU, and in DistributedDataParallel.

The lists, models and batches are those of :mod:`benchmarks.speed.epoch`. The ranks are the workers of ``--on ray
--workers N``, one for each GPU, without Ray. Weights and the optimiser's state come and go with each epoch.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.multiprocessing.spawn import spawn

from benchmarks.speed.epoch import FEATURES, MODELS, QUERIES, measure, planted
from listwright.ranking.errors import ListwrightError
from listwright.training.networks.ranker import Ranker
from listwright.training.pipeline.run import usable_device
from listwright.training.recipe.model import QilcmSpec
from listwright.training.second_stage.batching import Lists
from listwright.training.second_stage.loop import NetworkWorker, state_of
from listwright_lab import machine

WEIGHT = 1e-8
"""Weight of the confusion loss, which is computed and changes nothing."""


def alone(epochs: int, device: str) -> dict[str, dict[str, float]]:
    """Return the seconds of each model's epoch: on the CPU, and on the device in both precisions."""
    data = planted(np.random.default_rng(0))
    times = {}
    for name, spec in MODELS.items():
        half = spec.model_copy(update={"precision": "bfloat16"})
        ways = {"cpu": (spec, "cpu"), "float32": (spec, device), "bfloat16": (half, device)}
        times[name] = {way: measure(spec, data, epochs, where)["seconds"] for way, (spec, where) in ways.items()}
        print(f"{name:>30}  " + ", ".join(f"{way} {seconds:.3f} s" for way, seconds in times[name].items()))
    return times


def work(rank: int, size: int, port: int, epochs: int, device: str, answer: str) -> None:
    """Run one rank; rank 0 writes the seconds of each epoch, the first one left out."""
    torch.set_num_threads(1)  # as Ray's workers have
    if device.startswith("cuda"):
        torch.cuda.set_device(rank)
    data, spec = planted(np.random.default_rng(0)), QilcmSpec(confusion_pairs="all")
    torch.manual_seed(0)
    lists = Lists(
        data, np.random.default_rng(1).normal(size=data.rows), cutoff=spec.cutoff, append_score=spec.first_stage_score
    )
    model = Ranker(data.schema, lists.matrix, spec, FEATURES)
    weights, state = state_of(model), torch.optim.Adam(model.parameters()).state_dict()
    own = lists.share(np.arange(rank, len(lists) // size * size, size))
    worker = NetworkWorker(model, own, spec, WEIGHT, 0, device)
    worker.join(rank, [("127.0.0.1", port)] * size)
    seconds = []
    for number in range(1, epochs + 2):
        begun = time.perf_counter()
        worker.epoch(number, weights, state)
        seconds.append(time.perf_counter() - begun)
    torch.distributed.destroy_process_group()
    if rank == 0:
        Path(answer).write_text(" ".join(str(value) for value in seconds[1:]), encoding="utf-8")


def data_parallel(size: int, epochs: int, device: str) -> float:
    """Return the seconds of the fastest epoch of QILCM on that many ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "seconds"
        spawn(work, (size, port, epochs, device, str(answer)), nprocs=size)  # type: ignore[no-untyped-call]
        return round(min(float(value) for value in answer.read_text(encoding="utf-8").split()), 4)


def main() -> int:
    """Run the command line; write ``benchmarks/results/gpu.json``, unless a CPU stands in for the GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.gpu", description=__doc__)
    parser.add_argument("--epochs", type=int, default=5, help="timed epochs of each; the fastest counts (default: 5)")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try it and write nothing (default: cuda)")
    options = parser.parse_args()
    try:
        device = usable_device(options.device)
    except ListwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    on_gpu = device.startswith("cuda")
    models = alone(options.epochs, device)
    largest = torch.cuda.device_count() if on_gpu else 2
    sizes = [size for size in (1, 2, 4, 8) if size <= largest]
    ranks = {str(size): data_parallel(size, options.epochs, "cuda" if on_gpu else "cpu") for size in sizes}
    print(f"{'qilcm, data-parallel':>30}  " + ", ".join(f"{size} ranks {value:.3f} s" for size, value in ranks.items()))
    if not on_gpu:
        return 0
    result: dict[str, object] = {
        "gpu": torch.cuda.get_device_name(),
        "queries": QUERIES,
        "batches": -(-QUERIES // QilcmSpec().batch_size),
        "threads": torch.get_num_threads(),
        "seconds": models,
        "ranks": ranks,
    }
    print(machine.save("gpu", f"python -m benchmarks.speed.gpu --epochs {options.epochs}", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
