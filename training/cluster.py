"""The same work in processes of this machine or on a Ray cluster, behind one executor.

A worker of a cluster imports this file first, and only then takes one thread for itself. So nothing here imports Ray
before ``--on``, or a library that starts threads.
"""

from __future__ import annotations

import argparse
import os
import pickle
import platform
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from listwright.ranking import threads
from listwright.ranking.errors import ListwrightError, RecipeError

ONE_THREAD = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
"""Variables for one thread per process, so that results repeat to the bit. Libraries read them when imported."""

KEPT_PAGES = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:10000"}
"""Settings of polars' allocator: memory is reused between pieces of work and not returned."""

LIBRARIES = ("listwright", "ray", "lightgbm", "numpy", "polars", "torch")
"""Libraries whose versions must agree between processes."""

LOCAL, RUNNING, CLIENT = "ray", "auto", "ray://"
"""Values of ``--on``; an address follows the last one."""

ROOM_S = 60.0
"""Seconds that a command waits for free cores before it fails; $LISTWRIGHT_ROOM_S overrides it."""

OBJECT_STORE_BYTES = 512 * 2**20
"""Shared memory of a local Ray: what does not fit is spilled to disk."""

STARTS = 3
"""Tries to start a local Ray, or a server of a cluster for this client."""

LATE, UNSERVED = "timed out during startup", "Initialization failure from server"
"""Ray's messages for a local start that took longer than 30 s, and of a server that did not start: a retry may succeed
on a busy machine."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_task_oom_retries": "3",  # by default it retries for ever, silently
    "RAY_worker_niceness": "0",  # its default is 15: on a busy machine such workers get next to nothing
}

TASK_RETRIES = 5
"""How often a task restarts whose node or process is lost."""

_LOOK_S = 0.5

STEP_RETRIES = 5
"""How often a group repeats a step."""


def add_on_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--on``, which :func:`connected` reads."""
    parser.add_argument(
        "--on",
        metavar="WHERE",
        help="run on Ray: 'ray' starts one here, 'auto' takes the cluster of this machine or $RAY_ADDRESS, "
        "'ray://HOST:PORT' another one (default: processes here); needs listwright[ray]",
    )


@contextmanager
def connected(on: str, cores: int | None, *, address: str | None = None) -> Iterator[tuple[ModuleType, int]]:
    """Connect to Ray, and yield its module and the number of the cluster's cores.

    Args:
        on: Value of ``--on``: ``ray``, ``auto`` or ``ray://ADDRESS``.
        cores: Number of cores of a local Ray; None for those of this machine.
        address: Address of the cluster that ``auto`` means; None to look for it.

    Raises:
        RecipeError: if Ray is not installed, cannot be reached, has another version of something, or has no room.
    """
    if on not in (LOCAL, RUNNING) and not on.startswith(CLIENT):
        raise RecipeError(f"--on {on}: expected 'ray', 'auto' or 'ray://HOST:PORT'")
    room_s = _room_seconds()
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
        _check_room(ray, room_s)
        yield ray, max(1, int(ray.cluster_resources().get("CPU", 1)))
    finally:
        ray.shutdown()


