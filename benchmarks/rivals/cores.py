"""Cores for the servers, and for the generator of the load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class IndivisibleError(Exception):
    """Error of cores that cannot be divided."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Numbers of cores. A server is given one worker for each of its own."""

    servers: frozenset[int]
    generator: frozenset[int]

    @property
    def workers(self) -> int:
        """Number of server processes."""
        return len(self.servers)

    @property
    def apart(self) -> bool:
        """Whether the generator takes nothing from the servers."""
        return not self.servers & self.generator


def divided() -> Cores:
    """Give the last core to the generator and all others to the server, so that the load costs the server nothing.

    Raises:
        IndivisibleError: if there is only one, or the system does not say which processes run where.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise IndivisibleError("this system does not keep processes to cores")
    *servers, last = sorted(_own())
    if not servers:
        raise IndivisibleError("there is only one core")
    return Cores(frozenset(servers), frozenset({last}))


def shared() -> Cores:
    """Give all cores to both."""
    return Cores(_own(), _own())


@contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """Pin processes that start meanwhile, and their children, to these cores."""
    own = _own()
    if cores == own:
        yield
        return
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def _own() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
