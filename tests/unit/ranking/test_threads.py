"""The number of cores and threads, on systems that files stand in for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from listwright.ranking.threads import cores, threads

V1_MOUNT = "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
V2_MOUNT = "35 24 0:30 {top} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
OTHERS = "22 1 8:1 / / rw - ext4 /dev/vda rw\n33 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def system(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    contents = {"proc/self/cgroup": cgroup, "proc/self/mountinfo": OTHERS + mounts}
    for name, text in (contents | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def v1(folder: str, quota: int, period: int = 100_000) -> dict[str, str]:
    place = f"cpu,cpuacct/{folder}cpu.cfs_"
    return {f"{place}quota_us": f"{quota}\n", f"{place}period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("50000 100000", 1),
        ("250000 100000", 2),
        ("300000 100000", 3),
        ("max 100000", 8),
        ("2000000 100000", 8),
        ("", 8),
    ],
)
def test_a_quota_of_version_2_bounds_the_cores(tmp_path, quota, expected):
    root = system(tmp_path, "0::/app\n", V2_MOUNT.format(top="/"), {"app/cpu.max": quota, "app/cgroup.procs": ""})
    assert cores(root) == expected


@pytest.mark.parametrize(("quota", "expected"), [(50_000, 1), (350_000, 3), (-1, 8)])
def test_a_quota_of_version_1_bounds_the_cores(tmp_path, quota, expected):
    files = v1("app/", quota) | {"memory/app/cpu.max": "100000 100000", "cpu,cpuacct/cpu.shares": "1024"}
    root = system(tmp_path, "6:memory:/app\n4:cpu,cpuacct:/app\n0::/\n", V1_MOUNT.format(top="/"), files)
    assert cores(root) == expected


def test_the_lowest_quota_of_the_ancestors_counts(tmp_path):
    files = {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000", "cpu.max": "600000 100000"}
    root = system(tmp_path / "2", "0::/a/b\n", V2_MOUNT.format(top="/"), files | {"other/cpu.max": "100000 100000"})
    assert cores(root) == 2
    files = v1("a/b/", 700_000) | v1("a/", -1) | v1("", 500_000)
    assert cores(system(tmp_path / "1", "4:cpu,cpuacct:/a/b\n", V1_MOUNT.format(top="/"), files)) == 5


@pytest.mark.parametrize(
    ("path", "top"), [("/docker/7f", "/docker/7f"), ("/", "/"), ("/docker/7f", "/elsewhere"), ("/../7f", "/")]
)
def test_a_container_finds_its_quota_at_the_top_of_its_mount(tmp_path, path, top):
    files = {"cpu.max": "150000 50000"}
    assert cores(system(tmp_path / "2", f"0::{path}\n", V2_MOUNT.format(top=top), files)) == 3
    files = v1("", 200_000)
    assert cores(system(tmp_path / "1", f"4:cpu,cpuacct:{path}\n", V1_MOUNT.format(top=top), files)) == 2


def test_in_a_mixed_system_either_version_counts(tmp_path):
    mounts = V1_MOUNT.format(top="/") + V2_MOUNT.format(top="/").replace("cgroup rw,nosuid", "cgroup/unified rw,nosuid")
    cgroup = "4:cpu,cpuacct:/a\n0::/b\n"
    files = v1("a/", 400_000)
    assert cores(system(tmp_path, cgroup, mounts, files)) == 4
    assert cores(system(tmp_path, cgroup, mounts, files | {"unified/b/cpu.max": "300000 100000"})) == 3


def test_without_control_groups_the_affinity_counts(tmp_path, monkeypatch):
    assert cores(tmp_path) == 8
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores(tmp_path) == 6


@pytest.mark.parametrize(
    ("given", "fewest"), [("1", 1), ("2,4", 2), (" 1 ", 1), ("64", 8), ("0", 8), ("-1", 8), ("auto", 8), ("", 8)]
)
def test_omp_num_threads_means_fewer_threads_and_no_fewer_cores(monkeypatch, given, fewest):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert threads() == min(fewest, cores())
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads() == cores()


PRINT_THREADS = """
import os, runpy, sys
from listwright.ranking.threads import threads
sys.argv = ["listwright", "verify", "--help"]
try:
    runpy.run_module("listwright", run_name="__main__")
except SystemExit:
    pass
import numpy, threadpoolctl
used = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
print(threads(), *used, os.environ["OMP_NUM_THREADS"], os.environ["OMP_WAIT_POLICY"])
"""


@pytest.mark.parametrize("given", [None, "1"])
def test_a_command_gives_libraries_the_same_number_of_threads(given):
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "OPENBLAS_"))}
    variables |= {} if given is None else {"OMP_NUM_THREADS": given}
    command = [sys.executable, "-c", PRINT_THREADS]
    said = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    expected, *others = said.splitlines()[-1].split()
    assert others == [expected, expected, "PASSIVE"]
    assert given is None or expected == given
