"""Every setting of the service, from ``LISTWRIGHT_*`` environment variables: each is declared once, here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    InstanceOf,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from listwright.ranking.remote import Url, as_location
from listwright.ranking.rules.schema import MOST_RULES
from listwright.ranking.stages import NetworkKind

MAX_SALT = 200


def _strip_secret(value: object) -> object:
    """Strip white space around a secret: files and Kubernetes' Secrets often end with an unintended line break."""
    if isinstance(value, str) and " " in value.strip():
        raise ValueError("has a blank within: is it one secret?")
    return _strip_passphrase(value)


def _strip_passphrase(value: object) -> object:
    """Strip white space around a secret that may have blanks within: it is never sent in a header or an address."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        raise ValueError("is empty")
    if not text.isprintable():
        raise ValueError("has a line break or another control character within: is it one secret, on one line?")
    return text


class LoopSettings(BaseSettings):
    """Settings of the served log and of experiments; part of :class:`Settings`."""

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
        BeforeValidator(_strip_passphrase),
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
        bool, Field(description="true: the group may read the served log and the events (mode 0640); false: 0600")
    ] = False
    served_buffer_bytes: Annotated[
        int, Field(ge=2**16, description="memory of one worker for records that wait to be logged; more are dropped")
    ] = 64 * 2**20
    served_stream: Annotated[
        SecretStr | None,
        BeforeValidator(_strip_secret),
        Field(description="redis://HOST:PORT/DB?stream=NAME: records go to this Redis stream, too"),
    ] = None
    served_stream_length: Annotated[
        int, Field(ge=1, le=10**9, description="records that the Redis stream keeps, about; the oldest go first")
    ] = 10_000

    experiments: Annotated[
        Path | None, Field(description="TOML file of experiments on traffic; read again when it changes")
    ] = None
    rules: Annotated[
        Path | None, Field(description="TOML file of merchandising rules, by model; read again when it changes")
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
    """Settings of the log of events; part of :class:`Settings`."""

    events_log: Annotated[
        Path | None, Field(description="folder for what POST /ubi/events takes; without it that path is not there")
    ] = None
    events_max_bytes: Annotated[
        int, Field(ge=2**20, description="size of that folder; beyond it the oldest finished files are removed")
    ] = 10 * 2**30
    events_max_age_s: Annotated[
        float, Field(gt=0, description="age in seconds, from its last event, at which a file of events is removed")
    ] = 30 * 86_400.0


Location = Annotated[
    Path | InstanceOf[Url], BeforeValidator(lambda value: value if value is None else as_location(value))
]
"""A folder, on disk or at a URL."""

PREFIX = "LISTWRIGHT_"

ALL_MODELS = ""
"""Name that stands for every bundle without an entry of its own."""

SECRETS = frozenset(("admin_key", "keys", "unit_salt", "served_stream"))
"""Settings whose values no message repeats."""

STRATEGIES = (*get_args(NetworkKind), "srm", "first_stage")

MOST_EVALUATIONS = 1_000_000
"""Largest budget of one explanation."""

_HOOK = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def _check_hook(value: str) -> str:
    if not _HOOK.fullmatch(value):
        raise ValueError("is not module:callable, e.g. shop.routing:by_device")
    return value


def _strategies(value: str) -> str:
    _parsed(value)
    return value


def _parsed(value: str) -> dict[str, str]:
    """Parse strategies by name; :data:`ALL_MODELS` stands for all that are not named."""
    strategies: dict[str, str] = {}
    for part in value.split(","):
        name, equals, strategy = part.strip().rpartition("=")
        if (equals and not name) or strategy not in STRATEGIES:
            raise ValueError(f"is not STRATEGY or NAME=STRATEGY,..., each strategy one of {', '.join(STRATEGIES)}")
        if name in strategies:
            raise ValueError(f"says two strategies for {'all' if name == ALL_MODELS else name}")
        strategies[name] = strategy
    return strategies


class ExplainSettings(BaseSettings):
    """Settings of explanations; part of :class:`Settings`."""

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


class Settings(LoopSettings, ExplainSettings, EventSettings):
    """Settings of the service, from environment variables."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", hide_input_in_errors=True)

    bundle: Annotated[Location | None, Field(description="folder or URL of the one bundle to serve, NAME/VERSION")] = (
        None
    )
    models: Annotated[
        Location | None,
        Field(
            description="folder or URL of bundles to serve instead of one, NAME/VERSION/, with a file CURRENT for each "
            "NAME"
        ),
    ] = None
    model_name: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
            description="another name of the one bundle, such as that of KServe's InferenceService",
        ),
    ] = None
    poll_s: Annotated[
        float,
        Field(ge=0, le=86_400, description="seconds between looks at the folder of bundles; 0: only when told to look"),
    ] = 2.0
    admin_key: Annotated[
        SecretStr | None,
        Field(min_length=16, description="key that opens POST /admin/reload and /admin/rollback"),
        BeforeValidator(_strip_secret),
    ] = None
    keys: Annotated[
        SecretStr | None,
        Field(min_length=1, description="callers' keys, NAME:KEY,NAME:KEY; without any, everyone may ask"),
    ] = None
    keys_file: Annotated[
        Path | None,
        Field(description="file of the keys, in lines NAME:KEY [rate=N] [burst=N]; read again when it changes"),
    ] = None
    key_rate: Annotated[
        float | None, Field(gt=0, le=1e6, description="requests per second and key that one worker takes; more get 429")
    ] = None
    key_burst: Annotated[
        int, Field(ge=1, le=1_000_000, description="requests of one key that may come at once, where there is a rate")
    ] = 20
    open_info: Annotated[bool, Field(description="true: /info, /metrics and /openapi.json need no key")] = False
    host: Annotated[str, Field(min_length=1, description="address to listen on; :: is every one, of IPv6 and IPv4")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = 8000
    grpc_port: Annotated[
        int | None,
        Field(ge=0, le=65535, description="port of Open Inference over gRPC; 0 takes a free one; without it, no gRPC"),
    ] = None
    tls_cert: Annotated[Path | None, Field(description="PEM file of the certificate and its chain: HTTPS")] = None
    tls_key: Annotated[Path | None, Field(description="PEM file of its private key, not encrypted")] = None
    workers: Annotated[
        int, Field(ge=1, le=256, description="worker processes; each has its own copy of the bundles")
    ] = 1
    hang_s: Annotated[
        float,
        Field(
            ge=1,
            le=86_400,
            description="seconds that the event loop of one of several workers may hang; then it is killed",
        ),
    ] = 30.0
    threads: Annotated[
        int,
        Field(
            ge=0,
            le=256,
            description="threads of one worker; each computes one request at a time; 0: on the event loop, "
            "which is fastest with one worker per core",
        ),
    ] = 0
    queue: Annotated[int, Field(ge=0, le=10_000, description="requests that wait in one worker; more get 429")] = 64
    queue_ms: Annotated[
        float,
        Field(
            ge=0,
            le=600_000,
            description="longest expected time to an answer, milliseconds; a request that would wait longer gets 429",
        ),
    ] = 100.0
    timeout_ms: Annotated[
        float, Field(gt=0, le=600_000, description="milliseconds from first byte to answer; a request may ask for less")
    ] = 10_000.0
    on_failure: Annotated[
        Literal["degrade", "error"],
        Field(description="if a stage fails or would be late: degrade (the order of an earlier stage) or error (504)"),
    ] = "degrade"
    unknown_features: Annotated[
        Literal["refuse", "ignore"],
        Field(description="features sent by name that the bundle does not know: refuse (409), or ignore them"),
    ] = "refuse"
    strategy: Annotated[
        Annotated[str, AfterValidator(_strategies)] | None,
        Field(
            description="meaning of strategy auto instead of a bundle's own default, where no router decides: one for "
            "all bundles, or NAME=STRATEGY,NAME=STRATEGY"
        ),
    ] = None
    max_candidates: Annotated[int, Field(ge=1, le=100_000, description="longest list that is accepted")] = 1000
    max_rules: Annotated[
        int, Field(ge=0, le=MOST_RULES, description="merchandising rules that a request may have; 0 refuses them")
    ] = MOST_RULES
    max_payload_bytes: Annotated[int, Field(ge=1024, description="largest request body")] = 16 * 2**20
    max_connections: Annotated[
        int, Field(ge=1, le=1_000_000, description="connections that one worker serves; new ones beyond it get 503")
    ] = 800
    keep_alive_s: Annotated[
        float,
        Field(
            ge=1,
            le=86_400,
            description="seconds that a connection may be idle; set it above that of the balancer in front",
        ),
    ] = 3_660.0
    max_buffered_bytes: Annotated[
        int, Field(ge=1024, description="bytes of bodies that one worker holds, arriving or waiting; beyond it, 429")
    ] = 64 * 2**20
    hook: Annotated[
        Annotated[str, AfterValidator(_check_hook)] | None,
        Field(description="module:callable that picks a specialist, asked before the bundle's router"),
    ] = None
    hook_budget_ms: Annotated[
        float, Field(gt=0, le=60_000, description="milliseconds that a request waits for the hook")
    ] = 2.0
    routing: Annotated[bool, Field(description="false: ask neither hook nor router")] = True
    routing_off_file: Annotated[
        Path | None, Field(description="while this file exists, neither hook nor router is asked")
    ] = None
    drain_s: Annotated[
        float,
        Field(ge=0, le=600, description="seconds that every worker keeps serving after SIGTERM, with /readyz at 503"),
    ] = 0.0
    ui: Annotated[bool, Field(description="true: serve the page at /ui/")] = False
    log_level: Annotated[
        Literal["critical", "error", "warning", "info", "debug"], Field(description="least severe message logged")
    ] = "info"

    @field_validator("*", mode="before")
    @classmethod
    def _says_something(cls, value: object) -> object:
        """Refuse blank variables, which are mistakes: blank keys, for one, would open the service to everybody."""
        if isinstance(value, str) and not value.strip():
            raise ValueError("is empty: give it a value, or do not set it")
        return value

    @property
    def strategies(self) -> dict[str, str]:
        """Meaning of ``auto``, by the bundle's name; :data:`ALL_MODELS` stands for all others."""
        return {} if self.strategy is None else _parsed(self.strategy)

    @field_validator("model_name")
    @classmethod
    def _names_one_bundle(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("models") is not None:
            raise ValueError(
                f"names one bundle, and {PREFIX}MODELS a folder of them: write NAME/ALIAS into that folder"
            )
        return value

    @field_validator("max_buffered_bytes")
    @classmethod
    def _holds_one_body(cls, value: int, info: ValidationInfo) -> int:
        largest = info.data.get("max_payload_bytes", 0)
        if value < largest:
            raise ValueError(f"is below {PREFIX}MAX_PAYLOAD_BYTES, {largest}: no such body would ever be taken")
        return value

    @model_validator(mode="after")
    def _serves_something(self) -> Settings:
        if self.bundle is None and self.models is None:
            raise ValueError("there is nothing to serve")
        return self


def near_misses(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return variables of the environment that resemble a setting without being one, each with that setting.

    Others may have a reason: Kubernetes makes ``LISTWRIGHT_SERVICE_HOST`` of a Service of this name.
    """
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    misses = []
    for name in sorted(names):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            misses += [(name, meant) for meant in get_close_matches(name.upper(), known, n=1, cutoff=0.9)]
    return misses


_GROUPS = {
    "bundle": "bundles", "admin_key": "keys", "host": "address", "workers": "processes, and time for an answer",
    "unknown_features": "requests", "hook": "routing", "drain_s": "operation", "explain": "explanations",
    "events_log": "events", "served_log": "served log", "experiments": "experiments and rules",
}  # fmt: skip
"""Headings of the settings, each by the first below it."""


def describe() -> str:
    """Describe each setting, for ``--help``."""
    lines = []
    inherited = LoopSettings.model_fields | EventSettings.model_fields | ExplainSettings.model_fields
    for name, field in sorted(Settings.model_fields.items(), key=lambda item: item[0] in inherited):
        lines += [f"\n{_GROUPS[name]}:"] if name in _GROUPS else []
        lines += [f"  {PREFIX}{name.upper()} (default {str(field.default).lower()})", f"      {field.description}"]
    return "\n".join(lines)
