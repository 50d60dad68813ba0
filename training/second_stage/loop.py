"""The training loop of every second stage: Adam, early stopping on validation NDCG, a checkpoint after every epoch.

Epochs run in this process, or on several workers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import RecipeError, ScoringError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.metrics import QueryNdcg
from listwright.ranking.order import sort_keys
from listwright.training.cluster import Group, Workers, pickle_call
from listwright.training.console.progress import NO_TASK, Task
from listwright.training.data.dataset import Dataset
from listwright.training.losses.confusion import confusion_loss, normalised_weight
from listwright.training.losses.listwise import ranking_loss
from listwright.training.networks.qilcm import QilcmNetwork
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import NetworkSpec, Qilcm2Spec, QilcmSpec
from listwright.training.search import GoesOn, StepReport
from listwright.training.second_stage.batching import Batch, Lists, lists_for

VALIDATION_BATCH = 256

_TIMED = 8
"""Batches that the time of an epoch is estimated from."""

VALIDATED = 1.3
"""An epoch with its validation, as a multiple of its training."""

TIMEOUT = timedelta(minutes=5)
"""Time for which workers wait for each other in a step."""


@dataclass(frozen=True, slots=True)
class FittedNetwork:
    """A fitted second stage with the weights of its best epoch.

    Args:
        module: Module in eval mode, on the CPU.
        spec: Second stage of the recipe.
        history: Results of every epoch.
        best_epoch: Number of the epoch whose weights these are; 0 where a model that starts from the first stage's
            order found none that is better.
        equivalent_lambda: Lambda of eq. (10) that the confusion weight equals on these data; 0 without that loss.
        valid_values: ``(epochs, N)`` NDCG of every validation query after each epoch, and first before the first, where
            that could have been the best; the first row with the highest mean is that of these weights.
    """

    module: Ranker
    spec: NetworkSpec
    history: tuple[Epoch, ...]
    best_epoch: int
    equivalent_lambda: float
    valid_values: Float[np.ndarray, "epochs N"]

    @property
    def valid_ndcg(self) -> float:
        """Validation NDCG of the best epoch."""
        return self.history[-1].best_ndcg

    @property
    def facts(self) -> dict[str, object]:
        """Facts for the report."""
        return {
            "kind": self.spec.kind,
            "title": self.spec.title,
            "epochs": len(self.history),
            "best_epoch": self.best_epoch,
            "valid_ndcg": self.valid_ndcg,
            "lambda_of_eq_10": self.equivalent_lambda,
            "parameters": sum(parameter.numel() for parameter in self.module.parameters()),
        }


def fit_network(
    spec: NetworkSpec,
    train: Dataset,
    valid: Dataset,
    train_scores: Float[np.ndarray, " R"],
    valid_scores: Float[np.ndarray, " S"],
    *,
    seed: int,
    score_feature: str | None = None,
    checkpoint: Path | None = None,
    device: str = "cpu",
    task: Task = NO_TASK,
    report: StepReport = lambda _epoch, _value: None,
    workers: Workers | None = None,
    goes_on: GoesOn = lambda _epochs, _seconds: True,
) -> FittedNetwork:
    """Fit a second stage on the first stage's top candidates.

    Args:
        spec: Second stage of the recipe.
        train, valid: Training and validation split, under one schema.
        train_scores, valid_scores: ``(R,)`` and ``(S,)`` first-stage scores; those of the training rows out-of-fold.
        seed: Seed of initial weights, batches, dropout and sampled pairs.
        score_feature: Feature that holds the first stage's score, where it is not appended.
        checkpoint: File that remembers every finished epoch; if it is there, training goes on from it and ends with
            the same weights as an uninterrupted run.
        device: Name of the torch device.
        task: Task that gets every epoch, those of the checkpoint included.
        report: Function of a search, called with every epoch and the validation NDCG after it; may end the fit by
            raising.
        workers: Workers that run the epochs, each on its share of the lists; None for this process.
        goes_on: Function that is called before each epoch but the first; False ends the fit.

    Raises:
        ScoringError: if the loss or a validation score stops being finite; names the epoch and the remedy.
        RecipeError: if there are fewer lists, or lists of a batch, than workers.
    """
    lists, held_out = (
        lists_for(spec, data, scores, device=device) for data, scores in ((train, train_scores), (valid, valid_scores))
    )
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        score_column = _score_column(spec, train.schema, score_feature)
        model = Ranker(train.schema, lists.matrix, spec, score_column).to(device)
        optimizer = torch.optim.Adam(
            model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True
        )
        conf_weight = _confusion_weight(model, spec, lists)
        state = restore(checkpoint, model, optimizer) or TrainingState({}, {}, {}, best_epoch=0, history=[])
        if not state.history and isinstance(spec, Qilcm2Spec) and score_column is not None:
            # it starts from the first stage's order, and so it need never end below it
            start = _validate(model, held_out, valid, valid_scores, spec, number=0)
            state.values, state.start_ndcg = [torch.from_numpy(start)], _mean(start, valid)
            state.best = state_of(model)
        for epoch in state.history:
            _tell(epoch, spec, task, report)
        parallel = None if workers is None else ParallelEpochs(workers, model, lists, spec, conf_weight, seed)
        began, before = time.monotonic(), len(state.history)
        while not has_ended(state.history, state.best_epoch, spec):
            done = len(state.history)
            if done and not goes_on(done, (time.monotonic() - began) / max(1, done - before)):
                break
            number = done + 1
            if parallel is None:
                epoch = _run_epoch(model, optimizer, lists, spec, conf_weight, draws=(seed,), number=number)
            else:
                epoch = parallel.run(model, optimizer, number)
            values = _validate(model, held_out, valid, valid_scores, spec, number=epoch.number)
            state = advance(state, model, optimizer, epoch, torch.from_numpy(values), _mean(values, valid))
            if checkpoint is not None:
                save(checkpoint, state)
            _tell(state.history[-1], spec, task, report)
        if parallel is not None:
            parallel.end()
    model.load_state_dict(state.best)
    values = torch.stack(state.values).numpy()
    return FittedNetwork(model.cpu().eval(), spec, tuple(state.history), state.best_epoch, conf_weight, values)


def _tell(epoch: Epoch, spec: NetworkSpec, task: Task, report: StepReport) -> None:
    task.reach(epoch.number, f"valid NDCG@{spec.ndcg_at} {epoch.valid_ndcg:.4f} (best {epoch.best_ndcg:.4f})")
    task.measure(epoch.number, {"valid_ndcg": epoch.valid_ndcg, "rank_loss": epoch.rank_loss})
    report(epoch.number, epoch.valid_ndcg)


def _score_column(spec: NetworkSpec, schema: FeatureSchema, feature: str | None) -> int | None:
    """Return the input column with the first stage's score; None if there is none."""
    if spec.first_stage_score:
        return len(schema)
    return None if feature is None else schema.index[feature]


