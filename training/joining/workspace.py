"""The hidden folder of a join: its steps, each of which is done once, however often the job is interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from listwright.ranking.errors import RecipeError

_JOB, _LOCK, _DONE = "job.json", "lock", "done.json"


def once(folder: Path, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a step said when it was done, or says now.

    Args:
        folder: of the job.
        name: of the step.
        work: does it; what it returns can be written as JSON. Done a second time it leaves the same.
    """
    path = folder / f"{name}.{_DONE}"
    if not path.exists():
        said = work()
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(said))
        partial.replace(path)
    told: dict[str, Any] = json.loads(path.read_text())
    return told


@contextmanager
def workspace(facts: Mapping[str, str], out: Path, *, resume: bool) -> Iterator[Path]:
    """The hidden folder beside ``out``, held against other jobs.

    Args:
        facts: what the parts depend on.
        out: the file that will be published.
        resume: whether an interrupted job goes on.

    Raises:
        RecipeError: if there is nothing to resume, or an interrupted job and ``resume`` is False, or other facts.
    """
    folder = out.with_name(f".{out.name}.partial")
    begun = folder.exists()
    if resume and not begun:
        raise RecipeError(f"nothing to resume for {out}: there is no {folder}; run without --resume")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / _LOCK, timeout=0):
            if begun and not resume:
                said = "holds an interrupted job: continue it with --resume, or delete that folder"
                raise RecipeError(f"{folder} {said}")
            _check_same(folder / _JOB, facts)
            try:
                yield folder
            except Exception:
                if not any(folder.glob(f"served-*{_DONE}")):  # nothing worth keeping
                    shutil.rmtree(folder)
                raise
    except Timeout:
        raise RecipeError(f"{folder} is in use: another process joins into {out}") from None


def _check_same(path: Path, facts: Mapping[str, str]) -> None:
    """Write down what the parts depend on, or compare it with what is there."""
    if not path.exists():
        whole = path.with_suffix(".partial")
        whole.write_text(json.dumps(dict(facts)))
        whole.replace(path)
        return
    before = json.loads(path.read_text())
    changed = [name for name, value in facts.items() if before.get(name) != value]
    if changed:
        raise RecipeError(
            f"{changed[0]} was {before.get(changed[0])!r} when the job was interrupted, and is {facts[changed[0]]!r}: "
            f"resume with what it was, or delete {path.parent}"
        )
