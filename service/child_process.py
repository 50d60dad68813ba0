"""The end of a process that a worker has started."""

from __future__ import annotations

from multiprocessing.context import SpawnProcess

JOIN_S = 2.0


def ended(process: SpawnProcess) -> int | None:
    """Wait for a process whose pipe is closed, and kill it if it does not end; its exit code, if it has one."""
    process.join(JOIN_S)
    if process.is_alive():
        process.kill()
        process.join(JOIN_S)
    code = process.exitcode
    if code is not None:
        process.close()
    return code
