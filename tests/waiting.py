"""Waiting for what another thread or process does, but not for ever."""

import time


def until(condition, within_s=30.0):
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
