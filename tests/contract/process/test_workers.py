"""Several workers: one version, one port, nobody missed, and an end that says why."""

import shutil
import signal
import time
from pathlib import Path

import httpx
import pytest

from listwright.service.bundles import folder
from support.http.processes import Process
from support.http.rerank_requests import BODY
from support.http.worker_processes import ask, both_ready, log_messages, versions, workers
from support.service.bundles import make_bundle
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.nightly  # processes start and stop


def find_handled_signals(pid):
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {number for number in signal.Signals if int(lines["SigCgt"], 16) >> (number - 1) & 1}


def test_sighup_reaches_all_workers(models, serve):
    service = both_ready(serve(models=models, workers=2, poll_s=0))
    folder.point(models, "shop", "2")
    service.process.send_signal(signal.SIGHUP)
    until(lambda: len(log_messages(service, "serving shop/2 instead of 1")) == 2)
    assert versions(service) == {"2"}
    assert service.stop()[0] == 0


def test_sighup_reaches_a_single_process_too(models, serve):
    service = serve(models=models, poll_s=0)
    folder.point(models, "shop", "2")
    service.process.send_signal(signal.SIGHUP)
    until(lambda: versions(service) == {"2"})


@pytest.mark.parametrize("count", [1, 2])
def test_sighup_ends_no_start(models, count):
    service = Process(models=models, workers=count, poll_s=0)
    until(lambda: signal.SIGTERM in find_handled_signals(service.process.pid))  # before anything is imported
    for _ in range(20):
        service.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
    assert ask(service.wait_until_ready()).status_code == 200
    assert service.stop()[0] == 0


def test_what_one_worker_is_told_the_others_hear_of(models, serve):
    service = both_ready(serve(models=models, workers=2, poll_s=0, admin_key="0123456789abcdef"))
    folder.point(models, "shop", "2")
    answer = httpx.post(service.url + "/admin/reload", headers={"Authorization": "Bearer 0123456789abcdef"})
    assert answer.status_code == 200
    until(lambda: len(log_messages(service, "serving shop/2 instead of 1")) == 2)
    assert versions(service) == {"2"}


def test_a_killed_worker_is_replaced_and_the_others_serve_on(models, serve):
    service = both_ready(serve(models=models, workers=2))
    workers(service)[0].kill()
    assert [ask(service).status_code for _ in range(20)] == [200] * 20
    until(lambda: len(log_messages(service, "serving shop/1 from")) == 3)
    assert log_messages(service, "ended by SIGKILL: another is started in 0 s")
    code, log = service.stop()
    assert code == 0, log


def test_a_worker_that_is_replaced_does_not_fail_over_what_the_others_have_refused(models, serve):
    service = both_ready(serve(models=models, workers=2, poll_s=0.05))
    (models / "shop" / "2" / "qilcm.onnx").unlink()
    folder.point(models, "shop", "2")
    until(lambda: len(log_messages(service, "1 serves on")) == 2)
    workers(service)[0].kill()
    until(lambda: len(log_messages(service, "serving shop/1 from")) == 3)
    assert versions(service) == {"1"}
    assert log_messages(service, "refused shop/2: qilcm.onnx: does not exist")


def test_a_worker_that_is_replaced_keeps_what_the_others_keep(models, serve):
    service = both_ready(serve(models=models, workers=2, poll_s=0.05, admin_key="0123456789abcdef"))
    folder.point(models, "shop", "2")
    until(lambda: len(log_messages(service, "serving shop/2 instead of 1")) == 2)
    workers(service)[0].kill()
    until(lambda: len(log_messages(service, "serving shop/2 from")) == 1)
    until(lambda: len(workers(service)) == 2)
    asked = [httpx.post(service.url + "/rerank", json=BODY | {"version": "1"}, timeout=PATIENCE_S) for _ in range(20)]
    assert {answer.status_code for answer in asked} == {200}
    before = workers(service)[0]
    before.kill()
    before.wait(PATIENCE_S)  # else it might still take the request; only one is left, which was started anew
    answer = httpx.post(service.url + "/admin/rollback", headers={"Authorization": "Bearer 0123456789abcdef"})
    assert answer.status_code == 200, answer.text
    until(lambda: versions(service) == {"1"})


