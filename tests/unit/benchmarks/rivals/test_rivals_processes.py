"""A server is stopped with every process that it started, whatever they do to get away."""

import os
import subprocess
import sys

import psutil
import pytest

from benchmarks.rivals import cores, environments
from benchmarks.rivals.processes import MARK, NotServingError, first_answer, free_port, running
from support.waiting import until

EVERY_CORE = cores.shared().servers
ORPHAN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
PARENT = f"""
import subprocess, sys, time
orphan = subprocess.Popen([sys.executable, "-c", {ORPHAN!r}], start_new_session=True, stdout=subprocess.PIPE)
orphan.stdout.readline()
print(orphan.pid, flush=True)
"""


def has_ended(process):
    """A zombie has; whether anybody takes note of its end is not the server's concern."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_orphan_that_ignores_sigterm_is_found_by_its_mark_and_ended(tmp_path):
    log = tmp_path / "log"
    with running([sys.executable, "-c", PARENT], {}, log, EVERY_CORE) as server:
        until(lambda: server.process.poll() is not None)  # the parent has gone: the orphan has no family
        orphan = psutil.Process(int(log.read_text()))
        assert [member.pid for member in server.family()] == [orphan.pid]
    until(lambda: has_ended(orphan))


def test_processes_that_are_not_the_servers_live_on(tmp_path):
    marked = {**os.environ, MARK: "another run"}
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, env=marked) as other:
        try:
            assert other.stdout.readline() == b"up\n"
            with running([sys.executable, "-c", ORPHAN], {}, tmp_path / "log", EVERY_CORE):
                pass
            assert other.poll() is None
        finally:
            other.kill()


def test_a_server_that_stops_is_told_with_its_last_line(tmp_path):
    dies = "import sys; print('starting'); sys.exit('no such file: first_stage.txt')"
    with (
        running([sys.executable, "-c", dies], {}, tmp_path / "log", EVERY_CORE) as server,
        pytest.raises(NotServingError, match=r"exit code 1, its last line: no such file: first_stage\.txt"),
    ):
        first_answer(server, free_port(), "/rerank", "application/json", b"{}")


def test_every_environment_is_pinned_and_scores_with_our_versions_of_the_engines():
    ours = dict(
        line.split("==")
        for line in (environments.ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
    files = sorted(environments.REQUIREMENTS.glob("*.txt"))
    assert [path.stem for path in files] == ["bentoml", "fastapi", "gunicorn", "k6", "litserve", "mlserver", "ray"]
    for path in files:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        assert [line for line in lines if "==" not in line] == []
        if path.stem not in ("gunicorn", "k6"):  # these score nothing
            engines = environments.versions(path.stem, "lightgbm", "onnxruntime")
            assert engines == {name: ours[name] for name in engines}


def test_what_does_not_install_says_why(tmp_path, monkeypatch):
    (tmp_path / "nobody.txt").write_text("./no-such-folder-of-a-package\n", encoding="utf-8")
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(environments, "BUILD", tmp_path / "build")
    with pytest.raises(environments.NotInstallableError, match="no-such-folder"):
        environments.prepare("nobody")
