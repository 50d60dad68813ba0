"""Waiting for what another thread or process does, but not for ever."""

import time

PATIENCE_S = 300.0
"""The most that a test waits for what will come: a busy machine takes its time."""

NEVER_S = 600.0
"""What a service is set to wait where no test waits for it: longer than :data:`PATIENCE_S`."""


def until(condition):
    """Return once it is true."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
