"""A Ray cluster of one-core nodes on this machine, and commands that run on it in a process of their own."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager

from support.http.processes import free_port
from support.waiting import until

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
NODE = {"num_cpus": 1, "object_store_memory": 128 * 2**20, "include_dashboard": False}
LIMIT_S = 300


class OnRay:
    """One node that stays, and others that tests add and kill."""

    def __init__(self):
        os.environ.update(QUIET)  # what the nodes inherit
        from ray.cluster_utils import Cluster

        port = free_port()
        head = {**NODE, "ray_client_server_port": port}
        self._cluster = Cluster(initialize_head=True, connect=False, head_node_args=head)
        self.address, self.client = self._cluster.address, f"ray://127.0.0.1:{port}"

    def add(self):
        """One more core."""
        return self._cluster.add_node(**NODE)

    def kill(self, node):
        """As a machine that loses its power."""
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self):
        self._cluster.shutdown()

    def start(self, command, *arguments, room_s=60, on="auto"):
        """``listwright COMMAND ARGUMENTS --on auto``, under way."""
        words = [sys.executable, "-m", f"listwright.training.{command}", *map(str, arguments), "--on", on]
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
