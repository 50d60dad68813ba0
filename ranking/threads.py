"""How many cores and threads there are: CPU affinity, CPU quotas of control groups, ``OMP_NUM_THREADS``."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def threads() -> int:
    """Return the number of threads of one process: the usable cores, or fewer by ``OMP_NUM_THREADS``."""
    first_level = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    limit = int(first_level) if first_level.isdecimal() else 0  # OpenMP ignores other values, too
    return min(cores(), limit) if limit else cores()


def cores(root: Path = Path("/")) -> int:
    """Return the number of usable cores: those of the CPU affinity, or fewer by a CPU quota, rounded down.

    Args:
        root: Folder with ``proc/self/cgroup``, ``proc/self/mountinfo``, and the control groups that these name.

    Convention: a quota below one core is one; of a control group and its ancestors, the lowest quota counts.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min([usable, *map(_quota, _groups(root))])))


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups that may hold a CPU quota; none outside Linux."""
    try:
        memberships, mounts = ((root / f"proc/self/{f}").read_text("utf-8", "replace") for f in ("cgroup", "mountinfo"))
    except OSError:
        return
    of_lines = [line.split(":", 2) for line in memberships.splitlines()]
    paths = {controller: path for _, controllers, path in of_lines for controller in controllers.split(",")}
    for mount in mounts.splitlines():
        fields, _, system = mount.partition(" - ")
        top, point = fields.split()[3:5]
        kind, _, options = system.split(" ", 2)
        controller = {"cgroup2": "", "cgroup": "cpu"}.get(kind)
        if controller in paths and controller in ("", *options.split(",")):
            mounted, path = root / point.lstrip("/"), PurePosixPath(paths[controller])
            inside = path.relative_to(top) if path.is_relative_to(top) else PurePosixPath()  # a container's own top
            yield from (mounted / part for part in (inside, *inside.parents))


def _quota(group: Path) -> float:
    """Return the number of cores that a control group may use; infinite without a quota."""
    names = ("cpu.max",) if (group / "cpu.max").exists() else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        quota, period = " ".join((group / name).read_text("ascii") for name in names).split()
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError):
        return math.inf  # no such file in the top group; "max"
