"""A supervisor and its workers, as a test sees them from outside: what they log, and which of them live."""

import json

import httpx
import psutil

from support.http.rerank_requests import BODY
from support.waiting import PATIENCE_S, until


def family(service):
    """The supervisor and what it has started."""
    try:
        parent = psutil.Process(service.process.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def workers(service):
    """Those that accept connections; the supervisor only keeps the socket."""
    return [process for process in family(service)[1:] if "spawn_main" in " ".join(process.cmdline())]


def lines(log):
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def log_messages(service, words):
    return [line for line in lines(service.log()) if words in line["message"]]


def ask(service):
    """One request over a connection of its own, so that any worker may get it."""
    return httpx.post(service.url + "/rerank", json=BODY, timeout=PATIENCE_S)


def versions(service):
    return {ask(service).json()["version"] for _ in range(20)}


def both_ready(service):
    """One is enough for an answer of /readyz."""
    until(lambda: len(log_messages(service, "serving shop/")) >= 2)
    return service
