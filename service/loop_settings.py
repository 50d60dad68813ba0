"""Settings of what is kept for learning, and of experiments on traffic. All off unless set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings

MAX_SALT = 200


def strip_secret(value: object) -> object:
    """A secret as it is used: files and Kubernetes' Secrets often end with a line break that is not meant.

    Raises:
        ValueError: if nothing is left without white space around it, or white space or a control character is within.
    """
    if isinstance(value, str) and " " in value.strip():
        raise ValueError("has a blank within: is it one secret?")
    return strip_passphrase(value)


def strip_passphrase(value: object) -> object:
    """A secret that may have blanks within: it never travels in a header or an address.

    Raises:
        ValueError: as :func:`strip_secret`, but for blanks.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        raise ValueError("is empty")
    if not text.isprintable():
        raise ValueError("has a line break or another control character within: is it one secret, on one line?")
    return text


class LoopSettings(BaseSettings):
    """What an operator can choose of it; part of :class:`listwright.service.settings.Settings`."""

    served_log: Annotated[Path | None, Field(description="folder of the served log: one record per answered list")] = (
        None
    )
    served_share: Annotated[
        float, Field(gt=0, le=1, description="share of queries that are logged, by a hash of the query id")
    ] = 1.0
    unit_salt: Annotated[
        SecretStr | None,
        Field(
            min_length=16,
            max_length=MAX_SALT,
            description="secret that units are hashed with before they are logged; without it they are logged as sent",
        ),
        BeforeValidator(strip_passphrase),
    ] = None
    served_flush_s: Annotated[
        float, Field(gt=0, le=3600, description="seconds after which logged records are written, be they few")
    ] = 1.0
    served_file_bytes: Annotated[
        int, Field(ge=2**16, le=2**40, description="size at which a file of the served log is finished")
    ] = 256 * 2**20
    served_file_s: Annotated[
        float, Field(gt=0, le=7 * 86_400, description="age in seconds at which a file of the served log is finished")
    ] = 600.0
    served_max_bytes: Annotated[
        int, Field(ge=2**17, description="size of the served log's folder; the oldest files go first")
    ] = 10 * 2**30
    served_max_days: Annotated[
        float, Field(gt=0, description="age in days at which files of the served log are removed")
    ] = 30.0
    served_group_reads: Annotated[
        bool,
        Field(description="true: the group may read the served log and the events (mode 0640); false: 0600"),
    ] = False
    served_buffer_bytes: Annotated[
        int, Field(ge=2**16, description="memory of one worker for records that wait to be logged; more are dropped")
    ] = 64 * 2**20
    served_stream: Annotated[
        SecretStr | None,
        BeforeValidator(strip_secret),
        Field(description="redis://HOST:PORT/DB?stream=NAME: records go to this Redis stream, too"),
    ] = None
    served_stream_length: Annotated[
        int, Field(ge=1, le=10**9, description="records that the Redis stream keeps, about; the oldest go first")
    ] = 10_000

    experiments: Annotated[
        Path | None,
        Field(description="TOML file of experiments on traffic; read again when it changes"),
    ] = None
    experiments_off_file: Annotated[Path | None, Field(description="while this file exists, no experiment runs")] = None

    @property
    def logs_served(self) -> bool:
        """Whether served records go anywhere."""
        return self.served_log is not None or self.served_stream is not None

    @field_validator("served_max_bytes")
    @classmethod
    def _holds_two_files(cls, value: int, info: ValidationInfo) -> int:
        file_bytes = info.data.get("served_file_bytes", 0)
        if value < 2 * file_bytes:
            raise ValueError(f"is below twice LISTWRIGHT_SERVED_FILE_BYTES, {file_bytes}: no finished file would stay")
        return value


class EventSettings(BaseSettings):
    """What an operator can choose of the log of events; part of the settings, too."""

    events_log: Annotated[
        Path | None,
        Field(description="folder for what POST /ubi/events takes; without it that path is not there"),
    ] = None
    events_max_bytes: Annotated[
        int, Field(ge=2**20, description="size of that folder; beyond it the oldest finished files are removed")
    ] = 10 * 2**30
    events_max_age_s: Annotated[
        float, Field(gt=0, description="age in seconds, from its last event, at which a file of events is removed")
    ] = 30 * 86_400.0
