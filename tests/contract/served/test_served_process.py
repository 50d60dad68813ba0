"""The served log of a real service: killed, stopped, on a full disk, with a stream."""

import os
import shutil
import signal
import subprocess
import threading

import httpx
import numpy as np
import pytest

from listwright.ranking.served_log import files
from support.http.binary_requests import saved
from support.http.processes import Process
from support.http.worker_processes import ask, both_ready, workers
from support.redis_server import RedisServer
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.nightly  # processes start and stop

BODY = saved(np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32) * [1, 1, 1, 0])


class Load:
    """Requests one after the other, each with a query id of its own, until it is told to stop."""

    def __init__(self, service, callers=2):
        self.answered, self.statuses, self._service, self._stop = [], set(), service, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(callers)]

    def _ask(self, caller):
        number, client = 0, httpx.Client(base_url=self._service.url, timeout=PATIENCE_S)
        while not self._stop.is_set():
            query_id, number = f"{caller}-{number}", number + 1
            try:
                answer = client.post(
                    f"/rerank?query_id={query_id}", content=BODY, headers={"content-type": "application/x-npy"}
                )
            except httpx.TransportError:
                client.close()
                client = httpx.Client(base_url=self._service.url, timeout=PATIENCE_S)
                continue
            self.statuses.add(answer.status_code)
            self.answered.append(query_id)
        client.close()

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def logged(folder, **which):
    return [record.query_id for record in files.records(files.log_files(folder, **which))]


@pytest.fixture
def log(tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    return folder


def test_a_stop_loses_nothing(models, serve, log):
    service = both_ready(serve(models=models, workers=2, served_log=log, drain_s=0.2))
    with Load(service) as load:
        until(lambda: len(load.answered) > 50)
    code, output = service.stop()
    assert code == 0, output
    assert sorted(logged(log, unfinished=False)) == sorted(load.answered)
    assert files.log_files(log) == files.log_files(log, unfinished=False)
    assert {path.stat().st_mode & 0o777 for path in log.iterdir()} == {0o600}


def test_sigkill_under_load_loses_the_last_block_at_most(models, serve, log):
    settings = {"models": models, "served_log": log, "served_file_bytes": 2**16, "served_flush_s": 0.05}
    service = serve(**settings, served_max_bytes=2**30)
    with Load(service, callers=3) as load:
        until(lambda: len(files.log_files(log, unfinished=False)) >= 4)
        service.process.kill()
        service.process.wait()
    finished = files.log_files(log, unfinished=False)
    for path in finished:
        assert not files.frame(path).cut_off
        assert files.frame(path).records > 0
    found = logged(log)
    assert len(found) == len(set(found))
    assert len(set(load.answered) & set(found)) >= len(finished)
    left = [path for path in files.log_files(log) if path not in finished]
    whole = {path.name.removesuffix(".part"): files.frame(path).records for path in left}
    again = serve(**settings, served_max_bytes=2**30)
    until(lambda: all(not path.exists() for path in left))
    for name, records in whole.items():
        if records:
            assert files.frame(log / name).records == records
    ask(again)
    assert again.stop()[0] == 0
    assert set(found) <= set(logged(log, unfinished=False))


def test_a_killed_worker_loses_the_last_block_at_most(models, serve, log):
    service = both_ready(serve(models=models, workers=2, served_log=log, served_flush_s=0.05))
    with Load(service) as load:
        killed = until(lambda: next((worker for worker in workers(service) if _has_logged(worker, log)), None))
        before = set(logged(log))
        killed.kill()
        until(lambda: any(f"-{killed.pid}.avro" in path.name for path in files.log_files(log, unfinished=False)))
    assert load.statuses == {200}
    assert service.stop()[0] == 0
    found = logged(log, unfinished=False)
    assert before <= set(found)
    assert len(found) == len(set(found))


def _has_logged(worker, log):
    """Whether it has served more than ten lists: with few connections, the other worker may have all of them."""
    own = [path for path in files.log_files(log) if f"-{worker.pid}.avro" in path.name]
    return sum(1 for _ in files.records(own)) > 10


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("no small disk: mounting a tmpfs needs mount and root")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no small disk: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def metric(service, name):
    text = httpx.get(service.url + "/metrics", timeout=PATIENCE_S).text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def test_a_full_disk_harms_no_answer_and_the_log_goes_on_when_there_is_room(models, serve, small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(900_000))
    service = serve(models=models, served_log=small_disk, served_flush_s=0.05, served_file_bytes=2**18)
    full = 'listwright_served_dropped_total{reason="disk_full"}'
    with Load(service) as load:
        until(lambda: metric(service, full) > 0)
        before = len(logged(small_disk))
        ballast.unlink()
        until(lambda: len(logged(small_disk)) > before)
    assert load.statuses == {200}
    code, output = service.stop()
    assert code == 0, output
    assert output.count("No space left on device") <= 3
    found = logged(small_disk)
    assert len(found) == len(set(found)) > before
    assert set(found) <= set(load.answered)


def test_a_stopped_redis_server_holds_up_no_answer(models, serve, tmp_path):
    server = RedisServer(tmp_path).start()
    try:
        service = serve(models=models, served_stream=server.url)
        ask(service)
        until(lambda: metric(service, 'listwright_served_records_total{sink="stream"}') == 1)
        server._process.send_signal(signal.SIGSTOP)
        assert [ask(service).status_code for _ in range(20)] == [200] * 20
        server._process.send_signal(signal.SIGCONT)
        until(lambda: metric(service, 'listwright_served_records_total{sink="stream"}') == 21)
        assert service.stop()[0] == 0
    finally:
        server.stop()


def test_a_log_that_cannot_be_is_refused_at_the_start(models, tmp_path):
    (tmp_path / "file").touch()
    service = Process(models=models, served_log=tmp_path / "file")
    code, output = service.wait()
    assert code == 2
    assert f"LISTWRIGHT_SERVED_LOG: {tmp_path / 'file'}" in output
