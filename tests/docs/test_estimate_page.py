"""``docs/estimate.md``: its figures are the committed runs."""

from listwright_lab.science.bundle_order import BUNDLES, DRAFTS
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/estimate.md")
TEXT = " ".join(PAGE.split())
RUN, BANDIT = result("estimate"), result("open_bandit")["results"]
NAMES = {"planted": "planted", "mq2008": "MQ2008", "tafeng": "Ta Feng"}
SWAPS = ("with", "without")
ESTIMATORS = ("dr", "snips")
BANDIT_ESTIMATORS = {
    "IPS": "ips",
    "SNIPS": "snips",
    "DM": "dm",
    "DR": "dr",
    "DRos": "dros",
    "Listwright's `dr`": "listwright dr",
}


def cell(name, strength, swaps, clicks="by place"):
    return RUN["cells"][f"{name}, strength {strength:g}, {swaps} swaps, clicks {clicks}"]


def errors():
    rows = []
    for name, shown in NAMES.items():
        for strength in (1.0, 1.5):
            pair = [cell(name, strength, swaps) for swaps in SWAPS]
            covered = " / ".join(f"{100 * each['covered']['dr'][0]:.0f}" for each in pair)
            rmse = (" / ".join(f"{each['errors'][kind]['rmse']:.4f}" for each in pair) for kind in ESTIMATORS)
            rows.append([shown, f"{strength:g}", f"{pair[0]['true']:.3f}", covered, *rmse])
    head = ["data", "strength", "true change", "held, %", *(f"`{kind}` error" for kind in ESTIMATORS)]
    return table(head, rows)


def orders():
    rows = []
    for name, found in RUN["order"].items():
        for lists, means in found["by_lists"].items():
            needed = found["queries_for_the_same"][lists]
            shown = f"> {BUNDLES * DRAFTS[-1]:,}" if needed is None else f"{int(float(f'{needed:.2g}')):,}"
            rows.append([NAMES[name], f"{int(lists):,}", *(f"{means[kind][0]:.2f}" for kind in ("dr", "naive")), shown])
    return table(["data", "lists", "`dr`", "NDCG on clicks", "interleaved queries for as much"], rows)


def bandit():
    of = {
        shown: sum(each["estimates"][name]["absolute_error"] for each in BANDIT) / len(BANDIT)
        for shown, name in BANDIT_ESTIMATORS.items()
    }
    return table(list(of), [[f"{1000 * error:.2f}" for error in of.values()]])


def test_its_tables_are_the_committed_runs():
    assert blocks(PAGE) == [errors(), orders(), bandit()]


def test_its_sentences_are_the_committed_runs():
    found = [cell(name, strength, swaps) for name in NAMES for strength in (1.0, 1.5) for swaps in SWAPS]
    assert f"{min(each['logs'] for each in found)} for each number" in TEXT
    smaller = sum(each["errors"]["snips"]["squared_error_over_dr"][0] < 1.0 for each in found)
    assert f"{smaller} of {len(found)} cells" in TEXT
    ratios = [each["errors"]["dm"]["rmse"] / each["errors"]["dr"]["rmse"] for each in found]
    assert f"{min(ratios):.0f} to {max(ratios):.0f} times" in TEXT
    trust = {name: [cell(name, strength, "with", "with trust") for strength in (1.0, 1.5)] for name in NAMES}
    missed, logs = (sum(each[key] for pair in trust.values() for each in pair) for key in ("misses", "logs"))
    assert f"{missed} of {logs} intervals miss" in TEXT
    fires = {name: [each["fires_if_missed"][0] for each in pair] for name, pair in trust.items()}
    others, own = fires["planted"] + fires["mq2008"], fires["tafeng"]
    assert f"at least {100 * min(others):.0f} %" in TEXT
    assert f"on Ta Feng in {100 * own[0]:.0f} % (strength 1) and {100 * own[1]:.0f} % (1.5)" in TEXT
    clicks = [each["true"]["clicks"] for each in BANDIT]
    assert f"{min(clicks)} to {max(clicks)} clicks" in TEXT


def test_intervals_hold_the_truth_in_nine_of_ten_logs():
    found = [cell(name, strength, swaps) for name in NAMES for strength in (1.0, 1.5) for swaps in SWAPS]
    assert all(each["covered"]["dr"][0] >= 0.9 for each in found)
