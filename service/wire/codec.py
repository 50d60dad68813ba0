"""What a request asks, what an answer is, and the protocol of everything that reads the one and writes the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList, Ranking
from listwright.service.admission.body import Limit
from listwright.service.participation import Participation
from listwright.service.wire.schemas import Options


class RankingRequest(NamedTuple):
    """What a request asks for, and of which bundle."""

    candidates: CandidateList
    options: Options
    bundle: Bundle
    ignored: tuple[str, ...] = ()  # names of unknown features
    id: str | None = None  # that the caller gave it
    pinned: bool = False  # whether the caller names the bundle's version
    scores_only: bool = False  # whether the answer tells no order
    part: Participation | None = None  # in an experiment; None: in none

    def within(self, part: Participation) -> RankingRequest:
        """The same request in an experiment."""
        return RankingRequest(*self[:-1], part)  # half the time of _replace


class EncodedAnswer(NamedTuple):
    """An answer as it travels."""

    content: bytes
    media_type: str
    headers: Mapping[str, str]


@runtime_checkable
class Codec(Protocol):
    """A format of requests and answers, for one request. Its methods are called once each, in the thread that ranks."""

    @property
    def limit(self) -> Limit:
        """The largest body that it reads."""
        ...

    def decode(self, body: bytes) -> RankingRequest:
        """Decode the body."""
        ...

    def encode(self, asked: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> EncodedAnswer:
        """Encode the answer."""
        ...
