"""One serving process: uvicorn with draining and fair accept."""

from __future__ import annotations

import asyncio
import errno
import http
import logging
import os
import signal
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from socket import (
    AF_INET6,
    AI_PASSIVE,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SO_REUSEADDR,
    SO_REUSEPORT,
    SOCK_STREAM,
    SOL_SOCKET,
    getaddrinfo,
    socket,
)
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI

from listwright.ranking import plain_file
from listwright.ranking.plain_file import NotPlainError
from listwright.service.settings import PREFIX, Settings
from listwright.service.transport.connection import HEADERS, Connection
from listwright.service.transport.connection_limit import ConnectionLimit

if TYPE_CHECKING:
    from listwright.service.grpc.server import GrpcServer

FINISH_WITHIN_S = 25
"""Seconds after draining at which unanswered requests are dropped: before Kubernetes kills at 30."""

LINGER_S = 1.0
"""Seconds that connections stay open after the port is closed: a request may be on its way in one of them."""

LET_GO_S = 0.02
"""Seconds in which the event loop releases a socket after its ``close``."""

PAUSE_S = 0.001
"""Seconds that a process waits before it accepts, for each connection that it has: the event loop's shortest."""

MOST_PAUSES = 3
"""Most pauses before an accept: with more connections an even share comes by itself."""

CALM_CHECKS, CALM_S, MOST_AT_ONCE = 8, 0.02, 256
"""Under a rush an even share comes by itself. So after this many checks in a row, each within this time of the last and
none of which took all that waited, each check takes twice as many as the last, up to a maximum."""

AT_ONCE_BEYOND = 16
"""Most connections that a check takes at the limit: each is an open file until it is counted and refused."""

EXHAUSTED_S = 1.0
"""Seconds without accepting after the system had no files or memory for a connection."""

BACKLOG = 2048

MOST_PEM_BYTES = 2**20
"""Largest file of a certificate or key; usual ones have a few thousand bytes."""

_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Errors for an address of ``localhost`` where the machine has no IPv6."""

_log = logging.getLogger("listwright.service")
_connections_log = logging.getLogger("listwright.connections")


def options(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options."""
    return {
        "ws": "none",
        "workers": 1,  # else uvicorn reads WEB_CONCURRENCY of the environment
        "proxy_headers": False,  # as it does FORWARDED_ALLOW_IPS; no answer depends on the caller's address
        "forwarded_allow_ips": "",
        "host": settings.host,
        "port": settings.port,
        "log_level": settings.log_level,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "headers": list(HEADERS),
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
        "timeout_graceful_shutdown": FINISH_WITHIN_S,
    }


def bind_ports(host: str, port: int) -> list[socket]:
    """Bind the port on each address of the host, without listening.

    Convention: ``::`` takes IPv4, too, whatever the system does by itself.

    Raises:
        OSError: if there is no such address here, or the port is in use.
    """
    ports: list[socket] = []
    absent = None
    try:
        addresses = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)
    except UnicodeError as error:  # a name that no host can have
        raise OSError(errno.EINVAL, str(error)) from error
    for family, kind, protocol, _, address in addresses:
        try:
            ports.append(_bind(socket(family, kind, protocol), (address[0], port, *address[2:])))
        except OSError as error:
            if error.errno not in _ABSENT:
                for other in ports:
                    other.close()
                raise
            absent = error
        else:
            port = ports[-1].getsockname()[1]
    if not ports and absent is not None:
        raise absent
    return ports


def _bind(port: socket, address: tuple[Any, ...]) -> socket:
    """Bind a socket and return it; close it if it cannot be bound."""
    try:
        port.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        if port.family == AF_INET6:
            port.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, address[0] != "::")
        port.bind(address)
    except OSError:
        port.close()
        raise
    return port


def reserve_grpc_port(settings: Settings) -> tuple[Settings, list[socket]]:
    """Bind the port of gRPC, for the servers of this process or its workers to share while the sockets are kept.

    Returns:
        Settings with the number of the port, and the sockets, which never listen.

    Raises:
        OSError: as :func:`bind_ports`.
    """
    if settings.grpc_port is None:
        return settings, []
    ports = bind_ports(settings.host, settings.grpc_port)
    for port in ports:
        port.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)  # only now, so that nobody else could bind the port before
    return settings.model_copy(update={"grpc_port": ports[0].getsockname()[1]}), ports


def announce(settings: Settings, ports: Sequence[socket]) -> None:
    """Log the addresses that listen."""
    tls = settings.tls_cert is not None
    for port in ports:
        host, number = port.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        _log.info("listening on %s://%s:%d", "https" if tls else "http", host, number)
        if settings.grpc_port is not None:
            _log.info("listening on %s:%d for gRPC%s", host, settings.grpc_port, " over TLS" if tls else "")


