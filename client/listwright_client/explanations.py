"""From the JSON of an explanation to values. Fields that this version does not know are left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from listwright_client.answers import Ranking, SentList, ranking_of, read
from listwright_client.exchange import Reply
from listwright_client.options import Id, id_text

FeatureValue: TypeAlias = float | str | None
"""A number, a category, or None where it is missing or a category that training never saw."""


@dataclass(frozen=True, slots=True)
class Place:
    """A candidate, by position and id, and its rank."""

    index: int
    """Position in the request, from 0."""
    id: Id | None
    rank: int
    """Rank, from 1."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """Contribution of one feature to a score."""

    feature: str
    value: FeatureValue
    reference: FeatureValue
    """Value that stands in for the feature's where it is left out. None as well where nothing does: then the
    contribution is a difference to the list's mean. In a comparison, the other candidate's value."""
    contribution: float
    standard_error: float | None
    """Standard error of the sampling; None if the contribution is exact."""


@dataclass(frozen=True, slots=True)
class StageExplanation:
    """Reasons for the score that a stage gave the candidate."""

    ranker: str
    score: float
    reference_score: float
    contributions: tuple[Contribution, ...]
    """Contribution of every feature, the largest in size first; they sum to ``score - reference_score``."""
    exact: bool
    evaluations: int
    """Changed candidates that the ranker scored."""
    budget_spent: bool
    """Whether sampling ended before the standard errors were small enough."""


@dataclass(frozen=True, slots=True)
class GoalShare:
    """Contribution of the scores for one goal to the share of the list by all goals."""

    goal: str
    weight: float
    contribution: float
    """Contribution with the weight, in units of the share."""


@dataclass(frozen=True, slots=True)
class GoalsExplanation(StageExplanation):
    """Reasons for the candidate's share of the list by all goals, which is the score."""

    goals: tuple[GoalShare, ...]
    """Contribution of every goal, the first goal first; they sum to ``score - reference_score``, too."""


@dataclass(frozen=True, slots=True)
class Change:
    """Another value of one feature."""

    feature: str
    value_from: FeatureValue
    value_to: FeatureValue


@dataclass(frozen=True, slots=True)
class Passing:
    """The smallest changes found that let the candidate pass the one above it, each ranked for real."""

    above: Place
    one: tuple[Change, ...] | None
    """None: no value of one feature within the training range passes."""
    two: tuple[Change, ...] | None
    """Changes of two features that pass together only; None if none were found."""
    tried: int
    """Changed lists that were ranked."""
    untried: int
    """Changes of one feature that were left out, beyond the limits on their number."""


@dataclass(frozen=True, slots=True)
class Move(Place):
    """Another candidate, whose place among the others is not the same without the explained one."""

    rank_without: int


@dataclass(frozen=True, slots=True)
class UnusualFeature:
    """A feature that makes the query unlike the training queries."""

    feature: str
    value: float | None
    """Mean over the first stage's top; None where it is missing in all of it."""
    anomaly_without: float
    """The anomaly score if that mean were the training median."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Anomaly score of the query, and the features that make it."""

    score: float
    training_quantiles: Mapping[str, float]
    features: tuple[UnusualFeature, ...]


@dataclass(frozen=True, slots=True)
class RouterEstimate:
    """Estimates of the bundle's router for the list."""

    probabilities: tuple[float, ...]
    """Probability of each specialist that it is the best one; they sum to 1."""
    gains: tuple[float, ...]
    """Estimated gain in NDCG of each specialist over the generalist."""
    margin: float | None
    """The most probable specialist is taken if its gain is above this; None: none ever is."""


@dataclass(frozen=True, slots=True)
class Against:
    """Differences of the candidate's contributions to another one's, the largest in size first."""

    index: int
    id: Id | None
    first_stage: tuple[Contribution, ...]
    """Empty where there was no time to sample the other's."""
    second_stage: tuple[Contribution, ...]
    """Empty where the second stage did not score both."""
    goals: tuple[Contribution, ...] = ()
    """Differences of the contributions to the share by all goals; empty where different stages scored both."""