def _confusion_weight(model: Ranker, spec: NetworkSpec, lists: Lists) -> float:
    """Return the lambda of eq. (10); 0 for every model but QILCM."""
    if not isinstance(spec, QilcmSpec):
        return 0.0
    assert isinstance(model.network, QilcmNetwork)
    form: Literal["per_query", "paper"] = "paper" if spec.rank_loss == "paper" else "per_query"
    return normalised_weight(spec.confusion, mean_length=lists.mean_length, width=model.network.width, form=form)


def loss_of(
    model: nn.Module, batch: Batch, spec: NetworkSpec, conf_weight: float, rng: np.random.Generator
) -> tuple[Tensor, float, float]:
    """Return eq. (10) on one batch: the loss to minimise, and its two parts before weighting."""
    with torch.autocast(batch.features.device.type, torch.bfloat16, enabled=spec.precision == "bfloat16"):
        output = model(batch.features, batch.mask)
    judged = batch.labels, batch.mask
    each = output.logits[None] if output.members is None else output.members
    losses = [
        ranking_loss(spec.rank_loss, logits.float(), *judged, weights=batch.weights, gains=batch.gains)
        for logits in each
    ]
    rank_loss = torch.stack(losses).mean()
    if conf_weight == 0.0:
        return rank_loss, float(rank_loss.detach()), 0.0
    assert isinstance(spec, QilcmSpec)
    assert output.representation is not None
    assert output.representation.dtype == torch.float32
    pairs = None if spec.confusion_pairs == "all" else spec.confusion_pairs
    confusion = confusion_loss(output.representation, batch.mask, gain=output.gain, pairs=pairs, rng=rng)
    return rank_loss + conf_weight * confusion, float(rank_loss.detach()), float(confusion.detach())