def test_a_worker_that_missed_a_version_keeps_what_the_others_keep(models, serve):
    """One that was stopped saw 1 and 3, the other 1, 2 and 3."""
    make_bundle(models / "shop" / "3", seed=3)
    service = both_ready(serve(models=models, workers=2, poll_s=0.05))
    late, other = workers(service)
    late.suspend()
    folder.point(models, "shop", "2")
    until(lambda: log_messages(service, "serving shop/2 instead of 1"))
    folder.point(models, "shop", "3")
    until(lambda: log_messages(service, "serving shop/3 instead of 2"))
    late.resume()
    until(lambda: log_messages(service, "serving shop/3 instead of 1"))

    def kept():
        url = service.url + "/info"
        return {tuple(m["kept"] for m in httpx.get(url).json()["models"]) for _ in range(20)}

    until(lambda: kept() == {("2",)})
    assert other.is_running()


def test_workers_that_are_killed_while_they_load_are_tried_again(models, serve):
    """As the system does where memory runs out."""
    service = Process(models=models, workers=2)
    until(lambda: len(workers(service)) == 2)
    for worker in workers(service):
        worker.kill()
    until(lambda: len(log_messages(service, "ended by SIGKILL: another is started")) == 2)
    service.wait_until_ready()
    code, log = service.stop()
    assert code == 0, log


@pytest.mark.parametrize("count", [1, 2])
def test_nothing_to_serve_is_an_end_that_says_why(models, count):
    (models / "shop" / "1" / "qilcm.onnx").unlink()
    service = Process(models=models, workers=count, poll_s=0)
    code, log = service.wait()
    assert code == 1
    assert log.count("error: ") == 1, "said once, whatever the number of workers"
    assert f"error: {models}/shop/1/qilcm.onnx: does not exist, although the manifest lists it\n" in log
    assert "Traceback" not in log


def test_an_empty_folder_is_an_end_that_says_why(tmp_path):
    code, log = Process(models=tmp_path, poll_s=0).wait()
    assert code == 1
    assert log.startswith(f"error: {tmp_path}: holds no NAME/CURRENT, so there is nothing to serve: ")
    assert log.count("\n") == 1


def test_when_no_worker_can_serve_any_more_the_process_ends(models, serve):
    service = both_ready(serve(models=models, workers=2, poll_s=0))
    shutil.rmtree(models / "shop" / "1")
    one, other = workers(service)
    one.kill()
    until(lambda: "shop/1/manifest.json: does not exist" in service.log())  # by then the other has said that it serves
    other.kill()
    code, log = service.wait()
    assert code == 1, log
    assert "shop/1/manifest.json: does not exist" in log
    assert "before it could serve, and no other serves: stopping" in log


def test_a_taken_port_is_an_error_with_several_workers_too(models, serve):
    service = serve(models=models)
    code, log = Process(models=models, workers=2, port=service.url.rpartition(":")[2]).wait()
    assert code == 3
    assert "is in use" in log


@pytest.mark.parametrize("count", [1, 2])
def test_every_address_is_both_families_with_one_worker_and_with_several(models, serve, count):
    service = serve(models=models, workers=count, host="::")  # asked over IPv4 until it is ready
    port = service.url.rpartition(":")[2]
    for host in ("127.0.0.1", "[::1]"):
        assert httpx.get(f"http://{host}:{port}/readyz").status_code == 200
    taken = Process(models=models, workers=3 - count, host="0.0.0.0", port=port)
    code, log = taken.wait()
    assert (code, "is in use" in log) == (3, True)


def test_workers_do_not_outlive_their_supervisor(models, serve):
    service = both_ready(serve(models=models, workers=2))
    left = workers(service)
    service.process.kill()
    service.process.wait()
    until(lambda: not any(process.is_running() and process.status() != "zombie" for process in left))
