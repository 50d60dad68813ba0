"""The two clients, sync and async; they differ only in how they send and wait."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing, suppress
from types import TracebackType
from typing import Generic, TypeVar, Unpack

import httpx

from listwright_client import questions
from listwright_client.answers import Info, Ranking
from listwright_client.call import Attempt, Call, Pause, Settings
from listwright_client.errors import ConnectionFailedError, DeadlineExceededError, UnavailableError
from listwright_client.exchange import Failure, Reply
from listwright_client.explanations import Explained
from listwright_client.options import CallOptions, ExplainOptions, Features, RerankOptions

T = TypeVar("T")
Http = TypeVar("Http", bound=httpx.Client | httpx.AsyncClient)

NOT_READY = (ConnectionFailedError, DeadlineExceededError, UnavailableError)


class _Connections(Generic[Http]):
    """Connection pool of one process, replaced after a fork: processes that share a connection mix up their answers.

    Args:
        make: makes an empty pool.
        given: the caller's own pool; None: one is made.
    """

    def __init__(self, make: Callable[[], Http], given: Http | None) -> None:
        self._make, self.owned = make, given is None
        self._pool = make() if given is None else given
        self._pid: int | None = None  # of the process that has used it

    def pool(self) -> Http:
        """Return the pool of this process.

        Raises:
            RuntimeError: if it is the caller's own, and another process has used it.
        """
        pid = os.getpid()  # not os.register_at_fork: uWSGI forks without it
        if self._pid not in (None, pid) and not self._pool.is_closed:
            if not self.owned:
                raise RuntimeError(
                    "this process was forked after the Client had used the httpx client that it was given: make both "
                    "in each process, after the fork"
                )
            self._pool = self._make()  # the old one is not closed: its lock may be held by a thread of the parent
        self._pid = pid  # behind the pool, for another thread that looks meanwhile
        return self._pool


class _BaseClient:
    """Settings and calls, shared by the sync and the async client."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def _to_rerank(self, features: Features, options: RerankOptions) -> Call[Ranking]:
        started = self._settings.clock()
        question = questions.rerank(features, options)
        return Call(self._settings, question, options, started=started, timeout_ms=options.get("timeout_ms"))

    def _to_explain(self, features: Features, options: ExplainOptions) -> Call[Explained]:
        started = self._settings.clock()
        question = questions.explain(features, options)
        return Call(self._settings, question, options, started=started, timeout_ms=options.get("timeout_ms"))

    def _to_info(self, options: CallOptions) -> Call[Info]:
        return Call(self._settings, questions.info(), options, started=self._settings.clock())

    def _to_ready(self, options: CallOptions) -> Call[bool]:
        return Call(self._settings, questions.ready(), options, started=self._settings.clock(), retries=0)


class Client(_BaseClient):
    """Client of one service. Threads may share it, and forked processes: each process has its own connections.
    Close it, or use it in a ``with``.

    Args:
        base_url: of the service, e.g. ``http://127.0.0.1:8000``; a path before ``/rerank`` is kept.
        api_key: sent as ``Authorization: Bearer``.
        timeout: seconds that a call may take, retries and waits included; each call may say otherwise.
        retries: attempts after the first, where trying again is safe and there is time.
        http: an ``httpx.Client`` of your own (proxies, certificates, limits), which you close yourself.
        clock, sleep, jitter: ``time.monotonic``, ``time.sleep`` and ``random.random``, for tests.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout: float = 5.0,
        retries: int = 2,
        http: httpx.Client | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(Settings(base_url, api_key, timeout, retries, clock, jitter))
        self._connections, self._sleep = _Connections(httpx.Client, http), sleep

    def rerank(self, features: Features, **options: Unpack[RerankOptions]) -> Ranking:
        """Rank the candidates of one query.

        Args:
            features: ``(L, D)`` array, NaN for a missing value, categories as strings in an array of objects; or one
                mapping per candidate, by feature name; or a pandas or polars frame, whose columns are the features.
            options: see :class:`~listwright_client.options.RerankOptions`.

        Raises:
            ListwrightError: see :mod:`listwright_client.errors`.
            ValueError, TypeError: for what cannot be sent.
        """
        return self._ask(self._to_rerank(features, options))

    def explain(self, features: Features, **options: Unpack[ExplainOptions]) -> Explained:
        """Rank the candidates of one query, and explain the place of one of them, or of the first ones.

        Args:
            features: as in :meth:`rerank`.
            options: see :class:`~listwright_client.options.ExplainOptions`; ``candidate`` or ``explain_top_n`` among
                them. An explanation takes seconds: give it a ``timeout``.

        Raises:
            ListwrightError, ValueError, TypeError: as :meth:`rerank`; a service that explains nothing answers 404.
        """
        return self._ask(self._to_explain(features, options))

    def info(self, **options: Unpack[CallOptions]) -> Info:
        """Return what is served: the bundle, its features, the limits."""
        return self._ask(self._to_info(options))

    def ready(self, **options: Unpack[CallOptions]) -> bool:
        """Return whether the service is ready for traffic; False if it cannot be reached. One attempt."""
        with suppress(*NOT_READY):
            return self._ask(self._to_ready(options))
        return False

    def close(self) -> None:
        """Close the connections, unless they are your own httpx's."""
        if self._connections.owned:
            self._connections.pool().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, call: Call[T]) -> T:
        while True:
            verdict = call.judge(self._exchange(call.next_attempt(), call))
            if not isinstance(verdict, Pause):
                return verdict
            self._sleep(verdict.seconds)

    def _exchange(self, attempt: Attempt, call: Call[T]) -> Reply | Failure:
        http, answered = self._connections.pool(), False
        try:
            response = http.send(_request(http, attempt, call), stream=True)
            answered = True
            pieces: list[bytes] = []
            with closing(response):
                for piece in response.iter_bytes():
                    if pieces and call.is_over():
                        raise TimeoutError
                    pieces.append(piece)
            return Reply(response.status_code, response.headers, b"".join(pieces))
        except (httpx.RequestError, TimeoutError) as error:
            return Failure(error, answered)


