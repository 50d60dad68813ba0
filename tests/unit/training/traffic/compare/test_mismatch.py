"""The sample-ratio check: against the beta integral, and looked at after every unit."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta

from listwright.training.traffic.compare.estimates import CONCENTRATION, LEVEL, check_ratio


@pytest.mark.parametrize(("control", "challenger", "share"), [(10, 12, 0.5), (80, 30, 0.3), (0, 5, 0.5)])
def test_p_is_the_inverse_of_a_bayes_factor(control, challenger, share):
    prior = beta(CONCENTRATION * share, CONCENTRATION * (1 - share))

    def likelihood(q):
        return q**challenger * (1 - q) ** control

    factor = quad(lambda q: likelihood(q) * prior.pdf(q), 0, 1, points=[share], limit=500)[0] / likelihood(share)
    found = check_ratio(control, challenger, share=share, what="units")
    assert found.p == pytest.approx(min(1.0, 1.0 / factor), rel=1e-6)


@pytest.mark.nightly
def test_a_sound_split_passes_at_every_look_and_a_skewed_one_fails():
    rng = np.random.default_rng(0)
    false, found = 0, 0
    for _ in range(200):
        arms = rng.random(20_000)
        looks = range(500, 20_001, 500)
        false += any(
            check_ratio(k - (s := int((arms[:k] < 0.5).sum())), s, share=0.5, what="units").failed for k in looks
        )
        skewed = int((arms < 0.48).sum())
        found += check_ratio(20_000 - skewed, skewed, share=0.5, what="units").failed
    assert false / 200 <= 2 * LEVEL
    assert found / 200 > 0.9


def test_nobody_contradicts_nothing():
    found = check_ratio(0, 0, share=0.5, what="units")
    assert (found.p, found.p_fixed, found.failed) == (1.0, 1.0, False)
