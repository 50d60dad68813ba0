"""The two clients, sync and async; they differ only in how they send and wait."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack

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

_GIVEN = "httpx client that was given: make both in each"

_PATHS = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
"""Environment variables with paths that httpx opens when a client is made."""

NOT_READY = (ConnectionFailedError, DeadlineExceededError, UnavailableError)


class _Connections(Generic[Http]):
    """Connection pool of one process and event loop, replaced in another: a connection dies with its loop."""

    def __init__(self, make: Callable[[], Http], http: Http | None, loop: Callable[[], Any] = lambda: None) -> None:
        self._make, self._loop, self.owned, self.moved = make, loop, http is None, False
        self._used: tuple[Any, Http] = None, self._open() if http is None else http

    def pool(self) -> Http:
        """Return the pool of this process and event loop; RuntimeError if it is another's that cannot be replaced."""
        place, (used, pool) = (os.getpid(), self._loop()), self._used  # no os.register_at_fork: uWSGI forks without it
        if used not in (None, place) and not pool.is_closed:
            if used[0] == place[0] and used[1].is_running():
                raise RuntimeError("another event loop uses this AsyncClient and still runs: make one in each loop")
            if self.owned:  # the old one is not closed: its lock may be held by a thread of the parent, its loop closed
                pool = self._open()
            elif used[0] != place[0]:
                raise RuntimeError(
                    f"this process was forked after the Client had used the {_GIVEN} process, after the fork"
                )
            self.moved = not self.owned
        self._used = place, pool  # at once, for another thread that looks meanwhile
        return pool

    def _open(self) -> Http:
        paths = {name: os.environ[name] for name in _PATHS if os.environ.get(name)}
        try:
            if "SSL_CERT_FILE" not in paths and "SSL_CERT_DIR" in paths:
                os.scandir(paths["SSL_CERT_DIR"].split(os.pathsep)[0]).close()  # OpenSSL passes over what is not there
            return self._make()
        except OSError as error:
            for name in (name for name, path in paths.items() if path.startswith(error.filename or "")):
                raise ValueError(f"{name} is {paths[name]!r} ({error}): correct or unset it") from error
            raise


