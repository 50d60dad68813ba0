"""One interval, one of three verdicts: the terminal, the reports and the pages of the suites say the same."""

import math

import pytest

from listwright.training.evaluation.intervals import verdict_of
from listwright.training.reporting import sentences
from listwright.training.reporting.fit_figures import COLOUR_OF
from listwright.training.reporting.page import COLOURS, SOFT
from listwright_lab.suites.listwise import pages as listwise_pages
from listwright_lab.suites.listwise.results import Growth, PairedComparison

NAN = math.nan


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (-0.099, -0.004, "harm"),
        (-0.2, -1e-12, "harm"),
        (-0.2, 0.0, "no difference shown"),
        (-0.2, 0.1, "no difference shown"),
        (0.0, 0.0, "no difference shown"),
        (-0.0, 0.1, "no difference shown"),
        (0.0, 0.1, "no difference shown"),
        (1e-12, 0.1, "gain"),
        (NAN, NAN, "no difference shown"),
    ],
)
def test_an_interval_says_one_of_three_things(low, high, found):
    assert verdict_of(low, high) == found


BOTH_SIDES = {"gain": (0.01, 0.03), "harm": (-0.03, -0.01), "no difference shown": (-0.01, 0.03)}


@pytest.mark.parametrize(
    ("found", "headline", "colour", "strange", "grows"),
    [
        ("gain", "beats LightGBM by", COLOURS[0], "The gain is larger", " grows with"),
        ("harm", "is worse than LightGBM by", COLOURS[1], "The gain is smaller", " shrinks with"),
        (
            "no difference shown",
            "does not beat LightGBM significantly",
            SOFT,
            "does not differ significantly",
            " is not shown to change with",
        ),
    ],
)
def test_every_place_says_it(found, headline, colour, strange, grows):
    low, high = BOTH_SIDES[found]
    gain = {"metric": "ndcg@10", "mean": (low + high) / 2, "low": low, "high": high}
    assert headline in sentences.headline(gain, "QILCM", "LightGBM")
    assert COLOUR_OF[found] == colour
    bins = {"gap": gain, "bins": [[1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]}
    assert strange in sentences.anomaly_sentence(bins, "ndcg@10")[0]
    growth = Growth("qilcm-v1", 0.0, 0.0, 0.0, low, high, vanishes=True)
    assert grows in listwise_pages.growth_sentence(growth, "ndcg@10", 0.0, 1.0)


@pytest.mark.parametrize(
    ("gain", "holm", "found", "says"),
    [
        (0.02, 0.01, "gain", "QILCM beats DLCM"),
        (-0.02, 0.01, "harm", "QILCM loses to DLCM"),
        (-0.02, 0.2, "no difference shown", "are not shown to differ"),
        (-0.02, None, "no difference shown", "are not shown to differ"),
    ],
)
def test_a_corrected_comparison_has_the_same_three(gain, holm, found, says):
    one = PairedComparison("ndcg@10", "qilcm", "dlcm", 100, gain, gain - 0.01, gain + 0.01, 0.1, holm, holm)
    assert one.verdict == found
    assert says in listwise_pages.verdict(one)
    won, lost = int(found == "gain"), int(found == "harm")
    assert f"gains in {won} of 1 metrics and loses in {lost}" in listwise_pages.significance_sentence([one])