def check_tls(settings: Settings) -> str | None:
    """Return the fault of the certificate or its key, before anything is loaded; None if there is none."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        here, missing = ("KEY", "CERT") if cert is None else ("CERT", "KEY")
        return f"{PREFIX}TLS_{here} is set and {PREFIX}TLS_{missing} is not: set both, or neither"
    for name, path in (("CERT", cert), ("KEY", key)):
        try:
            plain_file.read(path, MOST_PEM_BYTES)
        except NotPlainError as error:
            return f"{PREFIX}TLS_{name}: {path} {error}"
        except OSError as error:
            return f"{PREFIX}TLS_{name}: {path} cannot be read: {error.strerror}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")  # else it would ask for one
    except ssl.SSLError as error:
        why = (error.reason or "no certificate and key in PEM").lower().replace("_", " ")
        return f"{PREFIX}TLS_CERT, {PREFIX}TLS_KEY: {cert} and {key} do not go together: {why}"
    return None


ENDING = (signal.SIGTERM, signal.SIGINT)


def ignore_signals() -> None:
    """Ignore signals from now on: a process that has ended its work keeps its exit code."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


class DrainingServer(uvicorn.Server):
    """Server of uvicorn that, on SIGTERM, answers 503 at ``/readyz``, keeps serving for a while, and exits with 0.

    Each answer that begins from SIGTERM on closes its connection, so that callers go elsewhere with their next request
    instead of meeting a closed connection with it.

    Args:
        app: Application that answers.
        settings: Settings of the process.
        limit: Limit of connections.
        draining: Event that is set when the shutdown begins.
        refused: Function that is called with the status of each refusal that no application has seen.
        reload: Function that is called in the event loop at each SIGHUP.
        grpc: gRPC server that starts and stops with this one; None where there is none.
        started: Function that is called in the event loop once requests are answered.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        *,
        limit: ConnectionLimit,
        draining: threading.Event,
        refused: Callable[[http.HTTPStatus], None],
        reload: Callable[[], None],
        grpc: GrpcServer | None = None,
        started: Callable[[], None] | None = None,
    ) -> None:
        connection: Any = partial(
            Connection,
            patience_s=settings.timeout_ms / 1000.0,
            keep_alive_s=settings.keep_alive_s,
            limit=limit,
            refused=refused,
        )
        super().__init__(uvicorn.Config(app, **options(settings), http=connection))
        self._settings, self._draining, self._reload, self._on_start = settings, draining, reload, started
        self._fair_accepts: list[FairAccept] = []
        self.grpc = grpc

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals of the process, and ignore them after the end (uvicorn's hook)."""
        if own := threading.current_thread() is threading.main_thread():
            for number in ENDING:
                signal.signal(number, self.handle_exit)
        yield
        if own:
            ignore_signals()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start to answer requests (uvicorn's hook)."""
        self.server_state.default_headers = self.config.encoded_headers  # uvicorn's own first time is after this
        most, alone = self._settings.max_connections, self._settings.workers == 1
        try:
            await super().startup(None if sockets is None else [])
            for port in sockets or []:
                accept = FairAccept(
                    port, self._take, lambda: len(self.server_state.connections), most, 0.0 if alone else PAUSE_S
                )
                self._fair_accepts.append(accept)
                accept.open()
        except OSError as error:  # another process has begun to listen since the port was bound
            _log.error("port %d of %s: %s", self._settings.port, self._settings.host, error.strerror)
            await self.lifespan.shutdown()
            sys.exit(1)
        if self.grpc is not None:
            await self.grpc.start()
        if sockets is not None and alone:
            announce(self._settings, sockets)
        if self._settings.models is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))
        if self._on_start is not None:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's own words
        """Begin the shutdown on SIGINT or SIGTERM (uvicorn's hook); unlike its own method, with exit code 0.

        A signal may interrupt anything, even an answer between its head and its body, so the event loop stops it later.
        """
        asyncio.get_running_loop().call_soon_threadsafe(self._stop, sig)

    def _stop(self, sig: int) -> None:
        drain_s = self._settings.drain_s
        if (
            sig == signal.SIGTERM
            and self.started
            and drain_s > 0
            and not self._draining.is_set()
            and not self.should_exit
        ):
            self._begin_draining()
            asyncio.get_running_loop().call_later(drain_s, self._stop, sig)
        else:
            self.force_exit = sig == signal.SIGINT and self.should_exit  # a second Ctrl-C does not wait
            self.should_exit = True

    def _begin_draining(self) -> None:
        self._draining.set()
        closing = (b"connection", b"close")
        if closing not in self.config.encoded_headers:
            self.config.encoded_headers.append(closing)  # uvicorn takes them up every second
            self.server_state.default_headers = [*self.server_state.default_headers, closing]

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Close the port, then, a little later, idle connections, and wait for the others (uvicorn's hook)."""
        self._begin_draining()
        if self.grpc is not None:
            stopping = asyncio.create_task(self.grpc.stop(FINISH_WITHIN_S))
            self.server_state.tasks.add(stopping)  # uvicorn waits for it as for requests
            stopping.add_done_callback(self.server_state.tasks.discard)
        await self._close_port(sockets or [])
        linger_until = asyncio.get_running_loop().time() + LINGER_S
        while self.server_state.connections and not self.force_exit:
            if asyncio.get_running_loop().time() > linger_until:
                break
            await asyncio.sleep(0.01)
        for _ in range(2):  # requests that came while the loop was computing are read before connections count as idle
            await asyncio.sleep(0)
        await super().shutdown(sockets)

    async def _close_port(self, sockets: list[socket]) -> None:
        """Close the port, and accept the connections that the system has completed: it would reset them."""
        # copies keep it open while the event loop closes its own, so that little time is between last accept and end
        open_ports = [fair_accept.port for fair_accept in self._fair_accepts]
        open_ports += [port for server in self.servers for port in server.sockets]
        ports = [socket(fileno=os.dup(port.fileno())) for port in open_ports]
        for fair_accept in self._fair_accepts:
            fair_accept.close()
        for server in self.servers:
            server.close()
        for shared in sockets:
            shared.close()
        await asyncio.sleep(LET_GO_S)
        late = []
        for port in ports:
            port.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    late.append(port.accept()[0])
            port.close()
        for accepted in late:
            await self._take(accepted)

    async def _take(self, accepted: socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(self._connection, accepted, ssl=self.config.ssl)

    def _connection(self) -> Connection:
        make: Any = self.config.http_protocol_class  # a Connection as the settings want it
        connection: Connection = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        return connection


class FairAccept:
    """Acceptor of connections of a port that several processes share, so that each gets its share.

    Proxies keep few connections open. An event loop that takes all waiting connections leaves none to the others, and a
    worker without connections is a core without work. So each process takes one connection at a time, the later the
    more it has already. For one thread: the event loop's.

    Where all room is taken by connections that are being set up, a new one cuts off the oldest of them: a TLS
    handshake waits for its caller, who may never answer.

    Args:
        port: Bound socket, which other processes share.
        take: Function that makes a connection of an accepted socket.
        present: Function that returns the number of connections.
        most: Largest number of connections.
        pause_s: Seconds before an accept for each connection, up to :data:`MOST_PAUSES`; 0: there are no other
            processes.
    """

    def __init__(
        self,
        port: socket,
        take: Callable[[socket], Awaitable[object]],
        present: Callable[[], int],
        most: int,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.port, self._take, self._present, self._most, self._pause_s = port, take, present, most, pause_s
        self._entering: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rush, self._looked = 0, 0.0

    def open(self) -> None:
        """Listen, and begin to accept."""
        self.port.setblocking(False)
        self.port.listen(BACKLOG)
        asyncio.get_running_loop().add_reader(self.port, self._readable)

    def close(self) -> None:
        """Stop accepting; the port stays open."""
        asyncio.get_running_loop().remove_reader(self.port)
        if self._timer is not None:
            self._timer.cancel()

    def _readable(self) -> None:
        pause_s = min(self._present() + len(self._entering), MOST_PAUSES) * self._pause_s
        if pause_s:
            self._wait(pause_s, self._accept)
        else:
            self._accept()

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.port)
        self._timer = loop.call_later(seconds, then)

    def _accept(self) -> None:
        now = asyncio.get_running_loop().time()
        self._rush = self._rush + 1 if now - self._looked < CALM_S else 0
        self._looked = now
        room = self._most - self._present() - len(self._entering)
        try:
            for _ in range(min(2 ** max(0, self._rush - CALM_CHECKS), MOST_AT_ONCE, max(room, AT_ONCE_BEYOND))):
                self._take_one()
        except BlockingIOError:  # no connection waits: another process may have been faster
            self._rush = 0
        except OSError as error:
            _connections_log.error("no connections are accepted for %g s: %s", EXHAUSTED_S, error)
            self._wait(EXHAUSTED_S, self._accept)
            return
        asyncio.get_running_loop().add_reader(self.port, self._readable)

    def _take_one(self) -> None:
        try:
            accepted, _ = self.port.accept()
        except ConnectionAbortedError:  # the caller has gone
            return
        task = asyncio.get_running_loop().create_task(self._enter(accepted))
        self._entering[task] = None
        task.add_done_callback(lambda task: self._entering.pop(task, None))
        if len(self._entering) > max(self._most - self._present(), AT_ONCE_BEYOND):
            longest = next(iter(self._entering))
            del self._entering[longest]
            longest.cancel()

    async def _enter(self, accepted: socket) -> None:
        accepted.setblocking(False)
        try:
            await self._take(accepted)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            _connections_log.debug("a connection ended before it began: %s", error)