@dataclass(frozen=True, slots=True)
class RuleReasons:
    """Effect of the rules on the candidate's place."""

    rank: int | None
    """Rank in the answer; None if the candidate is excluded."""
    names: tuple[str, ...]
    """Names of the rules that touched the candidate."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Reasons for the place of one candidate."""

    candidate: Place
    first_stage: StageExplanation | None
    second_stage: StageExplanation | None
    """None where no second stage scored the candidate, or where it is incomplete."""
    passing: Passing | None
    """None for the first place, or where it is incomplete."""
    moves: tuple[Move, ...]
    anomaly: Anomaly | None
    router: RouterEstimate | None
    """None where the bundle's router was not asked."""
    against: Against | None
    incomplete: tuple[str, ...]
    """Parts that the deadline cut short or left out, or that failed."""
    faults: Mapping[str, str]
    """Reason, by part, for which it failed, or left out changed lists that a stage failed on."""
    rules: RuleReasons | None = None
    """None where no rule touched the list; all other ranks are those before rules."""
    goals: GoalsExplanation | None = None
    """None where the first goal alone gives the order, or where it is incomplete; the stages are of the first goal."""


@dataclass(frozen=True, eq=False)
class Explained:
    """A ranking, and why its candidates stand where they stand."""

    ranking: Ranking
    """Ranking that ``rerank`` returns for the same list."""
    explanations: tuple[Explanation, ...]
    """Explanation of the candidate that was named, or of those at the first places, best first."""
    timings_ms: Mapping[str, float]
    incomplete: tuple[str, ...]
    """Parts of any candidate that the deadline cut short or left out, or that failed; ``explanations``: candidates are
    missing."""
    request_id: str | None
    attempts: int


@dataclass(frozen=True)
class SentQuestion:
    """A question that was sent, for checking its answer.

    Args:
        sent: List that was sent.
        candidate, against: Candidates by position or id, as they were sent.
        places: Number of first places to explain, instead of a candidate.
    """

    sent: SentList
    candidate: int | str | None = None
    against: int | str | None = None
    places: int | None = None

    def check(self, explained: Explained) -> None:
        """Raise ValueError if an answer explains other candidates."""
        ranks, explanations = explained.ranking.ranks, explained.explanations
        for rank, explanation in enumerate(explanations, 1):
            place, against = explanation.candidate, explanation.against
            self._check_candidate(place, self.candidate)
            due = ranks[place.index] if self.places is None else rank
            served = place.rank if explanation.rules is None else explanation.rules.rank or 0
            if not served == ranks[place.index] == due:
                raise ValueError(f"it explains candidate {place.index} as rank {served}, and rank {due} is due")
            if (against is None) != (self.against is None):
                raise ValueError(f"it compares with {against}, and {self.against!r} was asked for")
            if against is not None:
                self._check_candidate(against, self.against)
        most = 1 if self.places is None else min(self.places, self.sent.length)
        if not 0 < len(explanations) <= most:
            raise ValueError(f"it has {len(explanations)} explanations, and {most} were asked for")

    def _check_candidate(self, place: Place | Against, expected: int | str | None) -> None:
        own = place.index if not isinstance(expected, str) or place.id is None else id_text(place.id)
        if expected not in (None, own):
            raise ValueError(f"it is about candidate {place.index}, id {place.id!r}, and {expected!r} was asked for")


def read_explained(reply: Reply, attempts: int, question: SentQuestion) -> Explained:
    """Read the answer of ``POST /explain``."""
    body = json.loads(reply.content, object_hook=question.sent.restore)
    request_id, meta = reply.headers.get("x-request-id"), body["meta"]
    explained = Explained(
        ranking=ranking_of(body["ranking"], question.sent, request_id, attempts),
        explanations=read(tuple[Explanation, ...], body["explanations"]),
        timings_ms=read(Mapping[str, float], meta["timings_ms"]),
        incomplete=read(tuple[str, ...], meta["incomplete"]),
        request_id=request_id,
        attempts=attempts,
    )
    question.check(explained)
    return explained
