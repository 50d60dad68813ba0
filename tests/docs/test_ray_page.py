"""The tables about Ray and about precision are the committed measurements."""

from listwright.training.cluster import ROOM_S
from listwright.training.first_stage.data_parallel import SEGMENT
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/ray.md")
TEXT = " ".join(PAGE.split())
DECISION = page("docs/decisions/0011-ray-tasks-and-actors.md")
MOST_LOST = 0.005
"""NDCG@10 that bfloat16 may cost."""


def costs():
    """Start, memory, and what a second node brings."""
    run = result("on_ray")
    start, nodes = run["start"], run["nodes"]
    return table(
        ["what", "figure"],
        [
            ["from `--on ray` to the first finished task, s", f"{start['seconds']:.1f}"],
            ["memory of an idle Ray, MiB", start["processes_mib"]],
            ["memory of the command, MiB", start["command_mib"]],
            [
                f"{nodes['fits']} fits: speed-up by a second node of one core",
                f"{nodes['speed_up']['ray']:.2f}",
            ],
            ["the same by a second process, without Ray", f"{nodes['speed_up']['processes']:.2f}"],
        ],
    )


def epochs():
    """Seconds of an epoch on the GPU's machine."""
    rows = [
        [
            name,
            *(f"{found[way]:.3f}" for way in ("cpu", "float32", "bfloat16")),
            f"{found['cpu'] / found['float32']:.1f}",
        ]
        for name, found in result("gpu")["seconds"].items()
    ]
    return table(["network", "16 cores, s", "GPU, float32, s", "GPU, bfloat16, s", "speed-up, float32"], rows)


def scoring():
    """Tasks and Ray Data on the same parts."""
    run = result("on_ray")["scoring"]
    rows = [
        [title, f"{run['first_round_seconds'][way]:.1f}", f"{run['seconds'][way]:.1f}"]
        for way, title in (("tasks", "tasks"), ("ray_data", "Ray Data"))
    ]
    return table([f"{run['rows']:,} rows in {run['parts']} parts", "first round, s", "later rounds, median, s"], rows)


def test_the_tables_are_the_committed_runs():
    assert blocks(PAGE) == [costs(), epochs()]
    assert blocks(DECISION) == [scoring()]


def test_the_committed_runs_are_of_a_cpu_and_a_gpu_and_of_several_seeds():
    for name, device in (("precision", "cpu"), ("precision_cuda", "cuda")):
        run = result(name)
        assert run["device"].startswith(device)
        assert run["seeds"] >= 3
        assert set(run["models"]) == {"qilcm", "mlp", "dlcm"}
        assert all(abs(found["difference"]) <= MOST_LOST for found in run["models"].values())
        assert all(abs(found["difference"]) < 2.0 * found["standard_error"] for found in run["models"].values())
        assert all(len(found["difference_by_seed"]) == run["seeds"] for found in run["models"].values())
    run = result("gpu")
    assert list(run["ranks"]) == ["1"], "the page says that several GPUs were not measured"
    assert f"an epoch of QILCM took {run['ranks']['1']:.3f} s" in TEXT
    assert run["machine"]["cores"] == 16


def test_the_numbers_of_the_page_are_those_of_the_code():
    assert f"`LISTWRIGHT_ROOM_S` seconds (default: {ROOM_S:.0f})" in TEXT
    assert f"`fit`, LightGBM | {SEGMENT} trees" in PAGE
