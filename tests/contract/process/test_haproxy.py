"""Behind a real haproxy, which retries nothing: a rolling restart loses no request. benchmarks/load/drain.py does more."""

import shutil

import pytest

from benchmarks.load import drain
from support.http.processes import SERVING_ONLY


@pytest.mark.nightly
def test_a_rolling_restart_loses_nothing(bundle_folder, monkeypatch):
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not installed: apt-get install haproxy")
    monkeypatch.setenv("PYTHONPATH", SERVING_ONLY)
    services = []
    try:
        services += [drain.Service(bundle_folder), drain.Service(bundle_folder)]
        with drain.behind_haproxy(services) as port:
            restart = drain.rolling_restart(services, port, drain.golden_body(bundle_folder), 500)
        assert drain.lost(restart) == 0, restart
        assert restart["exit_codes"] == [0, 0]
    finally:
        for service in services:
            service.stop()
