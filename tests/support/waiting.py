"""Waiting for what another thread or process does, but not for ever."""

import asyncio
import inspect
import time

PATIENCE_S = 60.0
"""The most that a test waits for what will come: a busy machine takes its time."""

NEVER_S = 600.0
"""What a service is set to wait where no test waits for it: longer than :data:`PATIENCE_S`."""


def until(condition, pause_s=0.02):
    """What it returns, once that is true."""
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(pause_s)
    return found


async def until_async(condition, pause_s=0.01):
    """The same on an event loop; the condition may be a coroutine function."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(pause_s)
