"""A shop that is made up: its queries, the truth about them, and people who look from the top and click.

What a person sees is the list that the service answered. Whether they look at a place depends on the place alone
(position-based model), and whether they click on what they look at depends on the candidate's true label alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from listwright.training.data.dataset import Dataset
from listwright.training.data.synthetic import planted
from listwright.training.recipe.data import SyntheticData
from listwright_lab.synthetic_traffic import attractiveness, examination

PLACES = 10
"""Places of a page; a list has at least so many candidates."""

BIAS = 0.7
"""A place k is looked at with probability 1 / k."""

CLICK_NOISE = 0.15
"""Probability of a click on an irrelevant candidate that is looked at."""

WORLD = SyntheticData(min_length=PLACES, max_length=20, numeric=8, categorical=1, categories=4, missing=0.0, decoy=2.0)
"""Candidates matter to each other: one that a better one is near to is worth less."""

VISITS_OF_A_PERSON = 2


@dataclass(frozen=True)
class Shop:
    """Simulated queries with their true labels.

    Args:
        judged: Lists that experts judged before the shop had any visitor.
        visits: Queries of people, in the order in which they come.
        held_out: Queries that nobody sends: the truth is measured on them.
        seed: Seed of all clicks.
    """

    judged: Dataset
    visits: Dataset
    held_out: Dataset
    seed: int

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [feature.name for feature in self.visits.schema.features]

    def person(self, visit: int) -> str:
        """Return the person who sends a query: people come back."""
        people = max(1, len(self.visits) // VISITS_OF_A_PERSON)
        return f"person-{np.random.default_rng([self.seed, visit, 1]).integers(people)}"

    def rows(self, visit: int) -> list[list[Any]]:
        """Return the candidates of a query, as a request has them."""
        begin, end = self.visits.offsets[visit : visit + 2]
        return spelled(self.visits, begin, end)

    def clicks(self, visit: int, order: list[int]) -> list[int]:
        """Draw the places, from 0, that the person clicks on; ``order`` has the candidate at each place."""
        begin, end = self.visits.offsets[visit : visit + 2]
        probabilities = click_probabilities(self.visits.labels[begin:end][order])
        rng = np.random.default_rng([self.seed, visit, 2])
        return np.flatnonzero(rng.random(len(order)) < probabilities).tolist()


def opened(seed: int, *, judged: int, visits: int, held_out: int) -> Shop:
    """Build a shop with so many queries of each kind, all of one world."""
    spec = WORLD.model_copy(update={"queries": judged + visits + held_out})
    data, _ = planted.generate(spec, np.random.default_rng(seed))
    first, second = judged, judged + visits
    return Shop(
        judged=data.select(range(first)),
        visits=data.select(range(first, second)),
        held_out=data.select(range(second, len(data))),
        seed=seed,
    )


def look_probabilities(places: int) -> Float[np.ndarray, " places"]:
    """Return ``(places,)`` the probability that each place is looked at."""
    return examination(places, BIAS)


def click_probabilities(labels: Int[np.ndarray, " places"]) -> Float[np.ndarray, " places"]:
    """Return ``(places,)`` probabilities of a click on candidates with these true labels, shown in this order."""
    attraction = attractiveness(labels, highest=4, noise=CLICK_NOISE)
    clicks: Float[np.ndarray, " places"] = attraction * look_probabilities(len(labels))
    return clicks


def spelled(data: Dataset, begin: int, end: int) -> list[list[Any]]:
    """Return rows with categories by name and None for a missing value."""
    features = data.schema.features
    return [
        [_cell(value, feature.categories) for value, feature in zip(row, features, strict=True)]
        for row in data.features[begin:end].tolist()
    ]


def _cell(value: float, categories: tuple[str, ...]) -> float | str | None:
    if categories:
        return categories[int(value) - 1] if value else None
    return None if np.isnan(value) else round(value, 5)
