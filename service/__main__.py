"""``listwright serve``: serve bundles over HTTP."""

from __future__ import annotations

import os
import re
import signal
import sys
from types import FrameType

OF_LIBRARIES = re.compile(r"(?i:FASTAPI|ORT(?!_DISABLE_TELEMETRY)|PROMETHEUS)_")
"""Variables that libraries read when they are imported. They are those of other programs, and would change or end this
one: with PROMETHEUS_MULTIPROC_DIR, metrics go to a folder that may not be there."""


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal wants it
    """End at once, as the system's default would, which does not hold for the first process of a container."""
    os._exit(128 + number)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; see :func:`listwright.service.commands.serve.main`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))  # until it is known what it asks for
    signal.signal(signal.SIGTERM, _end)  # before the imports, which take a second; until the server handles it
    signal.signal(signal.SIGINT, _end)
    for name in [name for name in os.environ if OF_LIBRARIES.match(name)]:
        del os.environ[name]
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else each bad call writes lines to stderr, whose reader may block
    from listwright.service.commands.serve import main as serve  # noqa: PLC0415

    return serve(arguments)


if __name__ == "__main__":
    sys.exit(main())
