"""Epochs of a network on several workers: torch's DistributedDataParallel, whole lists per worker.

Each worker holds its own lists and takes B / W of them at a time. The gradient is the mean over workers, so the ranking
loss is that of B lists. The confusion loss compares lists of one worker only. What is random in an epoch depends on
seed, epoch and rank, so an epoch that is repeated after a loss ends with the same weights.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from listwright.ranking.errors import RecipeError
from listwright.training.cluster import Group, Workers, packed
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import NetworkSpec
from listwright.training.second_stage.batching import Lists
from listwright.training.second_stage.loop import Begin, Epoch, run_epoch, state_of

TIMEOUT = timedelta(minutes=5)
"""How long workers wait for each other in a step."""

Share = tuple[Epoch, dict[str, Tensor] | None, dict[str, Any] | None]
"""A worker's result of an epoch; the states come from rank 0, as all have the same."""


def on_workers(workers: Workers | None) -> Begin | None:
    """Return how :func:`listwright.training.second_stage.loop.fit_network` runs epochs on workers, if there are any."""
    if workers is None:
        return None

    def begin(model: Ranker, lists: Lists, spec: NetworkSpec, conf_weight: float, seed: int) -> ParallelEpochs:
        return ParallelEpochs(workers, model, lists, spec, conf_weight, seed)

    return begin


class ParallelEpochs:
    """The command's side: it holds weights and checkpoints, and validates; the workers run the optimiser.

    Args:
        workers: W of them.
        model: as it begins, with the scaling of all lists.
        lists: N training lists. Each worker gets N // W; the last N % W are left out.
        spec, conf_weight, seed: of the fit.

    Raises:
        RecipeError: if there are fewer lists, or lists of a batch, than workers.
    """

    def __init__(
        self, workers: Workers, model: Ranker, lists: Lists, spec: NetworkSpec, conf_weight: float, seed: int
    ) -> None:
        if min(len(lists), spec.batch_size) < workers.size:
            raise RecipeError(
                f"--workers {workers.size}: there are {len(lists)} training lists, {spec.batch_size} in a batch; "
                "take fewer workers"
            )
        device, each = workers.device, len(lists) // workers.size

        def work(rank: int) -> bytes:
            queries = np.arange(rank, each * workers.size, workers.size)
            return packed(NetworkWorker, model, lists.share(queries), spec, conf_weight, seed, device)

        self._group: Group = workers.group(work)

    def run(self, model: Ranker, optimizer: torch.optim.Optimizer, number: int) -> Epoch:
        """Run one epoch; see :meth:`listwright.training.second_stage.loop.EpochRunner.run`."""
        shares: list[Share] = self._group.step("epoch", number, state_of(model), optimizer.state_dict())
        epoch, weights, state = shares[0]
        assert weights is not None
        assert state is not None
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
        means = {
            name: float(np.mean([getattr(share[0], name) for share in shares]))
            for name in ("rank_loss", "confusion_loss")
        }
        return replace(epoch, **means)  # type: ignore[arg-type]

    def end(self) -> None:
        """Release the workers."""
        self._group.release()


class NetworkWorker:
    """A worker's side.

    Args:
        model: its copy.
        lists: its own.
        spec, conf_weight, seed: of the fit.
        device: ``cuda`` or ``cpu``.
    """

    def __init__(
        self, model: Ranker, lists: Lists, spec: NetworkSpec, conf_weight: float, seed: int, device: str
    ) -> None:
        self._lists, self._spec, self._conf_weight, self._seed = lists.on(device), spec, conf_weight, seed
        self._model = model.to(device)
        self._device = device

    def join(self, rank: int, addresses: list[tuple[str, int]]) -> None:
        """Connect to the other workers at the address of rank 0."""
        host, port = addresses[0]
        self._rank, self._size = rank, len(addresses)
        if distributed.is_initialized():  # by a fit before
            distributed.destroy_process_group()
        distributed.init_process_group(
            "nccl" if self._device.startswith("cuda") else "gloo",
            init_method=f"tcp://{host}:{port}",
            rank=rank,
            world_size=self._size,
            timeout=TIMEOUT,
        )
        # which parameters have a gradient depends on the model and its losses
        self._parallel = DistributedDataParallel(self._model, find_unused_parameters=True)

    def epoch(self, number: int, weights: dict[str, Tensor], state: dict[str, Any]) -> Share:
        """Run one pass over the worker's own lists, from these weights and this state of the optimiser."""
        self._model.load_state_dict(weights)
        optimizer = torch.optim.Adam(self._model.parameters())
        optimizer.load_state_dict(state)
        epoch = run_epoch(
            self._parallel,
            optimizer,
            self._lists,
            self._spec,
            self._conf_weight,
            draws=(self._seed, self._rank),
            number=number,
            size=-(-self._spec.batch_size // self._size),
        )
        first = self._rank == 0
        return epoch, state_of(self._model) if first else None, optimizer.state_dict() if first else None
