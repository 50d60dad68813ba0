"""``listwright serve`` as a process of its own, on a real port."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

from support.waiting import PATIENCE_S, until

SERVING_ONLY = str(Path(__file__).resolve().parent / "serving_only")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """``listwright serve`` on a real port; run by another command, if one is given."""

    def __init__(self, *before, **settings):
        self.url = f"http://127.0.0.1:{settings.setdefault('port', free_port())}"
        names = {f"LISTWRIGHT_{name.upper()}": str(value) for name, value in settings.items()}
        # not a pipe: unread, it would fill up and block the service
        self.output = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "service"],
            env={
                **os.environ,
                **names,
                "PYTHONPATH": os.pathsep.join([SERVING_ONLY, os.environ.get("PYTHONPATH", "")]),
            },
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def log(self):
        """What it has written so far."""
        self.output.seek(0)
        return self.output.read()

    def wait_until_ready(self):
        until(self.ready)
        return self

    def ready(self, client=httpx):
        """Whether it takes requests; an error with its log if it has ended."""
        assert self.process.poll() is None, self.log()
        try:
            return client.get(self.url + "/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self):
        """SIGTERM; returns the exit code and what was logged."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self):
        """Wait for the end; returns the exit code and what was logged."""
        code = self.process.wait(timeout=PATIENCE_S)
        with self.output:
            return code, self.log()
