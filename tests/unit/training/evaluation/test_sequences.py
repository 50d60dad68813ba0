"""Widths against their definition, and how often daily looks lead to a false verdict."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from listwright.training.evaluation.intervals import ConfidenceSequence, fixed_half_width, fixed_times_needed
from listwright_lab.science import sequences as benchmark


def width(variance, tau2, alpha):
    """Waudby-Smith et al. (2024), theorem 2.2, as the paper prints it, for t observations of variance 1."""
    t, rho2 = 1.0 / variance, tau2
    return math.sqrt(2.0 * (t * rho2 + 1.0) / (t**2 * rho2) * math.log(math.sqrt(t * rho2 + 1.0) / alpha))


@pytest.mark.nightly
@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("variance", [1e-6, 1e-3, 1.0])
def test_the_width_is_the_papers(alpha, variance):
    sequence = ConfidenceSequence(0.02, alpha)
    k = next(k for k in np.linspace(5, 20, 1_500_001) if k - math.log1p(k) >= -2.0 * math.log(alpha))
    assert sequence.half_width(variance) == pytest.approx(width(variance, k / (1 + k) * 0.02**2, alpha), rel=1e-5)


def test_it_is_narrowest_beside_a_fixed_interval_where_its_half_width_is_the_difference():
    sequence = ConfidenceSequence(0.02)
    variances = np.geomspace(1e-7, 1e-2, 20_001)
    over = [sequence.half_width(v) / fixed_half_width(v) for v in variances]
    best = variances[int(np.argmin(over))]
    assert sequence.half_width(best) == pytest.approx(0.02, rel=1e-3)
    assert min(over) == pytest.approx(1.55, abs=0.02)


@pytest.mark.parametrize("variance", [0.0, math.nan, math.inf])
def test_an_unknown_variance_has_no_interval(variance):
    assert math.isinf(ConfidenceSequence(0.1).half_width(variance))
    assert math.isinf(fixed_half_width(variance))
    assert math.isinf(ConfidenceSequence(0.1).times_needed(0.1, variance))
    assert math.isinf(fixed_times_needed(0.1, variance))


def test_what_is_needed_has_the_power():
    true, variance = 0.03, 4e-4
    times = fixed_times_needed(true, variance)
    deviation = math.sqrt(variance / times)
    assert norm.sf(fixed_half_width(variance / times), true, deviation) == pytest.approx(0.8, abs=1e-6)
    sequence = ConfidenceSequence(0.02)
    times = sequence.times_needed(true, variance)
    assert norm.sf(sequence.half_width(variance / times), true, math.sqrt(variance / times)) == pytest.approx(0.8)
    assert times > fixed_times_needed(true, variance)
    assert sequence.times_needed(-true, variance) == times


def test_no_difference_is_out_of_reach():
    assert math.isinf(ConfidenceSequence(0.02).times_needed(0.0, 1e-4))
    assert math.isinf(fixed_times_needed(0.0, 1e-4))
    assert math.isinf(ConfidenceSequence(0.02).times_needed(1e-9, 1e-4))
    assert ConfidenceSequence(0.02).times_needed(0.5, 1e-12) < 1.0


@pytest.mark.nightly
@pytest.mark.parametrize("case", benchmark.CASES, ids=lambda case: case.name)
def test_daily_looks_lead_to_few_false_verdicts(case):
    """A small version of the benchmark: 300 simulated months under the null."""
    found = benchmark.month(case, runs=300, seed=1)
    assert found["always"] <= 0.05
    assert found["fixed"] > 0.1, "the same looks with fixed-sample intervals"


def test_a_planted_difference_is_found():
    assert benchmark.month(benchmark.CASES[0], runs=100, seed=2, effect=0.06)["always"] > 0.8
