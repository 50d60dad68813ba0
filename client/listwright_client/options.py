"""Options of a call. Absent ones are not sent, and the service's defaults hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from listwright_client.frames import Frame

Value: TypeAlias = float | int | str | np.generic | None
"""A number, a category, or None (or NaN) for a missing value."""

Features: TypeAlias = NDArray[Any] | Sequence[Sequence[Value]] | Sequence[Mapping[str, Value]] | Frame
"""``(L, D)``, one row per candidate; or one mapping per candidate, by feature name; or a pandas or polars frame."""

Id: TypeAlias = str | int
"""Id of a candidate. A whole number is sent as its digits; answers have the caller's own."""


Strategy: TypeAlias = Literal["auto", "qilcm", "qilcm2", "dlcm", "dcm", "mlp", "srm", "first_stage"]


def id_text(value: Id) -> str:
    """Return an id as it is sent: as text."""
    return value if isinstance(value, str) else str(int(value))


class CallOptions(TypedDict, total=False):
    """Options of every call."""

    timeout: float | None
    """Seconds for the whole call, retries and waits included; default: the client's. Not sent to the server."""
    deadline: float | None
    """Instead of a timeout: the moment, by the client's clock, at which the call ends. Sent to the server."""
    request_id: str | None
    """``X-Request-ID``; by default a new one. All attempts carry the same."""
    traceparent: str | None
    """W3C Trace Context."""


class RerankOptions(CallOptions, total=False):
    """Options of ``rerank``."""

    ids: Sequence[Id] | None
    """One per candidate, echoed."""
    feature_names: Sequence[str] | None
    """Columns of a matrix; default: the schema's order. A frame has its own."""
    context: Mapping[str, Value] | None
    """Values that hold for the whole query."""
    top_n: int | None
    """Length of ``results``; scores and ranks stay complete."""
    strategy: Strategy
    specialist: int | None
    """The specialist to use; default: the service's hook or router decides."""
    model: str | None
    """Refuse an answer of another bundle."""
    version: str | None
    timeout_ms: float | None
    """Milliseconds after which the service should have answered, be it by an earlier stage; attempts share them."""
    rules: Sequence[Mapping[str, Any]] | None
    """Rules of merchandising: pins, exclusions, cutoffs, boosts, caps and diversity."""
    raw_scores: bool
    """The ranker's own scores, without softmax and temperature."""
    probabilities: bool
    """True: the probability of each candidate, too."""
    min_probability: float | None
    """Probability from 0 to 1 below which a candidate is excluded."""
    weights: Mapping[str, float] | None
    """Weight of each goal, 0 or more, by name; default: the bundle's. ``info().goals`` has the names."""
    finite_scores: bool
    """False: no score (None, NaN) for a candidate that no single ranker scored, in place of a number for its place."""
    id: str | None
    """Id of the query, echoed."""
    query_id: str | None
    """Id of this query in events, for the service's served log; default: ``id``, else the request's id."""
    unit: str | None
    """Opaque key of the person or session that asks, for the served log."""


class ExplainOptions(RerankOptions, total=False):
    """Options of ``explain``: those of ``rerank``, and which candidates to explain."""

    candidate: int | str | None
    """The one to explain: a number is its position, from 0, a text its id."""
    against: int | str | None
    """Another one to compare it with."""
    explain_top_n: int | None
    """Explain the candidates at so many first places instead, 5 at most."""
    explain_budget: int | None
    """Changed candidates that a stage scores for one explanation, at most; default: the service's."""
