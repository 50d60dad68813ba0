"""A real redis-server, on a port of its own."""

import shutil
import subprocess
import time

import pytest

from support.http.processes import free_port


class RedisServer:
    """Keeps nothing on the disk; may be stopped and started again on the same port."""

    def __init__(self, folder):
        self.port, self._folder, self._process = free_port(), folder, None
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self, *more):
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("no redis-server: Debian's package redis-server has it")
        self._process = subprocess.Popen(
            [program, "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", str(self._folder), *more],
            stdout=subprocess.DEVNULL,
        )
        end = time.monotonic() + 60.0
        while not self._answers():
            assert time.monotonic() < end, "redis-server does not start"
            time.sleep(0.02)
        return self

    def _answers(self):
        import redis

        with self.client() as client:
            try:
                return client.ping()
            except redis.ConnectionError:
                return False

    def client(self):
        import redis

        return redis.Redis(port=self.port)

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
