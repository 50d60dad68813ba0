"""A Ray cluster of one-core nodes on this machine, and commands that run on it in a process of their own."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

from support.http.processes import free_port
from support.waiting import until

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
NODE = {"num_cpus": 1, "object_store_memory": 128 * 2**20, "include_dashboard": False}
LIMIT_S = 300
STARTS = 8  # Ray gives a node 30 s to report, which no setting changes; a busy machine needs more at first


class OnRay:
    """One node that stays, and others that tests add and kill."""

    def __init__(self):
        os.environ.update(QUIET)  # what the nodes inherit
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._start(lambda: {"ray_client_server_port": self._new_port()})
        self.address = self._cluster.address

    def add(self):
        """One more core."""
        return self._start(dict)

    def _new_port(self):
        """For clients of the head; one that started too late may hold the last one."""
        port = free_port()
        self.client = f"ray://127.0.0.1:{port}"
        return port

    def _start(self, more):
        """A node; the processes of one that started too late end with this process."""
        for _ in range(STARTS - 1):
            with suppress(Exception):  # Ray has no class of its own for it
                return self._cluster.add_node(**NODE, **more())
        return self._cluster.add_node(**NODE, **more())

    def kill(self, node):
        """As a machine that loses its power."""
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self):
        self._cluster.shutdown()

    def start(self, command, *arguments, room_s=60, on="auto"):
        """``listwright COMMAND ARGUMENTS --on auto``, under way."""
        words = [sys.executable, "-m", "listwright", command, *map(str, arguments), "--on", on]
        environment = {**os.environ, **QUIET, "RAY_ADDRESS": self.address, "LISTWRIGHT_ROOM_S": str(room_s)}
        return subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def run(self, command, *arguments, **options):
        """The same to its end: exit status and output."""
        return ended(self.start(command, *arguments, **options))

    def run_and_lose_nodes(self, command, *arguments, when):
        """The same on two nodes; as each of ``when`` gets true, the second one is killed, and another one comes."""
        node = self.add()
        process = self.start(command, *arguments)
        output = []
        reader = threading.Thread(target=lambda: output.extend(process.stdout), daemon=True)
        reader.start()  # a full pipe would stop the command
        try:
            for due in when:
                until(lambda due=due: due() or process.poll() is not None)
                assert process.poll() is None, "".join(output)
                self.kill(node)
                node = self.add()
            status = process.wait(LIMIT_S)
        finally:
            process.kill()
            self.kill(node)
        reader.join(10)
        process.stdout.close()
        return status, "".join(output)


def ended(process):
    """Exit status and output of a process, within bounds."""
    with process:
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    return process.returncode, output


@contextmanager
def cluster():
    """Up to the end of the block."""
    found = OnRay()
    try:
        yield found
    finally:
        found.stop()
