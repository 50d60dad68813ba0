"""JSON at ``POST /rerank``: features by name, by position or as a matrix."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import to_json
from starlette.datastructures import State

from ranking.candidates import Ranking
from service.answer import to_answer
from service.answering import Asked, Written
from service.convert import to_candidates
from service.decode import Bounds, decode
from service.models import Models
from service.schemas import RerankRequest
from service.settings import Settings
from service.validation import validated


class JsonDoor:
    """One request.

    Args:
        body: JSON.
        models: what is served, for as long as this takes.
        settings: of the service.
        state: of the request; gets the fingerprint of the bundle that answers.
    """

    def __init__(self, body: bytes, models: Models, settings: Settings, state: State) -> None:
        self._body, self._models, self._settings, self._state = body, models, settings, state

    def read(self) -> Asked:
        """Decode, validate, choose the bundle, make the matrix."""
        bounds = Bounds(self._settings.max_candidates, self._models.width)
        request = validated(RerankRequest, decode(self._body, bounds))
        bundle = self._models.choose(request.model, request.version)
        self._state.fingerprint = bundle.manifest.fingerprint
        return Asked(to_candidates(request, bundle.reranker.schema), request, bundle)

    def write(self, asked: Asked, ranking: Ranking, milliseconds: Mapping[str, float]) -> Written:
        """JSON again."""
        assert isinstance(asked.options, RerankRequest)
        content = to_answer(ranking, asked.options, asked.bundle.manifest, asked.candidates.ids, milliseconds)
        return Written(to_json(content), "application/json", {})