def _run_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    lists: Lists,
    spec: NetworkSpec,
    conf_weight: float,
    *,
    draws: Sequence[int],
    number: int,
    size: int | None = None,
) -> Epoch:
    """Run one pass; its randomness depends on ``draws`` and its number alone, so that a resumed run repeats it."""
    started = time.perf_counter()
    rng = np.random.default_rng([*draws[:1], number, *draws[1:]])
    torch.manual_seed(int(rng.integers(2**62)))
    model.train()
    parts = []
    for batch in lists.batches(size or spec.batch_size, rng, similar=spec.batches == "similar"):
        optimizer.zero_grad()
        loss, rank_loss, confusion = loss_of(model, batch, spec, conf_weight, rng)
        if not torch.isfinite(loss):
            raise _diverged(f"the training loss became {loss.item()}", spec, number)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        parts.append((rank_loss, confusion))
    rank_mean, confusion_mean = np.mean(parts, axis=0)
    return Epoch(number, float(rank_mean), float(confusion_mean), 0.0, 0.0, time.perf_counter() - started)


def epoch_seconds(spec: NetworkSpec, train: Dataset, scores: Float[np.ndarray, " R"], *, device: str) -> float:
    """Estimate the seconds of one epoch, validation included, by a few of its batches on a temporary network."""
    lists = lists_for(spec, train, scores, device=device)
    rng = np.random.default_rng(0)
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(0)
        model = Ranker(train.schema, lists.matrix, spec, _score_column(spec, train.schema, None)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        conf_weight = _confusion_weight(model, spec, lists)
        took = []
        for batch in islice(lists.batches(spec.batch_size, rng), _TIMED + 1):
            began = time.perf_counter()
            optimizer.zero_grad()
            loss_of(model, batch, spec, conf_weight, rng)[0].backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            took.append(time.perf_counter() - began)
    steady = took[1:] or took  # the first one warms up
    return float(np.mean(steady)) * len(train) / spec.batch_size * VALIDATED


def _diverged(what: str, spec: NetworkSpec, number: int) -> ScoringError:
    remedy = f"lower learning_rate (now {spec.learning_rate:g})"
    if isinstance(spec, QilcmSpec) and spec.confusion > 0.0:
        remedy += f" or confusion_weight (now {spec.confusion_weight:g})"
    return ScoringError(f"{what} in epoch {number}: {remedy} in the recipe")


def _validate(
    model: Ranker,
    lists: Lists,
    data: Dataset,
    scores: Float[np.ndarray, " S"],
    spec: NetworkSpec,
    *,
    number: int,
) -> Float[np.ndarray, " N"]:
    """Return the NDCG of every validation query."""
    second_scores = predict(model, lists)
    if not np.isfinite(np.concatenate(second_scores)).all():  # NaN would rank as input order and could win
        raise _diverged("validation scores stopped being finite", spec, number)
    return query_ndcg(second_scores, lists, data, scores, spec.ndcg_at)


def _mean(values: Float[np.ndarray, " N"], data: Dataset) -> float:
    return float(np.average(values, weights=data.query_weights))


def predict(model: Ranker, lists: Lists) -> list[Float[np.ndarray, " C"]]:
    """Return the scores of every list; leaves the model in eval mode."""
    model.eval()
    with torch.inference_mode():
        parts = [model(batch.features, batch.mask)[0][batch.mask] for batch in lists.batches(VALIDATION_BATCH)]
    return np.split(torch.cat(parts).double().cpu().numpy(), lists.offsets[1:-1])


def query_ndcg(
    second_scores: Sequence[Float[np.ndarray, " C"]],
    lists: Lists,
    data: Dataset,
    scores: Float[np.ndarray, " S"],
    cutoff: int,
) -> Float[np.ndarray, " N"]:
    """Return ``(N,)`` NDCG of every query's whole order: reranked candidates first, the others in first-stage order.

    Args:
        second_scores: Second-stage scores of each list's candidates.
        lists: Lists made of ``data`` and ``scores``.
        data: N queries.
        scores: ``(S,)`` first-stage scores.
        cutoff: Cutoff of the NDCG; the ideal is that of the whole list.

    Convention: 0 for a list without a relevant candidate.
    """
    keys = sort_keys(np.concatenate(second_scores), lists.rows, scores)
    return QueryNdcg(data.labels, data.offsets, cutoff=cutoff, gains=data.gains).of(keys)


@dataclass
class TrainingState:
    """The state in a checkpoint.

    Args:
        model, optimizer: State of model and optimizer after the last epoch.
        best: Weights of the best epoch.
        best_epoch: Number of the best epoch; 0 where none is better than the start.
        history: Results of every epoch.
        start_ndcg: NDCG that the first epoch has to beat.
        values: NDCG of every validation query after each epoch; before the first one, too, where ``start_ndcg`` counts.
    """

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    best: dict[str, Tensor]
    best_epoch: int
    history: list[Epoch]
    start_ndcg: float = -1.0
    values: list[Tensor] = field(default_factory=list)


def advance(
    state: TrainingState,
    model: Ranker,
    optimizer: torch.optim.Optimizer,
    epoch: Epoch,
    values: Tensor,
    valid_ndcg: float,
) -> TrainingState:
    """Return the state after one more epoch, with the validation queries' values."""
    weights = state_of(model)
    best_so_far = state.history[-1].best_ndcg if state.history else state.start_ndcg
    better = valid_ndcg > best_so_far
    epoch = Epoch(**{**asdict(epoch), "valid_ndcg": valid_ndcg, "best_ndcg": max(valid_ndcg, best_so_far)})
    return TrainingState(
        model=weights,
        optimizer=optimizer.state_dict(),
        best=weights if better else state.best,
        best_epoch=epoch.number if better else state.best_epoch,
        history=[*state.history, epoch],
        values=[*state.values, values],
    )


def has_ended(history: Sequence[Epoch], best_epoch: int, spec: NetworkSpec) -> bool:
    """Return whether the recipe's epochs, or its patience, are used up."""
    done = len(history)
    return done >= spec.max_epochs or (done > 0 and done - best_epoch >= spec.patience)


def state_of(model: Ranker) -> dict[str, Tensor]:
    """Return a copy of all weights, on the CPU."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def restore(checkpoint: Path | None, model: Ranker, optimizer: torch.optim.Optimizer) -> TrainingState | None:
    """Load a checkpoint into model and optimizer; None if there is no file, or one of another release."""
    if checkpoint is None or not checkpoint.exists():
        return None
    saved = torch.load(checkpoint, weights_only=True, map_location="cpu")  # also where the GPU is gone
    if set(saved) != {field.name for field in fields(TrainingState)}:
        return None
    state = TrainingState(**{**saved, "history": [Epoch(**epoch) for epoch in saved["history"]]})
    model.load_state_dict(state.model)
    optimizer.load_state_dict(state.optimizer)
    return state


def save(checkpoint: Path, state: TrainingState) -> None:
    """Write the file anew, in one step: an interruption leaves the previous epoch."""
    values = {**vars(state), "history": [asdict(epoch) for epoch in state.history]}
    with atomic_file(checkpoint) as file:
        torch.save(values, file)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the training queries.

    Args:
        number: Number of the epoch, from 1.
        rank_loss, confusion_loss: Means over batches; the second before weighting, 0 where it is not used.
        valid_ndcg: NDCG of the validation queries after this epoch (empty queries count 0).
        best_ndcg: Best NDCG so far.
        seconds: Wall-clock time of the training batches, without validation.
    """

    number: int
    rank_loss: float
    confusion_loss: float
    valid_ndcg: float
    best_ndcg: float
    seconds: float


Share = tuple[Epoch, dict[str, Tensor] | None, dict[str, Any] | None]
"""A worker's result of an epoch; the states come from rank 0, as all have the same."""


class ParallelEpochs:
    """Epochs on several workers, by torch's DistributedDataParallel: they run the optimiser, this process validates.

    Each worker holds its own lists and takes B / W of them at a time. The gradient is the mean over workers, so the
    ranking loss is that of B lists. The confusion loss compares lists of one worker only. What is random in an epoch
    depends on seed, epoch and rank, so an epoch that is repeated after a loss ends with the same weights.

    Args:
        workers: Group of W workers.
        model: Model before the first epoch, with the scaling of all lists.
        lists: N training lists. Each worker gets N // W; the last N % W are left out.
        spec, conf_weight, seed: Second stage of the recipe, weight of the confusion loss, and seed of the fit.

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
            return pickle_call(NetworkWorker, model, lists.share(queries), spec, conf_weight, seed, device)

        self._group: Group = workers.group(work)

    def run(self, model: Ranker, optimizer: torch.optim.Optimizer, number: int) -> Epoch:
        """Run one epoch; model and optimizer then hold what the workers ended with."""
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
    """One worker of :class:`ParallelEpochs`.

    Args:
        model: Copy of the model.
        lists: Lists of this worker.
        spec, conf_weight, seed: Second stage of the recipe, weight of the confusion loss, and seed of the fit.
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
        epoch = _run_epoch(
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