class AsyncClient(_BaseClient):
    """:class:`Client` for asyncio, with the same words; ``http`` is an ``httpx.AsyncClient``."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout: float = 5.0,
        retries: int = 2,
        http: httpx.AsyncClient | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(Settings(base_url, api_key, timeout, retries, clock, jitter))
        self._connections, self._sleep = _Connections(httpx.AsyncClient, http), sleep

    async def rerank(self, features: Features, **options: Unpack[RerankOptions]) -> Ranking:
        """Rank the candidates of one query; see :meth:`Client.rerank`."""
        return await self._ask(self._to_rerank(features, options))

    async def explain(self, features: Features, **options: Unpack[ExplainOptions]) -> Explained:
        """Explain the places of candidates; see :meth:`Client.explain`."""
        return await self._ask(self._to_explain(features, options))

    async def info(self, **options: Unpack[CallOptions]) -> Info:
        """Return what is served; see :meth:`Client.info`."""
        return await self._ask(self._to_info(options))

    async def ready(self, **options: Unpack[CallOptions]) -> bool:
        """Return whether the service is ready for traffic; see :meth:`Client.ready`."""
        with suppress(*NOT_READY):
            return await self._ask(self._to_ready(options))
        return False

    async def aclose(self) -> None:
        """Close the connections, unless they are your own httpx's."""
        if self._connections.owned:
            await self._connections.pool().aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _ask(self, call: Call[T]) -> T:
        while True:
            verdict = call.judge(await self._exchange(call.next_attempt(), call))
            if not isinstance(verdict, Pause):
                return verdict
            await self._sleep(verdict.seconds)

    async def _exchange(self, attempt: Attempt, call: Call[T]) -> Reply | Failure:
        http, answered = self._connections.pool(), False
        try:
            async with asyncio.timeout(call.remaining()):
                response = await http.send(_request(http, attempt, call), stream=True)
                answered = True
                async with aclosing(response):
                    return Reply(response.status_code, response.headers, await response.aread())
        except (httpx.RequestError, TimeoutError) as error:
            return Failure(error, answered)


class _RemainingTime(dict[str, float]):
    """Timeouts of an exchange for httpx: each step (connect, write, read) gets the remaining time of the call."""

    def __init__(self, remaining: Callable[[], float]) -> None:
        super().__init__()
        self._remaining = remaining

    def get(self, key: str, default: object = None) -> float:  # noqa: ARG002
        """Return the remaining seconds, whatever the step."""
        return self._remaining()


def _request(http: httpx.Client | httpx.AsyncClient, attempt: Attempt, call: Call[T]) -> httpx.Request:
    return http.build_request(
        attempt.method,
        attempt.url,
        headers=attempt.headers,
        content=attempt.content,
        extensions={"timeout": _RemainingTime(call.remaining)},
    )
