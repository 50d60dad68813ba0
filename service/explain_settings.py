"""Settings of explanations. Off unless set."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

MOST_EVALUATIONS = 1_000_000


class ExplainSettings(BaseSettings):
    """What an operator can choose of explanations; part of :class:`listwright.service.settings.Settings`."""

    explain: Annotated[
        bool, Field(description="true: POST /explain says why a candidate stands where it stands; false: 404")
    ] = False
    explain_timeout_ms: Annotated[
        float,
        Field(
            gt=0,
            le=600_000,
            description="milliseconds from first byte to explanation, its wait included; a request may ask for less",
        ),
    ] = 10_000.0
    explain_max_budget: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_EVALUATIONS,
            description="most changed candidates that a stage scores for one explanation; a request may ask for less",
        ),
    ] = 20_000
