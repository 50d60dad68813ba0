"""``python -m listwright_lab.science.sequences``: false verdicts of somebody who looks every day for a month.

Both arms are alike. Units arrive day by day, some return, and after each day the verdict is read. A run counts as false
if any of its 30 looks calls a winner. Beside the confidence sequence stands the same reader with intervals for a single
look.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.training.evaluation.intervals import ALPHA, ConfidenceSequence, fixed_half_width
from listwright.training.traffic.compare.estimates import Ratio, has_enough_units, ratio_of
from listwright_lab import machine

DAYS, RUNS = 30, 2000


@dataclass(frozen=True, slots=True)
class Case:
    """Simulated traffic in which both arms are alike.

    Args:
        name: Name in the results.
        kind: Measured quantity: clicks of a split, revenue of a split, or preferences of interleaved lists.
        daily: Number of queries a day.
        rate: Probability of a click; for interleaving, probability of a tie among credited queries.
        liking: Standard deviation over units of the log-odds of a click.
        units: Number of people; each query is of one of them.
    """

    name: str
    kind: Literal["clicks", "revenue", "preference"]
    daily: int
    rate: float
    liking: float
    units: int


CASES = (
    Case("clicks, units return", "clicks", 300, 0.3, 1.0, 2000),
    Case("rare clicks", "clicks", 300, 0.02, 0.5, 6000),
    Case("clicks, few units return often", "clicks", 300, 0.3, 1.0, 400),
    Case("revenue, heavy tails", "revenue", 300, 0.1, 0.5, 4000),
    Case("interleaving, units return", "preference", 100, 0.5, 1.0, 800),
)


def month(case: Case, *, runs: int, seed: int, effect: float = 0.0) -> dict[str, float]:
    """Return the share of runs in which a look called a winner, by both intervals.

    Args:
        case: Traffic to simulate.
        runs: Number of simulated months.
        seed: Seed of the simulation.
        effect: Amount added to the challenger's probability; 0 for arms that are alike.
    """
    rng = np.random.default_rng(seed)
    outcomes = np.array([_called(case, effect, rng) for _ in range(runs)])
    always, fixed = outcomes.mean(axis=0)
    return {"always": float(always), "fixed": float(fixed)}


def _called(case: Case, effect: float, rng: np.random.Generator) -> tuple[bool, bool]:
    """Return whether any look of one month called a winner, by both intervals."""
    queries = DAYS * case.daily
    unit = rng.integers(0, case.units, queries)
    challenger = rng.random(case.units) < 0.5
    values = _values(case, unit, challenger[unit] * effect, rng)
    totals, counts = np.zeros((case.units, 1)), np.zeros((case.units, 1))
    always = fixed = False
    for day in range(DAYS):
        today = slice(day * case.daily, (day + 1) * case.daily)
        np.add.at(totals[:, 0], unit[today], values[today])
        np.add.at(counts[:, 0], unit[today], 1.0)
        estimate, variance, worth, ready = _look(case, totals[:, 0], counts[:, 0], challenger)
        if ready:
            always |= abs(estimate) > ConfidenceSequence(worth).half_width(variance)
            fixed |= abs(estimate) > fixed_half_width(variance)
    return always, fixed


def _values(
    case: Case, unit: Int[np.ndarray, " N"], effect: Float[np.ndarray, " N"], rng: np.random.Generator
) -> Float[np.ndarray, " N"]:
    """Draw the value of each query."""
    own = case.liking * rng.normal(size=case.units)[unit]
    if case.kind == "preference":  # 1/2, 0 or -1/2; the unit's taste is its own, and 0 on average
        tied = rng.random(len(unit)) < case.rate
        mine = rng.random(len(unit)) < np.clip(1.0 / (1.0 + np.exp(-own)) + effect, 0.0, 1.0)
        preferred: Float[np.ndarray, " N"] = np.where(tied, 0.0, np.where(mine, 0.5, -0.5))
        return preferred
    odds = np.log(case.rate / (1.0 - case.rate)) + own
    hit: Float[np.ndarray, " N"] = (
        rng.random(len(unit)) < np.clip(1.0 / (1.0 + np.exp(-odds)) + effect, 0.0, 1.0)
    ).astype(np.float64)
    return hit * rng.lognormal(3.0, 1.0, len(unit)) if case.kind == "revenue" else hit


def _look(
    case: Case, totals: Float[np.ndarray, " N"], counts: Float[np.ndarray, " N"], challenger: Bool[np.ndarray, " N"]
) -> tuple[float, float, float, bool]:
    """Return estimate, variance, the smallest difference of interest, and whether there are enough units."""
    if case.kind == "preference":
        ratio = ratio_of(totals, counts)
        return ratio.value, ratio.variance, 0.02, has_enough_units(ratio)
    arms: list[Ratio] = [ratio_of(totals[arm], counts[arm]) for arm in (~challenger, challenger)]
    worth = 0.05 * arms[0].value if arms[0].value > 0.0 else 0.05
    return arms[1].value - arms[0].value, arms[0].variance + arms[1].variance, worth, has_enough_units(*arms)


def main() -> None:
    """Run the command line; write ``benchmarks/results/sequences.json``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.sequences", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="simulated months of each case (default: 2000)")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append({**asdict(case), **month(case, runs=options.runs, seed=0)})
        print(rows[-1], flush=True)
    result: dict[str, object] = {"days": DAYS, "runs": options.runs, "alpha": ALPHA, "cases": rows}
    print(machine.save("sequences", f"python -m listwright_lab.science.sequences --runs {options.runs}", result))


if __name__ == "__main__":
    main()
