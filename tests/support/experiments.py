"""Files of experiments for tests."""

import os
from pathlib import Path

import numpy as np

from listwright.service.experiments import shadow_process

HIGH_PRICE = 2000.0
"""Of a candidate, for tests that know the list by it."""


def written(path: Path, *experiments: dict, salt: str = "") -> Path:
    """Write a file of experiments in one step; it changes its inode, and so its stamp."""
    lines = [f'salt = "{salt}"']
    for one in experiments:
        lines += ["[[experiment]]", *(f"{name} = {_toml(value)}" for name, value in one.items())]
    hidden = path.with_name(f".{path.name}.new")
    hidden.write_text("\n".join(lines), encoding="utf-8")
    hidden.replace(path)
    return path


def _toml(value):
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def experiment(kind, *, name="first", control="shop", challenger="next", **more):
    found = {"name": name, "kind": kind, "control": control, "challenger": challenger, **more}
    if kind == "explore":
        del found["challenger"]
    return found


def run_without_end(pipe):
    """The process of a shadow whose challenger never answers, and which may take little time."""
    shadow_process.MOST_CPU_S = 0.05
    shadow_process.answer = _spin
    shadow_process.run(pipe)


def _spin(*_):
    while True:
        pass


def run_until_dear(pipe):
    """The process of a shadow that ends without a word at a list with a high price."""
    answer = shadow_process.answer

    def ends(question, bundles):
        if np.nanmax(question.features) >= HIGH_PRICE:
            os._exit(1)
        return answer(question, bundles)

    shadow_process.answer = ends
    shadow_process.run(pipe)
