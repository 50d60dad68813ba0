"""What an explanation says: frozen values.

A contribution is a share of a score difference. Those of a stage add up to ``score - reference_score``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from listwright.ranking.candidates import Ranking

Value = float | str | None
"""Of a feature: a number, a category, or None where it is missing or a category that training never saw."""

ExplainedStage = Literal["first_stage", "second_stage"]

Part = Literal["first_stage", "second_stage", "moves", "anomaly", "passing"]
"""What a deadline or a fault can cut short or leave out."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one feature adds to a score.

    Args:
        feature: name of the feature, or of the list-relative column.
        value: of the candidate.
        reference: what stands in for the value where it is left out: the list's median or most frequent category. None
            as well where nothing stands in: the contribution is a difference to the list's mean, or to ``against``.
        contribution: in units of the score.
        standard_error: of the contribution, from sampling; None where it is exact.
    """

    feature: str
    value: Value
    reference: Value
    contribution: float
    standard_error: float | None = None


@dataclass(frozen=True, slots=True)
class StageExplanation:
    """Why a stage gave a candidate its score.

    Args:
        stage: which one.
        ranker: what scored: ``lightgbm``, ``column`` or ``onnx`` for a first stage, else the strategy, such as
            ``qilcm``; ``srm`` is the mixture, ``srm 2`` its specialist number 2.
        score: of the candidate.
        reference_score: the mean over the list where the contributions are differences to it; or else the score of
            the candidate with every feature at its reference.
        contributions: of every feature, the largest in size first; they sum to ``score - reference_score``.
        exact: whether nothing was sampled.
        evaluations: how many times the ranker scored a changed candidate; 0 where none was needed.
        budget_spent: whether sampling ended before the largest standard error was small enough, because the budget
            or the deadline had been reached.
    """

    stage: ExplainedStage
    ranker: str
    score: float
    reference_score: float
    contributions: tuple[Contribution, ...]
    exact: bool
    evaluations: int = 0
    budget_spent: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """Another value of one feature."""

    feature: str
    value_from: Value
    value_to: Value


@dataclass(frozen=True, slots=True)
class Passing:
    """The smallest changes found that let the candidate pass the one above it, each ranked for real.

    Args:
        above: index of the candidate one place higher.
        one: the change of one feature; None if no value within the training range passes.
        two: the changes of two features that pass together, not alone, and are smaller in sum than ``one``; None if
            no such pair was found.
        tried: how many changed lists were ranked.
        untried: how many changes of one feature were left out, as there are more than
            :data:`listwright.ranking.explaining.steps.MOST_CATEGORIES` of a feature or
            :data:`listwright.ranking.explaining.steps.MOST_STEPS` of all.
    """

    above: int
    one: tuple[Change] | None
    two: tuple[Change, Change] | None
    tried: int
    untried: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """Another candidate whose place among the others is not the same without the explained one.

    Args:
        candidate: its index.
        rank: 1-based, in the answer.
        rank_without: 1-based, in the list that lacks the explained candidate.
    """

    candidate: int
    rank: int
    rank_without: int


@dataclass(frozen=True, slots=True)
class UnusualFeature:
    """A feature that makes the query unlike the training queries.

    Args:
        feature: its name.
        value: mean over the first stage's top, which the anomaly score looks at; None where all of them are missing.
        anomaly_without: the anomaly score if that mean were the training median.
    """

    feature: str
    value: float | None
    anomaly_without: float


@dataclass(frozen=True, slots=True)
class Anomaly:
    """How unlike the training queries the query is.

    Args:
        score: higher is stranger.
        training_quantiles: of the training queries' scores, by level, such as ``"0.99"``; empty in older bundles.
        features: those whose training median would lower the score, the strongest first.
    """

    score: float
    training_quantiles: Mapping[str, float]
    features: tuple[UnusualFeature, ...]


@dataclass(frozen=True, slots=True)
class RouterEstimate:
    """What the bundle's router made of the list.

    Args:
        probabilities: of each specialist, that it is the best one; they sum to 1.
        gains: of each specialist, estimated NDCG over the generalist's.
        margin: the most probable specialist is taken if its gain is above this; None: none ever is.
    """

    probabilities: tuple[float, ...]
    gains: tuple[float, ...]
    margin: float | None


@dataclass(frozen=True, slots=True)
class Against:
    """The candidate beside another one: differences of their contributions, the largest in size first.

    Args:
        candidate: index of the other one.
        first_stage: contribution to the candidate less that to the other; ``value`` is the candidate's, ``reference``
            the other's; empty where there was no time to sample the other's.
        second_stage: the same; empty where the second stage did not score both.
    """

    candidate: int
    first_stage: tuple[Contribution, ...]
    second_stage: tuple[Contribution, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a candidate stands where it stands.

    Args:
        candidate: its index in the list, from 0.
        ranking: the answer that is explained; its route says which ranker, and who chose it.
        first_stage: why the first stage gave the candidate its score.
        second_stage: None where no second stage scored the candidate, or where it is named in ``incomplete``.
        passing: None for the first candidate, and where ``incomplete`` names it before any change had passed. By the
            stage that answered: the first stage, where the answer is degraded.
        moves: empty where nobody moves; by the same stage.
        anomaly: None where the bundle has no anomaly score.
        against: None where it was not asked for.
        seconds: wall-clock time of each part, by name.
        incomplete: parts that the deadline cut short or left out, or that failed.
        faults: why a part failed, or left changed lists out: a stage gave no finite scores for them.
        router: None where the bundle's router was not asked.
    """

    candidate: int
    ranking: Ranking
    first_stage: StageExplanation | None
    second_stage: StageExplanation | None
    passing: Passing | None
    moves: tuple[Move, ...]
    anomaly: Anomaly | None
    against: Against | None
    seconds: Mapping[str, float] = field(default_factory=dict)
    incomplete: tuple[Part, ...] = ()
    faults: Mapping[Part, str] = field(default_factory=dict)
    router: RouterEstimate | None = None
