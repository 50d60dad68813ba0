"""Settings from ``LISTWRIGHT_*`` environment variables; each is declared once, here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "LISTWRIGHT_"


def _given(value: object) -> object:
    if value == "":  # a path of "" is the working directory, which nobody means
        raise ValueError("is empty")
    return value


class Settings(BaseSettings):
    """What an operator can choose."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    bundle: Annotated[Path, BeforeValidator(_given), Field(description="folder of the bundle to serve, NAME/VERSION")]
    host: Annotated[str, Field(min_length=1, description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = 8000
    workers: Annotated[int, Field(ge=1, le=256, description="worker processes; each holds its own copy")] = 1
    threads: Annotated[
        int, Field(ge=1, le=256, description="requests that one worker computes at a time; the others wait")
    ] = 2
    max_candidates: Annotated[int, Field(ge=1, le=100_000, description="longest list that is accepted")] = 1000
    max_payload_bytes: Annotated[int, Field(ge=1024, description="largest request body")] = 16 * 2**20
    drain_s: Annotated[
        float,
        Field(ge=0, le=600, description="seconds that a single worker keeps serving after SIGTERM, readyz at 503"),
    ] = 0.0
    log_level: Annotated[
        Literal["critical", "error", "warning", "info", "debug"], Field(description="least severe message logged")
    ] = "info"


def describe() -> str:
    """One line per setting, for ``--help``."""
    lines = []
    for name, field in Settings.model_fields.items():
        default = "required" if field.is_required() else f"default {field.default}"
        lines += [f"  {PREFIX}{name.upper()} ({default})", f"      {field.description}"]
    return "\n".join(lines)
