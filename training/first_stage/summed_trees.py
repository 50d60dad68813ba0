"""Several LightGBM models as one: the trees of all, whose scores are the sums of theirs."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BEGIN, _END = "\nTree=0\n", "\nend of trees\n"


def summed(models: Sequence[str]) -> str:
    """One model in LightGBM's text format that scores as all of them together.

    Args:
        models: one or more, in that format, fitted on the same columns. What is no tree is the first one's: names of
            columns, importances, parameters.

    Raises:
        ValueError: if a text holds no trees.
    """
    if len(models) == 1:
        return models[0]
    trees = [tree for model in models for tree in _trees(model)]
    blocks = [f"Tree={number}\n{tree}" for number, tree in enumerate(trees)]
    sizes = " ".join(str(len(block.encode())) for block in blocks)
    head, tail = models[0].partition(_BEGIN)[0], models[0].partition(_END)[2]
    head = re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", head, flags=re.MULTILINE)
    return f"{head}\n{''.join(blocks)}{_END[1:]}{tail}"


def _trees(model: str) -> list[str]:
    """Every tree's lines, without its number; the empty lines behind it included."""
    begin, end = model.find(_BEGIN), model.find(_END)
    if not 0 < begin < end:
        raise ValueError("not a LightGBM text model with trees")
    return [tree.split("\n", 1)[1] for tree in model[begin + 1 : end + 1].split("Tree=")[1:]]
