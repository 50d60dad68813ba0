"""Answers that are written and not yet sent: a caller that does not read them is cut off."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any

from listwright.service.transport.request_parser import RequestParser


class UnsentAnswers(RequestParser):
    """A connection whose answers leave within a time.

    The system waits without end for a caller that takes nothing, even where the connection was closed from here.
    """

    patience_s: float
    """How long an answer may take to leave, from the last word of the event loop about it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._leaving: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """Called by the event loop when the caller takes its answer slower than it is written."""
        self._expect_to_leave()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Called by the event loop when most of it has left; the rest has to leave, too."""
        self._expect_to_leave()
        super().resume_writing()

    @property
    def sends(self) -> bool:
        """Whether something has yet to leave."""
        return bool(self.transport.get_write_buffer_size())

    def cut(self) -> None:
        """End it at once; unsent bytes are lost."""
        self._leave()
        self.transport.abort()

    def shutdown(self) -> None:
        """Called by uvicorn when the process ends: an idle connection is closed, once everything has left."""
        super().shutdown()
        if self.sends:
            self._expect_to_leave()

    def _close(self) -> None:
        """Close it once everything is sent, within a time limit."""
        self.transport.close()
        if self.sends:
            self._expect_to_leave()

    def _expect_to_leave(self) -> None:
        """Start to wait for the caller to take its answer."""
        if self._leaving is not None:
            self._leaving.cancel()
        self._leaving = self.loop.call_later(self.patience_s, self._stop_leaving)

    def _stop_leaving(self) -> None:
        if self.sends:
            self.cut()

    @abstractmethod
    def _leave(self) -> None:
        """Tell the request at work that its caller has gone."""
