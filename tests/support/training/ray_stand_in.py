"""What the cluster package uses of Ray, in this process: tasks and actors that run when they are asked for."""

from types import SimpleNamespace


class Lost(Exception):
    """As ``ray.exceptions.RayError``: a process or a node is gone."""


class Failed(Lost):
    """As ``ray.exceptions.RayTaskError``."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class RayStandIn:
    """One node.

    Args:
        cores: of the node; without any nothing ever runs.
        refuses: what ``init`` raises.
        refusals: how often it does; None: each time.
        losses: how many of the first calls of tasks and of actors' ``call`` are lost.
    """

    exceptions = SimpleNamespace(RayError=Lost, RayTaskError=Failed)
    util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")

    def __init__(self, cores=2, refuses=None, refusals=None, losses=0):
        self.cores, self.refuses, self.refusals, self.losses = cores, refuses, refusals, losses
        self.begun, self.ended, self.killed, self.cancelled = [], 0, 0, []

    def init(self, **options):
        self.begun.append(options)
        if self.refuses is not None and (self.refusals is None or len(self.begun) <= self.refusals):
            raise self.refuses

    def shutdown(self):
        self.ended += 1

    def remote(self, **_options):
        return lambda made: SimpleNamespace(
            remote=lambda *words: _Actor(self, made(*words)) if isinstance(made, type) else _Call(self, made, words)
        )

    def wait(self, calls, num_returns=1, timeout=None):
        return ([], calls) if self.cores == 0 else (calls, [])

    def get(self, calls):
        return [call.get() for call in calls] if isinstance(calls, list) else calls.get()

    def cancel(self, call, force):
        self.cancelled.append(call)

    def kill(self, _actor):
        self.killed += 1

    def cluster_resources(self):
        return {"CPU": float(self.cores)}

    available_resources = cluster_resources


class _Call:
    def __init__(self, ray, function, words):
        self._ray, self._function, self._words, self._found = ray, function, words, None

    def get(self):
        if self._found is None:
            if self._function.__name__ == "call" and self._ray.losses > 0:
                self._ray.losses -= 1
                raise Lost("the node is gone")
            try:
                self._found = (self._function(*self._words),)
            except Exception as error:
                raise Failed(error) from error
        return self._found[0]


class _Actor:
    def __init__(self, ray, held):
        self._ray, self._held = ray, held

    def __getattr__(self, name):
        method = getattr(self._held, name)
        return SimpleNamespace(remote=lambda *words: _Call(self._ray, method, words))
