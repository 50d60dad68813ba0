"""The command line of ``listwright serve``."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Collection
from functools import partial
from importlib.util import find_spec
from socket import socket
from typing import Any

from pydantic import ValidationError

from listwright.ranking import remote
from listwright.ranking.errors import ListwrightError
from listwright.service import hook, served_log
from listwright.service.app import create_app, server_of
from listwright.service.auth import keys
from listwright.service.bundles import loading
from listwright.service.rules import open_rules
from listwright.service.settings import PREFIX, SECRETS, Settings, describe, near_misses
from listwright.service.supervisor import supervise
from listwright.service.telemetry import logs
from listwright.service.transport.connection_limit import OpenFilesError, fit_into_open_files
from listwright.service.transport.server import bind_ports, check_tls, reserve_grpc_port
from listwright.service.watched_file import WatchedFileError


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 after a clean stop, 1 if nothing can be served, 2 for a wrong setting, 3 for a port
    that cannot be bound.
    """
    parser = argparse.ArgumentParser(
        prog="listwright serve",
        description="Serve bundles: POST /rerank, GET /readyz /livez /info /metrics.",
        epilog=f"settings, from the environment:\n{describe()}\n\nexample:\n"
        f"  listwright serve models/demo/1 --port 8000\n  {PREFIX}MODELS=models {PREFIX}WORKERS=4 listwright serve",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replaced = f"{PREFIX}BUNDLE and {PREFIX}MODELS"
    parser.add_argument("bundle", nargs="?", metavar="BUNDLE", help=f"folder or URL to serve, in place of {replaced}")
    for name in ("host", "port"):
        parser.add_argument(f"--{name}", metavar=name.upper(), help=f"in place of {PREFIX}{name.upper()}")
    options = parser.parse_args(arguments)
    overrides: dict[str, Any] = {name: value for name, value in vars(options).items() if value is not None}
    try:
        settings = Settings(**overrides if options.bundle is None else overrides | {"models": None})
    except ValidationError as error:
        for line in _faults(error, overrides):
            print(f"error: {line}; see listwright serve --help", file=sys.stderr)
        return 2
    if settings.models is None:  # nothing is loaded again: the signal ends the process, as it does any other
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))
    for written, meant in near_misses(os.environ):
        print(f"warning: {written} is no setting; is {meant} meant? see listwright serve --help", file=sys.stderr)
    if fault := _check_names(settings):
        print(f"error: {fault}; see listwright serve --help", file=sys.stderr)
        return 2
    ports: list[socket] = []
    number, remedy = settings.port, f"choose another with --port or --host ({PREFIX}PORT, {PREFIX}HOST)"
    try:
        ports = bind_ports(settings.host, number)  # before anything is loaded
        if settings.grpc_port is not None:
            number, remedy = settings.grpc_port, f"choose another {PREFIX}GRPC_PORT"
        settings, reserved = reserve_grpc_port(settings)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror or error})"
        print(f"error: port {number} of {settings.host} {why}: stop the other process, or {remedy}", file=sys.stderr)
        _close(ports)
        return 3
    code = _serve(settings, ports)
    _close(reserved)
    return code


def _close(ports: list[socket]) -> None:
    for port in ports:
        port.close()


def _serve(settings: Settings, ports: list[socket]) -> int:
    """Serve on bound ports until a signal ends it; return the exit code."""
    logs.configure(settings.log_level)
    try:
        settings = fit_into_open_files(settings)
        if settings.workers > 1:
            return supervise(settings, ports)
        app = create_app(settings, models=remote.wait_for(partial(loading.start, settings)))
    except ListwrightError as error:
        logs.say(f"error: {error}")
        return 2 if isinstance(error, OpenFilesError) else 1
    server_of(app).run(ports)
    if settings.hook is not None or app.service.reloader.hangs:
        hook.exit_soon(0)
    return 0


def _check_names(settings: Settings) -> str | None:
    """Check hook, keys, certificate and served log that the settings name; return the first fault, or None."""
    try:
        if settings.hook is not None:
            hook.load(settings.hook)
        keys.read(settings)
        if settings.rules is not None:
            open_rules(settings.rules)
        if settings.grpc_port is not None and find_spec("grpc") is None:
            return f"{PREFIX}GRPC_PORT needs grpcio: pip install 'listwright[grpc]'"
    except hook.HookError as error:
        return f"{PREFIX}HOOK: {error}"
    except (keys.KeysError, WatchedFileError) as error:
        return str(error)
    return check_tls(settings) or served_log.settings_fault(settings)


def _faults(error: ValidationError, options: Collection[str]) -> list[str]:
    """Describe the faults of the settings, by the names of options that gave them; secrets are not repeated."""
    lines = []
    for fault in error.errors():
        if not fault["loc"]:
            lines.append(
                f"{PREFIX}BUNDLE: nothing is named to serve (set it, e.g. to models/demo/1, or {PREFIX}MODELS)"
            )
            continue
        name = str(fault["loc"][0])
        hidden = name in SECRETS or ":/" in str(fault["input"])  # a URL may hold a password
        value = "its value is not shown" if hidden else f"it is {fault['input']!r}"
        option = f"--{name}" if name != "bundle" else "BUNDLE"
        lines.append(f"{option if name in options else PREFIX + name.upper()}: {fault['msg']} ({value})")
    return lines
