"""Objects that pass for those of a class, and have what a test gives them and nothing else."""

from concurrent.futures import Executor, Future
from unittest.mock import NonCallableMock

from listwright.ranking.router import Choice


def standing_in(kind, **attributes):
    stand_in = NonCallableMock(spec=kind)
    for name, value in attributes.items():  # not as arguments: a mock keeps a name for itself
        setattr(stand_in, name, value)
    return stand_in


def any_choice(specialist, confidence=None):
    """A choice of things that are none, as a hook may make it: nothing checks it before the service does."""
    choice = Choice(None)
    object.__setattr__(choice, "specialist", specialist)
    object.__setattr__(choice, "confidence", confidence)
    return choice


class Inline(Executor):
    """An executor that does at once what it is given."""

    def submit(self, work, /, *arguments):
        work(*arguments)
        return Future()


class Clock:
    """Seconds, as a test sets them."""

    def __init__(self, now=100.0):
        self.now = now

    def __call__(self):
        return self.now
