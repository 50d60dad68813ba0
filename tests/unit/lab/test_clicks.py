"""The position-based model: its probabilities, and that clicks follow them."""

import numpy as np
import pytest

from listwright_lab.synthetic_traffic import attractiveness, clicked, examination


def test_examination_falls_as_a_power_of_the_place():
    assert examination(4, 1.0) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert examination(3, 0.0).tolist() == [1.0, 1.0, 1.0]
    assert examination(0, 1.0).size == 0


def test_attraction_grows_with_the_gain_of_the_label():
    assert attractiveness(np.array([0, 1, 2]), highest=2, noise=0.1) == pytest.approx([0.1, 0.1 + 0.9 / 3, 1.0])


def test_clicks_come_as_often_as_look_and_attraction_together():
    rng = np.random.default_rng(0)
    attraction, looks = np.array([1.0, 0.5, 0.2]), examination(3, 1.0)
    rate = clicked(np.tile(attraction, (200_000, 1)), np.tile(looks, (200_000, 1)), rng).mean(axis=0)
    assert rate == pytest.approx(attraction * looks, abs=0.005)
