"""Whether the rows of some sources fit into memory: an estimate, before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from listwright.training.data.sources import path_of
from listwright.training.progress import Progress

Shards = Literal["auto", "always", "never"]
"""Whether rows stay on disk: ``auto`` where they may not fit into memory."""

COPIES = 4
"""How often rows stand in memory while they are read and split there, at the worst."""

_TEXT = 0.75
"""Bytes of float32 for each byte of text: about 8 characters a value; CSV is text in memory before it is numbers."""

_PACKED = 4.0
"""How much longer compressed text is than its file."""

_PACKED_ENDINGS = (".gz", ".zip", ".tgz", ".bz2", ".xz")


def stays_on_disk(sources: Sequence[str], shards: Shards, progress: Progress) -> bool:
    """Whether to read some sources into shards.

    Args:
        sources: what ``--data`` named.
        shards: what was asked for; under ``auto``, the answer is said if it is yes.
        progress: told that answer.
    """
    if shards != "auto":
        return shards == "always"
    needed, there = COPIES * sum(bytes_of(path_of(source)) for source in sources), available()
    if there is None or needed <= there:
        return False
    progress.say(
        f"Rows stay on disk: in memory they may need {needed / 2**30:.1f} GiB, and {there / 2**30:.1f} GiB are free "
        "(--shards never reads them all the same)"
    )
    return True


def bytes_of(path: Path) -> int:
    """About how many bytes the values of a file or folder take as float32; 0 for what cannot be read."""
    try:
        if path.is_dir():
            return sum(bytes_of(file) for file in path.rglob("*") if file.is_file())
        with path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet:
            rows = pl.scan_parquet(path, glob=False)
            return 4 * len(rows.collect_schema()) * int(rows.select(pl.len()).collect().item())
        size = path.stat().st_size
    except (OSError, pl.exceptions.PolarsError):
        return 0  # whoever reads it says what is wrong
    return int(size * _TEXT * (_PACKED if path.name.lower().endswith(_PACKED_ENDINGS) else 1.0))


def available() -> int | None:
    """Bytes of memory that are free here, by the system and by the limit of a container; None where neither tells."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        return None
    groups = Path("/sys/fs/cgroup")
    try:
        most, used = ((groups / f"memory.{name}").read_text(encoding="ascii").strip() for name in ("max", "current"))
        found += [int(most) - int(used)] if most != "max" else []
    except (OSError, ValueError):
        return min(found, default=None)  # no container, or one that tells no limit
    return min(found, default=None)