class Client:
    """A client of one service. Threads may share it, and forked processes: each process has its own connections.
    Close it, or use it in a ``with``.

    Args:
        base_url: URL of the service, e.g. ``http://127.0.0.1:8000``; a path before ``/rerank`` is kept.
        api_key: Key that is sent as ``Authorization: Bearer``; None if the service needs none.
        timeout: Seconds that a call may take, retries and waits included; each call may say otherwise.
        retries: Most attempts after the first, where trying again is safe and there is time.
        http: An ``httpx.Client`` of your own (proxies, certificates, limits), which you close yourself.
        clock, sleep, jitter: Substitutes for ``time.monotonic``, ``time.sleep`` and ``random.random``, for tests.
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
        self._settings = Settings(base_url, api_key, timeout, retries, clock, jitter)
        self._connections, self._sleep = _Connections(httpx.Client, http), sleep

    def rerank(self, features: Features, **options: Unpack[RerankOptions]) -> Ranking:
        """Rank the candidates of one query.

        Args:
            features: ``(L, D)`` array, NaN for a missing value, categories as strings in an array of objects; or one
                mapping per candidate, by feature name; or a pandas or polars frame, whose columns are the features.
            options: Fields of :class:`~listwright_client.options.RerankOptions`.

        Raises:
            ListwrightError: see :mod:`listwright_client.errors`.
            ValueError, TypeError: for what cannot be sent.
        """
        return self._ask(Call(self._settings, partial(questions.rerank, features, options), options))

    def explain(self, features: Features, **options: Unpack[ExplainOptions]) -> Explained:
        """Rank the candidates of one query, and explain the place of one of them, or of the first ones.

        Args:
            features: Features of the candidates, as in :meth:`rerank`.
            options: Fields of :class:`~listwright_client.options.ExplainOptions`; ``candidate`` or ``explain_top_n``
                among them. An explanation takes seconds: give it a ``timeout``.

        Raises:
            ListwrightError, ValueError, TypeError: as :meth:`rerank`; a service that explains nothing answers 404.
        """
        return self._ask(Call(self._settings, partial(questions.explain, features, options), options))

    def info(self, **options: Unpack[CallOptions]) -> Info:
        """Return what is served: the bundle, its features, the limits."""
        return self._ask(Call(self._settings, questions.info, options))

    def ready(self, **options: Unpack[CallOptions]) -> bool:
        """Return whether the service is ready for traffic; False if it cannot be reached. One attempt."""
        with suppress(*NOT_READY):
            return self._ask(Call(self._settings, questions.ready, options, retries=0))
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
            response = http.send(_request(http, attempt, call, trace=_bound), stream=True)
            answered = True
            content = bytearray()
            with closing(response):
                for piece in response.iter_bytes() if response.is_stream_consumed else response.iter_raw():
                    if content and not call.wants_more(response.status_code, len(content)):
                        break
                    content += piece
            return Reply(response.status_code, response.headers, bytes(content))
        except (httpx.RequestError, TimeoutError) as error:
            return Failure(error, answered)


class AsyncClient:
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
        self._settings = Settings(base_url, api_key, timeout, retries, clock, jitter)
        self._connections, self._sleep = _Connections(httpx.AsyncClient, http, asyncio.get_running_loop), sleep

    async def rerank(self, features: Features, **options: Unpack[RerankOptions]) -> Ranking:
        """Rank the candidates of one query; see :meth:`Client.rerank`."""
        return await self._ask(Call(self._settings, partial(questions.rerank, features, options), options))

    async def explain(self, features: Features, **options: Unpack[ExplainOptions]) -> Explained:
        """Explain the places of candidates; see :meth:`Client.explain`."""
        return await self._ask(Call(self._settings, partial(questions.explain, features, options), options))

    async def info(self, **options: Unpack[CallOptions]) -> Info:
        """Return what is served; see :meth:`Client.info`."""
        return await self._ask(Call(self._settings, questions.info, options))

    async def ready(self, **options: Unpack[CallOptions]) -> bool:
        """Return whether the service is ready for traffic; see :meth:`Client.ready`."""
        with suppress(*NOT_READY):
            return await self._ask(Call(self._settings, questions.ready, options, retries=0))
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
                answered, content = True, bytearray()
                async with aclosing(response):
                    async for piece in response.aiter_bytes() if response.is_stream_consumed else response.aiter_raw():
                        if content and not call.wants_more(response.status_code, len(content)):
                            break
                        content += piece
                return Reply(response.status_code, response.headers, bytes(content))
        except (httpx.RequestError, TimeoutError) as error:
            return Failure(error, answered)
        except RuntimeError as error:
            if not self._connections.moved:
                raise
            raise RuntimeError(f"another event loop, now closed, has used the {_GIVEN} loop") from error


class _TimeLeft(float):
    """Seconds that were left of a call when it was sent, as a timeout for httpx, and a function that counts again."""

    def __new__(cls, count: Callable[[], float]) -> _TimeLeft:
        left = super().__new__(cls, count())
        left.count = count
        return left

    count: Callable[[], float]


def _bound(event: str, info: dict[str, Any]) -> None:
    """Make each read and write end with its call, by httpcore's ``trace``: all of a step get the time of its first."""
    if event.endswith("connect_tcp.started"):
        with suppress(OSError):  # of an unknown host, which httpcore meets next
            addresses = socket.getaddrinfo(info["host"], info["port"], type=socket.SOCK_STREAM)
            info["timeout"] = (_left(info["timeout"]) or 0.0) / len(addresses)  # each is tried for so long
    elif event.endswith(("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")):
        stream = info["return_value"]
        read, write, encrypt = stream.read, stream.write, stream.start_tls

        def write_parts(buffer: bytes, timeout: float | None = None) -> None:
            for start in range(0, len(buffer), 2**14):
                write(buffer[start : start + 2**14], _left(timeout))

        stream.read = lambda max_bytes, timeout=None: read(max_bytes, _left(timeout))
        stream.start_tls = lambda ssl_context, server_hostname=None, timeout=None: encrypt(
            ssl_context, server_hostname, _left(timeout)
        )
        stream.write = write_parts


def _left(timeout: float | None) -> float | None:
    """Return the time that is left now; that of another's request as it is."""
    return timeout.count() if isinstance(timeout, _TimeLeft) else timeout


def _request(http: httpx.Client | httpx.AsyncClient, attempt: Attempt, call: Call[T], **more: Any) -> httpx.Request:
    return http.build_request(
        attempt.method,
        attempt.url,
        headers=attempt.headers,
        content=attempt.content,
        timeout=_TimeLeft(call.remaining),
        extensions=more,
    )
