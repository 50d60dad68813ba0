"""Workers that do one thing together, step by step: when one is lost, all begin the step again in new processes."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from listwright.ranking.errors import ListwrightError, RecipeError
from listwright.training.cluster.connection import no_room, room_seconds
from listwright.training.cluster.origin import Origin, here

RETRIES = 5
"""How often a group begins a step anew."""


@dataclass(slots=True)
class Workers:
    """Where groups of workers are started.

    Args:
        ray: the module, connected.
        size: W, workers of a group, one core each.
        device: ``cuda`` gives each a GPU of its own.
        idle: processes of a group that is done, for the next one.
    """

    ray: Any
    size: int
    device: str = "cpu"
    idle: list[Any] = field(default_factory=list)

    def group(self, work: Callable[[int], bytes]) -> Group:
        """A group. ``work(rank)`` makes what a rank holds; :func:`listwright.training.cluster.origin.packed` gives it.

        What is held has a method ``join(rank, addresses)``, which gets it in touch with the others.
        """
        return Group(self, work)


class Group:
    """W actors, started with the first step.

    Args:
        workers: where they run.
        work: see :meth:`Workers.group`.
    """

    def __init__(self, workers: Workers, work: Callable[[int], bytes]) -> None:
        self._workers, self._work = workers, work
        self._actors: list[Any] = []

    def step(self, method: str, *arguments: object, addressed: bool = False) -> list[Any]:
        """What all answer, by rank. A step depends on its arguments alone, so that it can be repeated.

        Args:
            method: of what they hold.
            arguments: of the method.
            addressed: whether the hosts and free ports of all are one more argument.

        Raises:
            RecipeError: if there is no room, or workers are lost again and again.
            ListwrightError: of a worker.
        """
        exceptions = self._workers.ray.exceptions
        for _ in range(RETRIES + 1):
            try:
                if not self._actors:
                    self._start()
                more = (self._addresses(),) if addressed else ()
                return self._all([actor.call.remote(method, *arguments, *more) for actor in self._actors])
            except exceptions.RayTaskError as error:
                self.stop()
                if isinstance(error.cause, ListwrightError):
                    raise error.cause from None
                lost: Exception = error  # who waited for a lost worker fails before Ray tells that it is lost
            except exceptions.RayError as error:
                self.stop()
                lost = error
            time.sleep(1.0)
        raise RecipeError(f"workers were lost {RETRIES + 1} times: {str(lost).strip().splitlines()[-1]}") from lost

    def stop(self) -> None:
        """End the processes, in the middle of whatever they do."""
        for actor in self._actors:
            self._workers.ray.kill(actor)
        self._actors = []

    def release(self) -> None:
        """The work is done: leave the processes to the next group."""
        if self._workers.idle:
            self.stop()
        self._workers.idle, self._actors = self._workers.idle or self._actors, []

    def _start(self) -> None:
        ray, size = self._workers.ray, self._workers.size
        self._actors, self._workers.idle = self._workers.idle, []
        if not self._actors:
            gpus = 1 if self._workers.device.startswith("cuda") else 0
            kind = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD", max_restarts=0)(Worker)
            self._actors = [kind.remote(here()) for _ in range(size)]
        asked = [actor.address.remote() for actor in self._actors]
        ready, _ = ray.wait(asked, num_returns=size, timeout=room_seconds())
        if len(ready) < size:
            self.stop()
            raise no_room(ray, room_seconds())
        addresses = ray.get(asked)
        self._all([actor.hold.remote(self._work(rank)) for rank, actor in enumerate(self._actors)])
        self._all([actor.call.remote("join", rank, addresses) for rank, actor in enumerate(self._actors)])

    def _addresses(self) -> list[tuple[str, int]]:
        return self._all([actor.address.remote() for actor in self._actors])

    def _all(self, asked: list[Any]) -> list[Any]:
        """All answers; the first error ends the wait, since others may wait for who failed."""
        waiting = list(asked)
        while waiting:
            done, waiting = self._workers.ray.wait(waiting)
            self._workers.ray.get(done)
        found: list[Any] = self._workers.ray.get(asked)
        return found


class Worker:
    """An actor: holds something, and calls its methods.

    Args:
        origin: the command that it works for.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._held: Any = None

    def address(self) -> tuple[str, int]:
        """Of this node, and a port that was free a moment ago."""
        import ray  # noqa: PLC0415

        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return host, probe.getsockname()[1]

    def hold(self, work: bytes) -> None:
        """Make what is held, once the versions are known to agree."""
        self._origin.enter()
        function, arguments = pickle.loads(work)  # noqa: S301  # written by the command itself
        self._held = function(*arguments)

    def call(self, method: str, *arguments: object) -> Any:
        """One of its methods."""
        return getattr(self._held, method)(*arguments)
