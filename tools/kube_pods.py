"""Pods of a rendered Deployment on podman, as a Deployment's controller and a kubelet would run them.

``podman play kube`` starts a pod with its init containers, volumes and limits. It knows no rollout, no probe of HTTP
without curl in the image, and no ``preStop``: these are done here, as the rendered objects say.
"""

from __future__ import annotations

import copy
import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml

START_WITHIN_S = 120.0
COMMAND_WITHIN_S = 120.0


def podman(*arguments: str) -> str:
    """Run a podman command and return its output.

    Raises:
        RuntimeError: if it fails; holds what it said.
    """
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False, timeout=COMMAND_WITHIN_S)
    if done.returncode != 0:
        raise RuntimeError(f"podman {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


class Pod:
    """One pod of a Deployment, listening on a port of this machine.

    Args:
        objects: Objects that the chart renders; a ConfigMap and a Deployment among them.
        name: Name of the pod.
        port: Port of this machine.
        folder: Folder to write the pod's manifest into.
    """

    def __init__(self, objects: list[dict[str, Any]], name: str, port: int, folder: Path) -> None:
        by_kind = {item["kind"]: item for item in objects}
        self.name, self.port = name, port
        self._file = folder / f"{name}.yaml"
        self._template = copy.deepcopy(by_kind["Deployment"]["spec"]["template"])
        (self._served,) = self._template["spec"]["containers"]
        self._container = f"{name}-{self._served['name']}"
        self._settings = [item for item in objects if item["kind"] == "ConfigMap"]

    def start(self) -> None:
        """Start it, and wait until its readiness probe succeeds."""
        self._file.write_text(yaml.safe_dump_all([*self._settings, self._manifest()]), encoding="utf-8")
        podman("play", "kube", str(self._file))
        end = time.monotonic() + START_WITHIN_S
        while not self._ready():
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name} is not ready within {START_WITHIN_S:.0f} s:\n{self.log()}")
            time.sleep(0.1)

    def stop(self) -> int:
        """End it as a kubelet would: ``preStop``, SIGTERM, SIGKILL after the grace period; its exit code."""
        hook = self._served["lifecycle"]["preStop"]["exec"]["command"]
        began = time.monotonic()
        podman("exec", self._container, *hook)
        left = self._template["spec"]["terminationGracePeriodSeconds"] - (time.monotonic() - began)
        podman("stop", "-t", str(max(1, round(left))), self._container)
        code = int(podman("inspect", self._container, "--format", "{{.State.ExitCode}}"))
        self.remove()
        return code

    def kill(self) -> None:
        """Send SIGKILL to the pod's first process, and wait until it is dead."""
        podman("kill", "-s", "KILL", self._container)
        podman("wait", self._container)

    def remove(self) -> None:
        """Remove what is left of it, if anything is."""
        podman("pod", "rm", "--force", "--ignore", "--time", "0", self.name)

    def info(self) -> dict[str, Any]:
        """Return the answer to ``GET /info``."""
        with self._get("/info") as answer:
            facts: dict[str, Any] = json.load(answer)
        return facts

    def files(self, folder: str) -> list[str]:
        """List the names in a folder of the service's container."""
        return podman("exec", self._container, "ls", folder).split()

    def log(self) -> str:
        """Return the last lines of the pod's log."""
        done = subprocess.run(["podman", "logs", "--tail", "20", self._container], capture_output=True, check=False)
        return (done.stdout + done.stderr).decode(errors="replace")

    def _manifest(self) -> dict[str, Any]:
        spec = copy.deepcopy(self._template["spec"])
        spec["restartPolicy"] = "Never"  # who is killed is replaced, as by a controller
        spec["containers"][0]["ports"][0]["hostPort"] = self.port
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            del spec["containers"][0][probe]  # podman would ask by curl inside; see _ready
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "labels": self._template["metadata"]["labels"]},
            "spec": spec,
        }

    def _ready(self) -> bool:
        try:
            with self._get(self._served["readinessProbe"]["httpGet"]["path"]) as answer:
                return answer.status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    @contextmanager
    def _get(self, path: str) -> Iterator[http.client.HTTPResponse]:
        within_s = self._served["readinessProbe"]["timeoutSeconds"]
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=within_s)) as connection:
            connection.request("GET", path)
            yield connection.getresponse()