def _room_seconds() -> float:
    """Return how many seconds to wait for free cores."""
    text = os.environ.get("LISTWRIGHT_ROOM_S", str(ROOM_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds < float("inf"):
        raise RecipeError(f"LISTWRIGHT_ROOM_S={text}: expected a number of seconds above 0")
    return seconds


def _begin(ray: Any, on: str, cores: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    bounds = {"num_cpus": cores or threads.cores(), "object_store_memory": OBJECT_STORE_BYTES}
    options = {"address": "local", "include_dashboard": False, **bounds} if on == LOCAL else {"address": on}
    for _ in range(STARTS):
        try:
            ray.init(**options, **quiet)
        except Exception as error:  # Ray has no class for it
            ray.shutdown()
            reason = str(error).strip()
            if LATE not in reason and UNSERVED not in reason:
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
        f"({reason.splitlines()[-1][:200]}): its head's logs, ray_client_server*, say more"
    )


def _refused(on: str, error: Exception) -> RecipeError:
    reason = " ".join(str(error).split())
    if "mismatch" in reason or "versions are" in reason or "differ" in reason:
        return RecipeError(f"--on {on}: {reason[:300]}; install the same versions of Python and Ray here and there")
    return RecipeError(f"--on {on}: no Ray cluster answers ({reason[:200]}); 'ray start --head' starts one")


def _check_room(ray: Any, seconds: float) -> None:
    """Run a task on the cluster, to see that it has room and works."""
    probe = ray.remote(num_cpus=1, max_retries=3)(call).remote(current_origin(), pickle_call(os.getpid))
    ready, _ = ray.wait([probe], timeout=seconds)
    if not ready:
        ray.cancel(probe, force=True)
        raise _no_room(ray, seconds)
    try:
        ray.get(probe)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, ListwrightError):
            raise cause from None
        reason = str(cause or error).strip().splitlines()[-1]
        advice = "install listwright[training,ray] on every node"
        raise RecipeError(f"a node of the cluster cannot work for this command ({reason[:200]}): {advice}") from error


def _no_room(ray: Any, seconds: float) -> RecipeError:
    """Return the error for a cluster whose cores are all busy, or gone."""
    cores, free = (int(resources.get("CPU", 0)) for resources in (ray.cluster_resources(), ray.available_resources()))
    return RecipeError(
        f"the cluster has no room: no core was free for {seconds:.0f} s, {free} of {cores} are free now; add nodes, or "
        "wait until others are done"
    )


@contextmanager
def side_by_side(on: str | None, jobs: int | None, *, local_jobs: int) -> Iterator[tuple[Executor, int]]:
    """Start an executor, and yield it with the number of pieces of work to submit at a time.

    Args:
        on: Value of ``--on``; None for processes of this machine.
        jobs: Value of ``--jobs``; None for ``local_jobs`` here, and for all cores of a cluster.
        local_jobs: Number of jobs that are worth while on this machine.

    Raises:
        RecipeError: see :func:`listwright.training.cluster.connected`.
    """
    if on is None:
        with pool(jobs or local_jobs) as processes:
            yield processes, jobs or local_jobs
        return
    with connected(on, jobs) as (ray, cores):
        executor = RayExecutor(ray)
        try:
            yield executor, jobs or cores
        finally:
            executor.shutdown(cancel_futures=True)


class RayExecutor(Executor):
    """Executor on Ray: one task of one core per piece of work; work that is lost with its node runs again.

    All work is given up once the cluster has been without any core for $LISTWRIGHT_ROOM_S seconds.

    Args:
        ray: Module of Ray, connected.
    """

    def __init__(self, ray: Any) -> None:
        self._ray, self._room_s, self._origin = ray, _room_seconds(), current_origin()
        self._task = ray.remote(num_cpus=1, max_retries=TASK_RETRIES)(call)
        self._running: dict[Any, Future[Any]] = {}
        self._change = threading.Condition()
        self._over = False
        self._collector = threading.Thread(target=self._collect, daemon=True)
        self._collector.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call, as the standard library's executors do; function and arguments are pickled."""
        assert not kwargs, "work for a cluster has positional arguments"
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._change:
            if self._over:
                raise RuntimeError("this executor is shut down")
            self._running[self._task.remote(self._origin, pickle_call(fn, *args))] = future
            self._change.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop collecting results; running tasks are killed if ``cancel_futures``."""
        with self._change:
            self._over = True
            self._change.notify()
        if wait:
            self._collector.join()
        if cancel_futures:
            for task in self._running:
                with suppress(self._ray.exceptions.RayError, ConnectionError):  # that error is raised already
                    self._ray.cancel(task, force=True)

    def _collect(self) -> None:
        """Set the results of futures as tasks finish, until the executor is shut down."""
        last_core = time.monotonic()
        while True:
            with self._change:
                while not self._running and not self._over:
                    self._change.wait()
                    last_core = time.monotonic()
                if self._over:
                    return
                waiting = list(self._running)
            try:
                done, _ = self._ray.wait(waiting, timeout=_LOOK_S)
                for task in done:
                    self._hand_over(task)
                if done or self._ray.cluster_resources().get("CPU", 0) >= 1:
                    last_core = time.monotonic()
                elif time.monotonic() - last_core > self._room_s:
                    raise _no_room(self._ray, self._room_s)
            except Exception as error:  # waiting threads must get whatever ends this one
                with self._change:
                    for future in self._running.values():
                        future.set_exception(error)
                    self._running.clear()
                    self._over = True
                return

    def _hand_over(self, task: Any) -> None:
        try:
            result = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            self._take(task).set_exception(error.cause)
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[0]
            self._take(task).set_exception(
                RecipeError(f"a task was lost {TASK_RETRIES + 1} times, perhaps because memory ran out: {reason}")
            )
        else:
            self._take(task).set_result(result)

    def _take(self, task: Any) -> Future[Any]:
        with self._change:
            return self._running.pop(task)


@dataclass(slots=True)
class Workers:
    """A cluster on which groups of workers are started.

    Args:
        ray: Module of Ray, connected.
        size: Number of workers of a group, one core each.
        device: Torch device; ``cuda`` gives each worker a GPU of its own.
        idle: Processes of a finished group, for the next group.
    """

    ray: Any
    size: int
    device: str = "cpu"
    idle: list[Any] = field(default_factory=list)

    def group(self, work: Callable[[int], bytes]) -> Group:
        """Return a group. ``work(rank)`` is a pickled call that creates a rank's object, see
        :func:`listwright.training.cluster.pickle_call`.

        What is held has a method ``join(rank, addresses)``, which gets it in touch with the others.
        """
        return Group(self, work)


@contextmanager
def connected_workers(on: str, size: int | None, device: str) -> Iterator[Workers]:
    """Connect to Ray, and yield the workers of a data-parallel fit.

    Args:
        on: Value of ``--on``: ``ray``, ``auto`` or ``ray://ADDRESS``.
        size: Number of workers; None for one per core, or on ``cuda`` per GPU.
        device: ``cpu``, or ``cuda`` for a GPU of its own for each worker.

    Raises:
        RecipeError: if the cluster has fewer GPUs than workers; otherwise as :func:`connected`.
    """
    if size is not None and size < 1:
        raise RecipeError(f"--workers {size}: expected 1 or more")
    with connected(on, size) as (ray, cores):
        most = min(cores, _gpus(ray, on, size or 1)) if device.startswith("cuda") else cores
        yield Workers(ray, size or most, device)


def _gpus(ray: Any, on: str, least: int) -> int:
    """Return the number of GPUs of the cluster; each worker needs one."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if gpus < least:
        raise RecipeError(
            f"--on {on}: a worker on CUDA needs a GPU, and the nodes have {gpus} for {least}: take fewer --workers, or "
            "--device cpu"
        )
    return gpus


class Group:
    """A group of W actors, started with the first step.

    Args:
        workers: Cluster of the actors.
        work: Function of the rank; see :meth:`Workers.group`.
    """

    def __init__(self, workers: Workers, work: Callable[[int], bytes]) -> None:
        self._workers, self._work = workers, work
        self._actors: list[Any] = []

    def step(self, method: str, *arguments: object, addressed: bool = False) -> list[Any]:
        """Call a method on all ranks, and return their answers by rank; it depends on its arguments alone, and can be
        repeated.

        Args:
            method: Name of a method of the objects that the actors hold.
            arguments: Arguments of the method.
            addressed: Whether to add the hosts and free ports of all ranks as a last argument.

        Raises:
            RecipeError: if there is no room, or workers are lost again and again.
            ListwrightError: of a worker.
        """
        exceptions = self._workers.ray.exceptions
        for _ in range(STEP_RETRIES + 1):
            try:
                if not self._actors:
                    self._start()
                more = (self._all([actor.address.remote() for actor in self._actors]),) if addressed else ()
                return self._all([actor.call.remote(method, *arguments, *more) for actor in self._actors])
            except exceptions.RayTaskError as error:
                self.stop()
                if isinstance(error.cause, ListwrightError):
                    raise error.cause from None
                lost: Exception = error  # ranks that wait for a lost worker fail before Ray reports the loss
            except exceptions.RayError as error:
                self.stop()
                lost = error
            time.sleep(1.0)
        raise RecipeError(f"workers were lost {STEP_RETRIES + 1} times: {str(lost).strip().splitlines()[-1]}") from lost

    def stop(self) -> None:
        """Kill the processes, whatever they are doing."""
        for actor in self._actors:
            self._workers.ray.kill(actor)
        self._actors = []

    def release(self) -> None:
        """Leave the idle processes to the next group."""
        if self._workers.idle:
            self.stop()
        self._workers.idle, self._actors = self._workers.idle or self._actors, []

    def _start(self) -> None:
        ray, size = self._workers.ray, self._workers.size
        self._actors, self._workers.idle = self._workers.idle, []
        if not self._actors:
            gpus = 1 if self._workers.device.startswith("cuda") else 0
            kind = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD", max_restarts=0)(Worker)
            self._actors = [kind.remote(current_origin()) for _ in range(size)]
        addressed = [actor.address.remote() for actor in self._actors]
        ready, _ = ray.wait(addressed, num_returns=size, timeout=_room_seconds())
        if len(ready) < size:
            self.stop()
            raise _no_room(ray, _room_seconds())
        addresses = ray.get(addressed)
        self._all([actor.hold.remote(self._work(rank)) for rank, actor in enumerate(self._actors)])
        self._all([actor.call.remote("join", rank, addresses) for rank, actor in enumerate(self._actors)])

    def _all(self, calls: list[Any]) -> list[Any]:
        """Return all answers; the first error ends the wait, as other ranks may wait for the failed one."""
        waiting = list(calls)
        while waiting:
            done, waiting = self._workers.ray.wait(waiting)
            self._workers.ray.get(done)
        answers: list[Any] = self._workers.ray.get(calls)
        return answers


class Worker:
    """An actor that holds an object and calls its methods.

    Args:
        origin: Origin of the command.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._held: Any = None

    def address(self) -> tuple[str, int]:
        """Return the address of this node, and a port that was free a moment ago."""
        import ray  # noqa: PLC0415

        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return host, probe.getsockname()[1]

    def hold(self, work: bytes) -> None:
        """Create the object to hold, once the versions agree."""
        self._origin.enter()
        function, arguments = pickle.loads(work)  # noqa: S301  # written by the command itself
        self._held = function(*arguments)

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the held object."""
        return getattr(self._held, method)(*arguments)


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a task: the folder and the versions of the command that submitted it.

    Args:
        folder: Working folder of the command, which every node must see under the same path.
        versions: Versions of Python and of :data:`LIBRARIES`.
    """

    folder: str
    versions: dict[str, str]

    def enter(self) -> None:
        """Make this process a worker of that command, with one thread.

        Raises:
            RecipeError: if a version differs, or the folder is not there.
        """
        os.environ.update(ONE_THREAD)
        here = versions()
        for name, needed in self.versions.items():
            if here.get(name) != needed:
                raise RecipeError(
                    f"node {socket.gethostname()} has {name} {here.get(name)}, and this command has {name} {needed}: "
                    "install the same version on every node"
                )
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise RecipeError(
                f"node {socket.gethostname()} does not see {self.folder}, the folder of this command: start it in a "
                "folder on storage that all nodes mount under the same path"
            ) from error


def current_origin() -> Origin:
    """Return the origin of this process."""
    return Origin(str(Path.cwd()), versions())


@cache
def versions() -> dict[str, str]:
    """Return the installed versions of Python and of :data:`LIBRARIES`."""
    return {"Python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def call(origin: Origin, work: bytes) -> Any:
    """Run pickled work, a function and its arguments; it is unpickled only once the versions agree."""
    origin.enter()
    function, arguments = pickle.loads(work)  # noqa: S301  # written by the command itself, a moment ago
    return function(*arguments)


def pickle_call(function: Callable[..., object], *arguments: object) -> bytes:
    """Pickle a function and its arguments for :func:`call`."""
    return pickle.dumps((function, arguments), protocol=5)


class _OneThreadProcess(SpawnProcess):
    """A process with one thread, started with variables that its parent does not keep."""

    def start(self) -> None:
        allocator = {name: value for name, value in KEPT_PAGES.items() if name not in os.environ}
        with _inherited(ONE_THREAD | allocator):
            super().start()


class _OneThreadContext(SpawnContext):
    """The spawn context: a fork would copy torch's threads in whatever state they are."""

    Process = _OneThreadProcess


@contextmanager
def pool(jobs: int) -> Iterator[Executor]:
    """Start worker processes that stop at once when this process fails, is interrupted, or is killed."""
    context = _OneThreadContext()
    # a pipe, and no event: a process killed while it waits for an event keeps the lock that setting it needs
    receiver, sender = context.Pipe(duplex=False)
    workers = ProcessPoolExecutor(jobs, mp_context=context, initializer=_obey, initargs=(receiver,))
    try:
        yield workers
    except BaseException:
        sender.close()
        raise
    finally:
        workers.shutdown(cancel_futures=True)
        sender.close()
        receiver.close()


@contextmanager
def _inherited(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that processes started meanwhile inherit."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _obey(parent: Connection) -> None:
    """Leave Ctrl-C to the parent, and end this process when either end of the parent's pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: Connection) -> None:
    with suppress(EOFError, OSError):
        parent.recv()
    os._exit(1)
