"""JSON at ``POST /rerank``: features by name, by position or as a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.datastructures import State

from ranking.bundle import Bundle
from ranking.candidates import CandidateList, Ranking
from ranking.errors import ListwrightError
from ranking.features import FeatureSchema
from ranking.reranker import Reranker
from service.answer import to_answer
from service.answering import Asked, Written
from service.compiled import scan
from service.convert import checked_context, to_candidates
from service.decode import bounds_of, check_size, decode
from service.models import Models
from service.schemas import RerankRequest
from service.settings import Settings
from service.validation import validated

_plans: WeakKeyDictionary[Reranker, Any] = WeakKeyDictionary()


class JsonDoor:
    """One request.

    An ordinary body is scanned, which makes no object of each number; any other is read the general way, which accepts
    all that the contract does and says where the rest is at fault.

    Args:
        body: JSON.
        models: what is served, for as long as this takes.
        settings: of the service.
        state: of the request; gets the fingerprint of the bundle that answers.
    """

    def __init__(self, body: bytes, models: Models, settings: Settings, state: State) -> None:
        self._body, self._models, self._settings, self._state = body, models, settings, state
        self._bounds = bounds_of(settings.max_candidates, models.schemas)

    def read(self) -> Asked:
        """Decode, validate, choose the bundle, make the matrix."""
        check_size(self._body, self._bounds)
        found = self._scanned()
        if found is not None:
            return found
        request = validated(RerankRequest, decode(self._body, self._bounds))
        bundle = self._chosen(request)
        return Asked(to_candidates(request, bundle.reranker.schema), request, bundle)

    def _scanned(self) -> Asked | None:
        """What an ordinary request asks for; None leaves it to the general way."""
        usual = self._models.usual
        if scan is None or usual is None:
            return None
        schema = usual.reranker.schema
        try:
            rest, matrix, ids = scan.scan(self._body, _plan(usual.reranker), self._settings.max_candidates)
            request = RerankRequest.model_validate(decode(rest, self._bounds))
        except (scan.GivenUp, ListwrightError, ValidationError):
            return None
        bundle = self._chosen(request)
        if bundle is not usual:
            return None
        if ids is None:
            ids = request.ids
        context = MappingProxyType(checked_context(request.context, schema) if request.context else {})
        return Asked(CandidateList(matrix, None if ids is None else tuple(ids), context), request, bundle)

    def _chosen(self, request: RerankRequest) -> Bundle:
        bundle = self._models.choose(request.model, request.version)
        self._state.fingerprint = bundle.manifest.fingerprint
        return bundle

    def write(self, asked: Asked, ranking: Ranking, milliseconds: Mapping[str, float]) -> Written:
        """JSON again."""
        assert isinstance(asked.options, RerankRequest)
        content = to_answer(ranking, asked.options, asked.bundle.manifest, asked.candidates.ids, milliseconds)
        return Written(to_json(content), "application/json", {})


def _plan(reranker: Reranker) -> Any:
    """How to scan the rows of a bundle, made once for each."""
    plan = _plans.get(reranker)
    if plan is None:
        plan = _plans[reranker] = plan_of(reranker.schema)
    return plan


def plan_of(schema: FeatureSchema) -> Any:
    """How to scan the rows of a schema."""
    codes = [
        {category.encode(): feature.code(category) for category in feature.categories}
        if feature.kind == "categorical"
        else None
        for feature in schema.features
    ]
    return scan.Plan([name.encode() for name in schema.names], codes)
