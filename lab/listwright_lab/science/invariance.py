"""``python -m listwright_lab.science.invariance``: what QILCM's parts do to planted per-query shifts, and why some do
nothing.

QILCM and its variants (V1: plain means, V2: no confusion loss, V3: no query normalisation either) are fitted on
recipe ``shifted`` without and with shifts. Then, over the representations that are scored, of the test queries:

- **query share**: how much of their variance lies between queries. 0: a list's place says nothing of its query.
- **distance to others**: the Chamfer distance of the confusion loss between lists, over the same after all candidates
  were dealt out to the lists anew. 1: lists cannot be told apart.
- **attention spread**: exp of the attention's entropy, as a share of the list. 1: a plain mean.

Dimensions are brought to variance 1 first, so that the variants can be compared.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from jaxtyping import Bool, Float
from rich.console import Console
from torch import Tensor

from listwright.ranking.errors import ListwrightError
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage import lambdamart
from listwright.training.losses.confusion import confusion_loss
from listwright.training.networks.qilcm import QilcmNetwork, Representation
from listwright.training.networks.ranker import Ranker
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage.batching import Lists
from listwright.training.second_stage.loop import predict, query_ndcg
from listwright_lab import machine
from listwright_lab.suites.listwise import methods

VARIANTS = ("qilcm", "qilcm-v1", "qilcm-v2", "qilcm-v3")

LISTS, PAIRS = 400, 4000
"""Test lists whose representations are looked at, and pairs of them that are compared."""

CONSTANT = 1e-6
"""Dimensions with a smaller deviation are left out: dead ones."""


def query_share(rows: Float[Tensor, "B L width"], mask: Bool[Tensor, "B L"]) -> float:
    """Return the share of variance between lists, over dimensions of variance 1; NaN if there are none."""
    real = _standardised(rows, mask).masked_fill(~mask[..., None], 0.0)
    lengths = mask.sum(dim=1)
    means = real.sum(dim=1) / lengths[:, None]
    between = (lengths[:, None] * means.square()).sum(dim=0) / lengths.sum()
    return float(between.mean())


def distance_to_others(rows: Float[Tensor, "B L width"], mask: Bool[Tensor, "B L"], rng: np.random.Generator) -> float:
    """Return the Chamfer distance between lists over that between random lists of the same lengths."""
    own = _standardised(rows, mask)
    dealt = own.clone()
    dealt[mask] = own[mask][torch.from_numpy(rng.permutation(int(mask.sum())))]
    seeds = rng.integers(2**32, size=1)  # the same pairs for both
    as_is, mixed = (confusion_loss(h, mask, pairs=PAIRS, rng=np.random.default_rng(seeds)) for h in (own, dealt))
    return float(as_is / mixed)


def attention_spread(attention: Float[Tensor, "B L"], mask: Bool[Tensor, "B L"]) -> float:
    """Return the mean of exp(entropy) / length."""
    entropy = torch.special.entr(attention.double()).masked_fill(~mask, 0.0).sum(dim=1)
    return float((entropy.exp() / mask.sum(dim=1)).mean())


def _standardised(rows: Float[Tensor, "B L width"], mask: Bool[Tensor, "B L"]) -> Float[Tensor, "B L width"]:
    real = rows[mask]
    alive = real.std(dim=0) > CONSTANT
    return (rows[..., alive] - real[:, alive].mean(dim=0)) / real[:, alive].std(dim=0)


@torch.inference_mode()
def representation(model: Ranker, lists: Lists) -> tuple[Representation, Tensor]:
    """Return the representations of the first :data:`LISTS` lists, and their mask."""
    batch = lists.batch(np.arange(min(LISTS, len(lists))))
    network = model.network
    assert isinstance(network, QilcmNetwork)
    return network.represent(model.preprocess(batch.features), batch.mask), batch.mask


def at_shift(recipe: config.Recipe, seed: int, console: Console) -> dict[str, dict[str, float]]:
    """Measure all variants on the data of a recipe, over one first stage."""
    splits = load(recipe, [])
    with TemporaryDirectory() as folder:
        first = first_stage.fit(recipe.first_stage, splits, seed=seed, state=Path(folder))
    assert isinstance(first.model, str)
    scores = lambdamart.scores_of(first.model, splits.test)
    figures: dict[str, dict[str, float]] = {}
    for name in VARIANTS:
        fitted = second_stage.fit(recipe.model_named(name), splits, first, seed=seed)
        assert fitted is not None
        spec = fitted.spec
        lists = Lists(splits.test, scores, cutoff=spec.cutoff, append_score=spec.first_stage_score)
        ndcg = query_ndcg(predict(fitted.module, lists), lists, splits.test, scores, spec.ndcg_at)
        inner, mask = representation(fitted.module, lists)
        figures[name] = {
            f"ndcg@{spec.ndcg_at}": round(float(ndcg.mean()), 4),
            "query_share": round(query_share(inner.normalised, mask), 4),
            "distance_to_others": round(distance_to_others(inner.normalised, mask, np.random.default_rng(0)), 4),
            "attention_spread": round(attention_spread(inner.attention, mask), 4),
        }
        console.print(f"  {methods.title(name):<8} {figures[name]}", soft_wrap=True)
    return figures


def main() -> int:
    """Run the command line; write ``benchmarks/results/invariance.json``."""
    parser = argparse.ArgumentParser(
        prog="python -m listwright_lab.science.invariance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--shifts", default="0,1", metavar="S,S", help="planted shifts (default: 0,1)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console(highlight=False)
    by_shift = {}
    try:
        for shift in options.shifts.split(","):
            recipe = config.load("shifted")
            recipe = config.changed(recipe, {"data": recipe.data.model_copy(update={"shift": float(shift)})})
            console.print(f"shift {shift}")
            by_shift[shift] = at_shift(recipe, options.seed, console)
    except (ListwrightError, ValueError) as error:
        console.print(f"error: {error}", markup=False)
        return 1
    command = f"python -m listwright_lab.science.invariance --shifts {options.shifts} --seed {options.seed}"
    print(machine.save("invariance", command, {"lists": LISTS, "pairs": PAIRS, "by_shift": by_shift}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
