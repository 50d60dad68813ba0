"""What can be asked: path, body, and how to read the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from listwright_client.answers import Info, Ranking, read_info, read_ranking
from listwright_client.body import encode
from listwright_client.exchange import Reply
from listwright_client.options import CallOptions, Features, RerankOptions

T = TypeVar("T")

_APART = {*CallOptions.__annotations__, "ids", "feature_names", "timeout_ms"}
"""Words of a call that are no plain fields of the body."""


@dataclass(frozen=True)
class Question(Generic[T]):
    """One thing to ask.

    Args:
        read: makes the value out of an answer that is 200; takes the number of attempts, too.
        body: a JSON object with at least one field; None: a GET.
    """

    path: str
    read: Callable[[Reply, int], T]
    body: bytes | None = None


def rerank(features: Features, options: RerankOptions) -> Question[Ranking]:
    """``POST /rerank``: what is not given, or None, is not sent."""
    unknown = sorted(options.keys() - RerankOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"rerank has no {', '.join(unknown)}: it takes {', '.join(RerankOptions.__annotations__)}")
    envelope: dict[str, Any] = {
        name: value for name, value in options.items() if name not in _APART and value is not None
    }
    body, count = encode(features, options.get("ids"), options.get("feature_names"), envelope)
    return Question("/rerank", partial(read_ranking, candidates=count), body)


def info() -> Question[Info]:
    """``GET /info``."""
    return Question("/info", lambda reply, _: read_info(reply))


def ready() -> Question[bool]:
    """``GET /readyz``."""
    return Question("/readyz", lambda *_: True)
