"""Matrices as they travel: ``.npy`` files, and tensors of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Mapping

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import Ranking
from listwright.service.wire import npy
from listwright.service.wire import open_inference as tensors
from listwright.service.wire.answers import JsonAnswer
from listwright.service.wire.codec import EncodedAnswer, RankingRequest
from listwright.service.wire.raw_matrix import to_candidates
from listwright.service.wire.schemas import Envelope

OCTETS = "application/octet-stream"

JSON_HEAD = "Inference-Header-Content-Length"

NO_OPTIONS = Envelope()


class NpyCodec(JsonAnswer):
    """A ``.npy`` file in; another one, or JSON, out.

    Args:
        options: of the query string.
        bundle: that answers.
        limit: most candidates.
        wants_npy: whether the caller accepts a ``.npy`` file.
    """

    def __init__(self, options: Envelope, bundle: Bundle, limit: int, *, wants_npy: bool) -> None:
        self._options, self._bundle, self._most = options, bundle, limit
        self._wants_npy = wants_npy
        self.limit = npy.body_limit(limit, len(bundle.reranker.schema))

    def decode(self, body: bytes) -> RankingRequest:
        """The matrix is a view of the body."""
        schema = self._bundle.reranker.schema
        matrix = npy.decode(body, schema, self._most)
        return RankingRequest(
            to_candidates(matrix, schema),
            self._options,
            self._bundle,
            id=self._options.id,
            pinned=self._options.version is not None,
            scores_only=self._wants_npy,
        )

    def encode(self, asked: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> EncodedAnswer:
        """Scores in input order, or the JSON answer."""
        if self._wants_npy:
            scores = ranking.scores if asked.options.raw_scores else ranking.relevance
            return EncodedAnswer(npy.encode(scores), npy.MEDIA_TYPE, _said_in_headers(ranking, asked))
        return super().encode(asked, ranking, milliseconds)


def _said_in_headers(ranking: Ranking, asked: RankingRequest) -> dict[str, str]:
    """``Listwright-Version`` and so on; a reason may hold what no header can."""
    manifest = asked.bundle.manifest
    values = {"model": manifest.name, "version": manifest.version, **tensors.said(ranking, asked.part)}
    return {
        f"Listwright-{name.replace('_', '-').title()}": " ".join(str(value).split()).encode("ascii", "replace").decode()
        for name, value in values.items()
    }


class TensorCodec:
    """Tensors in and out.

    Args:
        head_length: of the header :data:`JSON_HEAD`; None where all of the body is JSON.
        bundle: that answers.
        limit: most candidates.
        pinned: whether the path names its version.
    """

    def __init__(self, head_length: str | None, bundle: Bundle, limit: int, *, pinned: bool) -> None:
        self._head_length, self._bundle, self._most, self._pinned = head_length, bundle, limit, pinned
        schema = bundle.reranker.schema
        self.limit = tensors.body_limit(limit, len(schema), schema.spelling)

    def decode(self, body: bytes) -> RankingRequest:
        """The features are a view of the body."""
        self._inference = tensors.decode(body, self._head_length, self._bundle.reranker.schema, self._most)
        request = self._inference.request
        return RankingRequest(
            self._inference.candidates,
            request.parameters,
            self._bundle,
            id=request.id,
            pinned=self._pinned,
            scores_only=not tensors.tells_order(request),
        )

    def encode(self, asked: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> EncodedAnswer:  # noqa: ARG002
        """The outputs that were asked for."""
        content, head = tensors.encode(ranking, self._inference, asked.bundle.manifest, asked.part)
        if head is None:
            return EncodedAnswer(content, "application/json", {})
        return EncodedAnswer(content, OCTETS, {JSON_HEAD: str(head)})
