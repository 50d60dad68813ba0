"""Codecs of matrices: ``.npy`` files, and tensors of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.datastructures import State

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import Ranking
from listwright.service.bundles.models import Models
from listwright.service.wire import npy
from listwright.service.wire import open_inference as tensors
from listwright.service.wire.json_codec import (
    EncodedAnswer,
    JsonAnswer,
    RankingRequest,
    answer_probabilities,
    answer_scores,
    bounds_of,
)
from listwright.service.wire.raw_matrix import to_candidates
from listwright.service.wire.schemas import Envelope, check_agreement

OCTETS = "application/octet-stream"

JSON_HEAD = "Inference-Header-Content-Length"


class NpyCodec(JsonAnswer):
    """Codec of ``.npy`` files; the answer is one, or JSON.

    Args:
        options: Options of the query string.
        bundle: Bundle that answers.
        limit: Largest number of candidates.
        wants_npy: True if the caller accepts a ``.npy`` file.
    """

    def __init__(self, options: Envelope, bundle: Bundle, limit: int, *, wants_npy: bool) -> None:
        self._options, self._bundle, self._most = options, bundle, limit
        self._wants_npy = wants_npy
        self.limit = npy.body_limit(limit, len(bundle.reranker.schema))

    def decode(self, body: bytes) -> RankingRequest:
        """Decode a body; the matrix is a view of it."""
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

    def encode(self, request: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> EncodedAnswer:
        """Encode scores in input order, with probabilities as a second column if asked; or the JSON answer."""
        if self._wants_npy:
            values = answer_scores(ranking, request.options, request.part, "<f4")
            if request.options.probabilities:
                values = np.column_stack([values, answer_probabilities(ranking)])
            return EncodedAnswer(npy.encode(values), npy.MEDIA_TYPE, _header_fields(ranking, request))
        return super().encode(request, ranking, milliseconds)


def _header_fields(ranking: Ranking, request: RankingRequest) -> dict[str, str]:
    """Return the fields ``Listwright-Version`` and so on, in printable ASCII."""
    manifest = request.bundle.manifest
    values = {"model": manifest.name, "version": manifest.version, **tensors.response_parameters(ranking, request.part)}
    return {
        f"Listwright-{name.replace('_', '-').title()}": " ".join(str(value).split()).encode("ascii", "replace").decode()
        for name, value in values.items()
    }


class TensorCodec:
    """Codec of the Open Inference Protocol's tensors.

    Args:
        head_length: Value of the header :data:`JSON_HEAD`; None where all of the body is JSON.
        models: Served models.
        name: Name of the bundle in the path.
        version: Version in the path; None: the body may name one.
        outer_options: Options that were sent beside the body.
        limit: Largest number of candidates.
        state: State of the request; it gets the fingerprint of the bundle that answers.

    Raises:
        UnknownModelError: if the path names what is not served.
        RequestValidationError: if the options beside the body name another bundle.
    """

    def __init__(
        self,
        head_length: str | None,
        models: Models,
        name: str,
        version: str | None,
        outer_options: Mapping[str, Any],
        limit: int,
        state: State,
    ) -> None:
        self._head_length, self._most, self._outer_options, self._state = head_length, limit, outer_options, state
        self._models, self._name, self._version = models, name, version
        self._choose(outer_options.get("model"), outer_options.get("version"), ("query", "model"), ("query", "version"))
        self._bounds = bounds_of(limit, (bundle.reranker.schema for bundle in models.versions(name)))
        self.limit = tensors.body_limit(self._bounds)

    def decode(self, body: bytes) -> RankingRequest:
        """Decode a body; the features are a view of it."""
        request, size = tensors.decode_head(body, self._head_length, self._bounds, self._outer_options)
        model, version = request.model_name, request.model_version
        bundle = self._choose(model, version, ("body", "model_name"), ("body", "model_version"))
        self._inference = tensors.decode(body, request, size, bundle.reranker.schema, self._most)
        return RankingRequest(
            self._inference.candidates,
            tensors.options_of(request),
            bundle,
            id=request.id,
            pinned=self._version is not None,
            scores_only=not tensors.has_order(request),
        )

    def _choose(self, model: str | None, version: str | None, *places: tuple[str, str]) -> Bundle:
        """Return the bundle that the path names; a model and version from elsewhere must agree with it."""
        if model is not None:
            check_agreement(self._models.name_of(self._name), self._models.name_of(model), places[0])
        if version is not None:
            self._version = self._version or version
            check_agreement(self._version, version, places[1])
        bundle = self._models.choose(self._name, self._version)
        self._state.fingerprint = bundle.manifest.fingerprint
        return bundle

    def encode(self, request: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> EncodedAnswer:  # noqa: ARG002
        """Encode the requested outputs."""
        content, head = tensors.encode(ranking, self._inference, request.bundle.manifest, request.part)
        if head is None:
            return EncodedAnswer(content, "application/json", {})
        return EncodedAnswer(content, OCTETS, {JSON_HEAD: str(head)})
