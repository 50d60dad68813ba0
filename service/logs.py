"""Logs: one JSON object per line, whoever wrote it, uvicorn included."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import cast

from structlog.processors import EventRenamer, JSONRenderer, format_exc_info
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, WrappedLogger


def json_lines() -> logging.Formatter:
    """A formatter of records, with their ``facts`` as fields. Nothing here ever holds a feature value."""
    return ProcessorFormatter(
        foreign_pre_chain=[_fields, format_exc_info],
        processors=[ProcessorFormatter.remove_processors_meta, EventRenamer("message"), JSONRenderer()],
    )


def config(level: str) -> dict[str, object]:
    """For :func:`logging.config.dictConfig`: every logger writes JSON lines to stderr."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": json_lines}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": level.upper()},
    }


def _fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = cast(logging.LogRecord, event["_record"])
    return {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "pid": record.process,
        **event,
        **getattr(record, "facts", {}),
    }
