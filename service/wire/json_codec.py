"""JSON at ``POST /rerank``: features by name, by position or as a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from pydantic import ValidationError
from starlette.datastructures import State

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import ListwrightError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.reranker import Reranker
from listwright.service.admission.body import Limit
from listwright.service.bundles.served import Models
from listwright.service.settings import Settings
from listwright.service.wire.answers import JsonAnswer
from listwright.service.wire.codec import RankingRequest
from listwright.service.wire.compiled import json_fast
from listwright.service.wire.json_matrix import checked_context, to_candidates
from listwright.service.wire.json_parse import Bounds, bounds_of, decode, most_ignored
from listwright.service.wire.schemas import RerankRequest
from listwright.service.wire.validation import merge_words, validated

_plans: WeakKeyDictionary[Reranker, Any] = WeakKeyDictionary()


class JsonBounds:
    """What a body may hold that is for any bundle that is served, counted once for each value of these.

    Args:
        settings: of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models: ReferenceType[Models] | None = None

    def of(self, models: Models) -> tuple[Bounds, Limit]:
        """The bounds, and what follows for the body's bytes."""
        if self._models is None or self._models() is not models:
            ignores = self._settings.unknown_features == "ignore"
            bounds = bounds_of(self._settings.max_candidates, models.schemas, ignores=ignores)
            self._models, self._found = ref(models), (bounds, Limit(bounds.size, bounds.why))
        return self._found


class JsonCodec(JsonAnswer):
    """One request.

    An ordinary body is scanned, which makes no object of each number; any other is read the general way, which accepts
    all that the contract does and says where the rest is at fault.

    Args:
        bounds: of bodies for any bundle that is served.
        models: what is served, for as long as this takes.
        settings: of the service.
        state: of the request; gets the fingerprint of the bundle that answers.
        outer_words: words of the request that stand beside its body.
        words: what a body may say; options of the request are of this class.
    """

    def __init__(
        self,
        bounds: JsonBounds,
        models: Models,
        settings: Settings,
        state: State,
        outer_words: Mapping[str, Any] = MappingProxyType({}),
        words: type[RerankRequest] = RerankRequest,
    ) -> None:
        self._bounds, self.limit = bounds.of(models)
        self._words, self._outer_words = words, outer_words
        self._models, self._settings, self._state = models, settings, state
        self._ignores = settings.unknown_features == "ignore"

    def decode(self, body: bytes) -> RankingRequest:
        """Decode, validate, choose the bundle, make the matrix."""
        found = self._scanned(body)
        if found is not None:
            return found
        request = validated(self._words, merge_words(decode(body, self._bounds), self._outer_words))
        bundle = self._chosen(request)
        ignored: dict[str, None] = {}
        candidates = to_candidates(request, bundle.reranker.schema, ignored if self._ignores else None)
        pinned = request.version is not None
        return RankingRequest(candidates, request, bundle, tuple(ignored), request.id, pinned)

    def _scanned(self, body: bytes) -> RankingRequest | None:
        """What an ordinary request asks for; None leaves it to the general way."""
        usual = self._models.usual
        if json_fast is None or usual is None:
            return None
        schema = usual.reranker.schema
        try:
            plan = self._plan(usual.reranker)
            rest, matrix, ids, lacking, ignored = json_fast.scan(body, plan, self._settings.max_candidates)
            request = self._words.model_validate(merge_words(decode(rest, self._bounds), self._outer_words))
        except (json_fast.GivenUp, ListwrightError, ValidationError):
            return None
        bundle = self._chosen(request)
        if bundle is not usual or (lacking and request.context and not schema.index.keys().isdisjoint(request.context)):
            return None
        if ids is None:
            ids = request.ids
        context = MappingProxyType(checked_context(request.context, schema) if request.context else {})
        candidates = CandidateList(matrix, None if ids is None else tuple(ids), context)
        return RankingRequest(candidates, request, bundle, ignored, request.id, request.version is not None)

    def _plan(self, reranker: Reranker) -> Any:
        """How to scan the rows of a bundle, made once for each."""
        plan = _plans.get(reranker)
        if plan is None:
            plan = _plans[reranker] = plan_of(reranker.schema, ignores=self._ignores)
        return plan

    def _chosen(self, request: RerankRequest) -> Bundle:
        bundle = self._models.choose(request.model, request.version)
        self._state.fingerprint = bundle.manifest.fingerprint
        return bundle


def plan_of(schema: FeatureSchema, *, ignores: bool = False) -> Any:
    """How to scan the rows of a schema; where unknown features are ignored, as many as a body may have."""
    codes = [
        {category.encode(): feature.code(category) for category in feature.categories}
        if feature.kind == "categorical"
        else None
        for feature in schema.features
    ]
    code_of = [feature.code for feature in schema.features]
    absent = [feature.absent if feature.optional else None for feature in schema.features]
    ignored = most_ignored(len(schema)) if ignores else 0
    return json_fast.Plan([name.encode() for name in schema.names], codes, code_of, absent, ignored)
