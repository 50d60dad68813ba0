"""A connection to Ray: a local one that is started and stopped, or a cluster that is there."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from listwright.ranking.errors import ListwrightError, RecipeError
from listwright.training.cluster.origin import call, here, packed

LOCAL, RUNNING, CLIENT = "ray", "auto", "ray://"
"""What ``--on`` may say; an address follows the last one."""

ROOM_S = 60.0
"""Seconds that a command waits for free cores before it gives up; $LISTWRIGHT_ROOM_S says another number."""

OBJECT_STORE_BYTES = 512 * 2**20
"""Shared memory of a local Ray: what does not fit is spilled to disk."""

STARTS = 3
"""Tries to start a local Ray, or a server of a cluster for this client."""

LATE, UNSERVED = "timed out during startup", "Initialization failure from server"
"""What Ray says of a local start that took longer than 30 s, and of a server that did not start: on a busy machine the
next try may succeed."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_task_oom_retries": "3",  # its default tries for ever, and says nothing
    "RAY_worker_niceness": "0",  # its default is 15: on a busy machine such workers get next to nothing
}


def add_on_option(parser: argparse.ArgumentParser) -> None:
    """``--on``, which :func:`connected` reads."""
    parser.add_argument(
        "--on",
        metavar="WHERE",
        help="run on Ray: 'ray' starts one here, 'auto' takes the cluster of this machine or $RAY_ADDRESS, "
        "'ray://HOST:PORT' another one (default: processes here); needs listwright[ray]",
    )


@contextmanager
def connected(on: str, cores: int | None, *, address: str | None = None) -> Iterator[tuple[ModuleType, int]]:
    """Ray's module while connected, and how many cores the cluster has.

    Args:
        on: ``ray``, ``auto`` or ``ray://ADDRESS``.
        cores: of a local Ray; None for those of this machine.
        address: of the cluster that ``auto`` means; None to look for one.

    Raises:
        RecipeError: if Ray is not installed, cannot be reached, has another version of something, or has no room.
    """
    if on not in (LOCAL, RUNNING) and not on.startswith(CLIENT):
        raise RecipeError(f"--on {on}: expected 'ray', 'auto' or 'ray://HOST:PORT'")
    room_s = room_seconds()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # noqa: PLC0415
    except ImportError as error:
        raise RecipeError(f"--on {on} needs Ray: pip install 'listwright[ray]'") from error
    try:
        _begin(ray, on if address is None else address, cores)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        ray.shutdown()
        raise _refused(on, error) from error
    try:
        check_room(ray, room_s)
        yield ray, max(1, int(ray.cluster_resources().get("CPU", 1)))
    finally:
        ray.shutdown()


def room_seconds() -> float:
    """How long to wait for free cores.

    Raises:
        RecipeError: if $LISTWRIGHT_ROOM_S is no number of seconds.
    """
    said = os.environ.get("LISTWRIGHT_ROOM_S", str(ROOM_S))
    try:
        seconds = float(said)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds < float("inf"):
        raise RecipeError(f"LISTWRIGHT_ROOM_S={said}: expected a number of seconds above 0")
    return seconds


def _begin(ray: Any, on: str, cores: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    bounds = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    options = {"address": "local", **bounds} if on == LOCAL else {"address": on}
    for _ in range(STARTS):
        try:
            ray.init(**options, **quiet)
        except Exception as error:  # Ray has no class for it
            ray.shutdown()
            said = str(error).strip()
            if LATE not in said and UNSERVED not in said:
                raise
        else:
            return
    if on == LOCAL:
        raise RecipeError(
            f"--on {on}: Ray did not start within 30 s, in each of {STARTS} tries: try again when the machine is less "
            "busy, or leave --on out"
        )
    raise RecipeError(
        f"--on {on}: the cluster started no server for this client, in each of {STARTS} tries "
        f"({said.splitlines()[-1][:200]}): its head's logs, ray_client_server*, say more"
    )


def _refused(on: str, error: Exception) -> RecipeError:
    said = " ".join(str(error).split())
    if "mismatch" in said or "versions are" in said or "differ" in said:
        return RecipeError(f"--on {on}: {said[:300]}; install the same versions of Python and Ray here and there")
    return RecipeError(f"--on {on}: no Ray cluster answers ({said[:200]}); 'ray start --head' starts one")


def check_room(ray: Any, seconds: float) -> None:
    """Return once a task has run.

    Raises:
        RecipeError: if none gets a core within so many seconds, or its node differs from this one, or lacks Listwright.
    """
    probe = ray.remote(num_cpus=1, max_retries=3)(call).remote(here(), packed(os.getpid))
    ready, _ = ray.wait([probe], timeout=seconds)
    if not ready:
        ray.cancel(probe, force=True)
        raise no_room(ray, seconds)
    try:
        ray.get(probe)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, ListwrightError):
            raise cause from None
        said = str(cause or error).strip().splitlines()[-1]
        advice = "install listwright[training,ray] on every node"
        raise RecipeError(f"a node of the cluster cannot work for this command ({said[:200]}): {advice}") from error


def no_room(ray: Any, seconds: float) -> RecipeError:
    """What is said of a cluster whose cores are all taken, or gone."""
    cores, free = (int(found.get("CPU", 0)) for found in (ray.cluster_resources(), ray.available_resources()))
    return RecipeError(
        f"the cluster has no room: no core was free for {seconds:.0f} s, {free} of {cores} are free now; add nodes, or "
        "wait until others are done"
    )
