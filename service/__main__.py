"""``python -m service``: serve bundles over HTTP."""

import os
import signal
import sys
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal wants it
    """End at once, as the system would by itself; but not the first process of a container, which it protects."""
    os._exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)  # before the imports, which take a second; until the server heeds it
    signal.signal(signal.SIGINT, _end)
    from service.command_line import main

    sys.exit(main())
