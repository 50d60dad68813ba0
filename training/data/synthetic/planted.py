"""Synthetic ranking data with a known truth: domains, Plackett-Luce groups, effects of the list, categories, holes.

No column of one candidate shows the effects of the list, not even one that compares it with the list feature by
feature: each depends on which *other* candidate holds which values *together*, as consumer research finds it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.recipe.data import SyntheticData

ANOMALY_FACTOR = 3.0
"""How much stronger the shift of an anomalous query is."""

GRADE_SHARES = (0.6, 0.5)
"""Share of irrelevant candidates, and by what factor each further grade is rarer than the one below."""

NEAR = 0.75
"""How far a decoy lies below a candidate in each of the two features at most, in their standard deviations."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Parameters that the labels were drawn from.

    Args:
        groups: ``(N,)`` Plackett-Luce group of each query.
        mixture_weights: ``(groups,)`` probability of each group.
        weights: ``(groups, F)`` weights of the numeric features in each group.
        category_effects: ``(J, categories)`` effects of each value of each categorical feature on the utility.
        anomalous: ``(N,)`` queries with the stronger shift.
        utilities: ``(R,)`` noiseless utility of every candidate, ``context`` included.
        context: ``(R,)`` effect of the list's other candidates on the utility; 0 where no such effect is planted.
    """

    groups: Int[np.ndarray, " N"]
    mixture_weights: Float[np.ndarray, " groups"]
    weights: Float[np.ndarray, "groups F"]
    category_effects: Float[np.ndarray, "J categories"]
    anomalous: Bool[np.ndarray, " N"]
    utilities: Float[np.ndarray, " R"]
    context: Float[np.ndarray, " R"]


def generate(spec: SyntheticData, rng: np.random.Generator) -> tuple[Dataset, Truth]:
    """Draw queries whose candidates are ranked by a planted utility, and hide it behind per-query domains.

    Candidate i of a query of group k has utility ``u_i = w_k . z_i + effects of its categories`` with ``z ~ N(0, 1)``;
    its query ranks candidates by ``u_i`` plus Gumbel noise (a Plackett-Luce draw) and grades them by rank. What the
    dataset shows is not z but ``z * exp(N(0, 0.4 s)) + N(0, 2 s)``, drawn once per query and feature: within a list
    nothing is lost, across lists the numbers do not compare. With ``decoy``, ``similarity`` or ``cheapest`` the other
    candidates of the list change u_i, see :func:`listwright.training.data.synthetic.planted.context_effects`.

    Args:
        spec: Sizes and strengths; ``shift`` is s.
        rng: The only source of randomness.

    Returns:
        The dataset, queries named ``q1`` …, and the truth behind it.
    """
    lengths = _lengths(spec, rng)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    query_of = np.repeat(np.arange(spec.queries), lengths)
    rows = len(query_of)

    mixture_weights = rng.dirichlet(np.full(spec.groups, 5.0))
    weights = rng.normal(size=(spec.groups, spec.numeric))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True) / 2.0
    effects = rng.normal(size=(spec.categorical, spec.categories))
    groups = rng.choice(spec.groups, size=spec.queries, p=mixture_weights)

    z = rng.normal(size=(rows, spec.numeric))
    categories = rng.integers(0, spec.categories, size=(rows, spec.categorical))
    utilities = np.einsum("rf,rf->r", z, weights[groups[query_of]])
    utilities += effects[np.arange(spec.categorical), categories].sum(axis=1)
    better = z * np.sign(weights[groups[query_of]])  # higher is better, whatever the group
    kinds = categories[:, 0] if spec.categorical else np.zeros(rows, dtype=np.int64)
    context = context_effects(spec, better, kinds, offsets)
    utilities += context
    labels = _grades(utilities + spec.noise * rng.gumbel(size=rows), offsets, query_of, spec.levels)

    anomalous = rng.random(spec.queries) < spec.anomalous
    strength = spec.shift * np.where(anomalous, ANOMALY_FACTOR, 1.0)[:, None]
    scale = np.exp(0.4 * strength * rng.normal(size=(spec.queries, spec.numeric)))
    shift = 2.0 * strength * rng.normal(size=(spec.queries, spec.numeric))
    numbers = (z * scale[query_of] + shift[query_of]).astype(np.float32)
    holes = rng.random(numbers.shape) < spec.missing
    holes[:, -(-spec.numeric // 3) :] = False
    numbers[holes] = np.nan

    features = np.column_stack([numbers, (categories + 1).astype(np.float32)])
    if spec.observable is not None:
        is_observed = rng.random(spec.queries) < spec.observable
        kind = np.where(is_observed, groups, rng.integers(0, spec.groups, size=spec.queries)) + 1
        features = np.column_stack([features, kind[query_of].astype(np.float32)])
    qids = tuple(f"q{n}" for n in range(1, spec.queries + 1))
    dataset = Dataset(features, labels, offsets, qids, _schema(spec))
    return dataset, Truth(groups, mixture_weights, weights, effects, anomalous, utilities, context)


def _lengths(spec: SyntheticData, rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    """Draw list lengths, log-uniform between the bounds, both included."""
    low, high = np.log(spec.min_length), np.log(spec.max_length + 1)
    lengths: Int[np.ndarray, " N"] = np.exp(rng.uniform(low, high, size=spec.queries)).astype(np.int64)
    return lengths.clip(spec.min_length, spec.max_length)


def _grades(
    utilities: Float[np.ndarray, " R"], offsets: Int[np.ndarray, " O"], query_of: Int[np.ndarray, " R"], levels: int
) -> Int[np.ndarray, " R"]:
    """Assign grades by rank within the query: most candidates 0, each grade half as common as the one below."""
    order = np.lexsort((utilities, query_of))  # worst first within each query
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - offsets[query_of[order]]
    share_below = (place + 0.5) / np.diff(offsets)[query_of]
    irrelevant, factor = GRADE_SHARES
    sizes = factor ** np.arange(levels - 1)
    bounds = irrelevant + (1 - irrelevant) * np.concatenate([[0.0], np.cumsum(sizes / sizes.sum())[:-1]])
    grades: Int[np.ndarray, " R"] = np.searchsorted(bounds, share_below, side="right").astype(np.int32)
    return grades


def _schema(spec: SyntheticData) -> FeatureSchema:
    numeric = [Feature(name=f"n{d + 1}") for d in range(spec.numeric)]
    names = tuple(f"v{v + 1}" for v in range(spec.categories))
    categorical = [Feature(name=f"c{d + 1}", kind="categorical", categories=names) for d in range(spec.categorical)]
    if spec.observable is not None:
        kinds = tuple(f"k{k + 1}" for k in range(spec.groups))
        categorical.append(Feature(name="kind", kind="categorical", categories=kinds))
    return FeatureSchema(features=(*numeric, *categorical))


def context_effects(
    spec: SyntheticData, better: Float[np.ndarray, "R F"], kinds: Int[np.ndarray, " R"], offsets: Int[np.ndarray, " O"]
) -> Float[np.ndarray, " R"]:
    """Return the effect of the list on the utility of every candidate.

    Definition, with a and b the last two numeric features, higher is better:
        decoy       + decoy * D_i, D_i = 1 if some j has 0 < a_i - a_j < NEAR and 0 < b_i - b_j < NEAR, else 0
                    (asymmetric dominance: a candidate that is slightly worse in both makes this one attractive)
        similarity  - similarity * log2 n_i, n_i candidates of the list are of the kind of i, itself included
                    (candidates of one kind take from each other)
        cheapest    + cheapest * C_i, C_i = 1 if n_i > 1 and none of its kind has a higher b, else 0
                    (the best offer of a kind draws attention, where there is something to compare it with)

    Args:
        spec: Specification with the three strengths.
        better: Latent numeric features, each signed so that higher is better.
        kinds: Values of the first categorical feature.
        offsets: Bounds of the queries: query n owns rows ``offsets[n] : offsets[n + 1]``.

    Returns:
        ``(R,)`` float64; all 0 where all strengths are 0, and in lists of one candidate.
    """
    effects = np.zeros(len(better))
    if not (spec.decoy or spec.similarity or spec.cheapest):
        return effects
    for start, end in itertools.pairwise(offsets.tolist()):
        rows = slice(start, end)
        same = kinds[rows, None] == kinds[None, rows]
        counts = same.sum(axis=1)
        if spec.decoy:
            above = better[rows, None, -2:] - better[None, rows, -2:]  # (L, L, 2)
            effects[rows] += spec.decoy * ((above > 0.0) & (above < NEAR)).all(axis=2).any(axis=1)
        b = better[rows, -1]
        best = (~same | (b[None, :] <= b[:, None])).all(axis=1)
        effects[rows] -= spec.similarity * np.log2(counts)
        effects[rows] += spec.cheapest * (best & (counts > 1))
    return effects
