"""The table about precision is the committed measurement, and the limits are those of the code."""

from listwright.training.cluster.connection import OBJECT_STORE_BYTES, ROOM_S
from listwright.training.first_stage.data_parallel import SEGMENT
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/ray.md")
MOST_LOST = 0.005
"""NDCG@10 that bfloat16 may cost."""


def precisions():
    """NDCG@10 of either precision."""
    rows = [
        [
            name,
            *(f"{found['ndcg@10'][precision]:.4f}" for precision in ("float32", "bfloat16")),
            f"{found['difference']:+.4f} ± {found['standard_error']:.4f}",
            "**held**" if abs(found["difference"]) <= MOST_LOST else "not held",
        ]
        for name, found in result("precision")["models"].items()
    ]
    return table(
        ["network", "NDCG@10, float32", "NDCG@10, bfloat16", "difference ± standard error", f"within {MOST_LOST}"], rows
    )


def test_the_tables_are_the_committed_runs():
    assert blocks(PAGE) == [precisions()]


def test_the_committed_run_is_of_a_cpu_and_of_several_seeds():
    run = result("precision")
    assert run["device"] == "cpu"
    assert run["seeds"] >= 3
    assert all(len(found["difference_by_seed"]) == run["seeds"] for found in run["models"].values())


def test_the_numbers_of_the_page_are_those_of_the_code():
    assert f"`LISTWRIGHT_ROOM_S` seconds (default: {ROOM_S:.0f})" in PAGE
    assert f"{OBJECT_STORE_BYTES // 2**20} MiB of shared memory" in PAGE
    assert f"`fit`, LightGBM | {SEGMENT} trees" in PAGE
