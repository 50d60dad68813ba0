"""API keys: named, read from a file or the environment, and compared in one place, the operator's own included."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from listwright.ranking import plain_file
from listwright.ranking.errors import ListwrightError
from listwright.ranking.plain_file import NotPlainError
from listwright.service.settings import PREFIX, Settings

MAX_KEYS = 256
"""Keys of a service; each request is compared with all of them."""

RANK, EVENTS = "rank", "events"
SCOPES = frozenset((RANK, EVENTS))
"""Scopes of a key: all paths but that of events, and that of events."""

MAX_FILE_BYTES = 256 * 2**10

_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64}):(?P<key>[A-Za-z0-9._~+/-]{16,256}=*)(?P<options>(\s+\S+)*)")
_OPTION = re.compile(r"(?P<name>rate|burst)=(?P<value>\d{1,6}(\.\d{1,6})?)")
_SCOPE = re.compile(r"scope=(?P<scopes>[a-z]{1,16}(\+[a-z]{1,16})*)")
_LEAST = {"rate": 1e-6, "burst": 1.0}


class KeysError(ListwrightError):
    """Error for keys that cannot be read. The message has the place, and never the content."""


@dataclass(frozen=True)
class Key:
    """One key, as its digest.

    Args:
        name: Name of the key's holder, for the log and a metric.
        digest: SHA-256 of the key.
        rate: Number of requests per second; None: no limit.
        burst: Number of requests at once.
        scopes: Subset of :data:`SCOPES` that the key opens.
    """

    name: str
    digest: bytes
    rate: float | None = None
    burst: float = 1.0
    scopes: frozenset[str] = frozenset((RANK,))


def digest_of(key: bytes) -> bytes:
    """Return the digest of a key, which is stored and compared: equally long, so that it hides the key's length."""
    return hashlib.sha256(key).digest()


def holder(keys: Iterable[Key], sent: bytes) -> Key | None:
    """Return the key that was sent, None if it is unknown; compares with every key, in constant time."""
    digest = digest_of(sent)
    match = None
    for key in keys:
        if hmac.compare_digest(digest, key.digest):
            match = key
    return match


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the key of ``Authorization: Bearer KEY``; None for no such header, another scheme, or several headers."""
    sent = [value for name, value in headers if name == b"authorization"]
    if len(sent) != 1 or sent[0][:7].lower() != b"bearer ":
        return None
    return sent[0][7:].strip(b" \t")


def read(settings: Settings) -> tuple[Key, ...]:
    """Read all keys that the settings name; where they name none, everything is open.

    Raises:
        KeysError: if a line, or the file, is not what it should be.
    """
    keys: list[Key] = []
    if settings.keys is not None:
        keys += parse(settings.keys.get_secret_value().replace(",", "\n"), f"{PREFIX}KEYS", settings)
    if settings.keys_file is not None:
        try:
            content = plain_file.read(settings.keys_file, MAX_FILE_BYTES)
            text = plain_file.to_text(content)
        except NotPlainError as error:
            raise KeysError(f"{PREFIX}KEYS_FILE: {settings.keys_file} {error}") from error
        except ValueError as error:
            raise KeysError(f"{PREFIX}KEYS_FILE: {settings.keys_file}: {error}") from error
        except OSError as error:
            raise KeysError(f"{PREFIX}KEYS_FILE: {settings.keys_file} cannot be read: {error.strerror}") from error
        keys += parse(text, str(settings.keys_file), settings)
    _check_together(keys, settings)
    return tuple(keys)


def parse(text: str, source: str, settings: Settings) -> list[Key]:
    """Parse lines ``name:key``, each with optional ``rate=``, ``burst=`` and ``scope=``.

    Convention: empty lines and those that begin with ``#`` are skipped; a text without any key is an error, as it would
    open what its writer wanted closed.
    """
    keys = []
    for number, written in enumerate(text.splitlines(), start=1):
        line = written.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise KeysError(
                f"{source}: line {number} is not NAME:KEY [rate=N] [burst=N] [scope=rank+events], the key of 16 to "
                "256 letters, digits and -._~+/ (make one with: openssl rand -hex 32)"
            )
        options: dict[str, float] = {}
        scopes = frozenset((RANK,))
        for word in match["options"].split():
            scope_match = _SCOPE.fullmatch(word)
            if scope_match is not None and SCOPES.issuperset(scope_match["scopes"].split("+")):
                scopes = frozenset(scope_match["scopes"].split("+"))
                continue
            option = _OPTION.fullmatch(word)
            if option is None or float(option["value"]) < _LEAST[option["name"]]:
                raise KeysError(
                    f"{source}: line {number}: after the key stand rate=N, above 0, burst=N, from 1, and scope=rank, "
                    "scope=events or scope=rank+events, only"
                )
            options[option["name"]] = float(option["value"])
        rate, burst = options.get("rate", settings.key_rate), options.get("burst", float(settings.key_burst))
        keys.append(Key(match["name"], digest_of(match["key"].encode()), rate, burst, scopes))
    if not keys:
        raise KeysError(f"{source}: holds no key: name one, or do not set it")
    return keys


def _check_together(keys: Sequence[Key], settings: Settings) -> None:
    if len(keys) > MAX_KEYS:
        raise KeysError(f"there are {len(keys)} keys; the limit is {MAX_KEYS}")
    owners: dict[bytes, str] = {}
    limits: dict[str, tuple[float | None, float]] = {}
    if settings.admin_key is not None:
        owners[digest_of(settings.admin_key.get_secret_value().encode())] = f"{PREFIX}ADMIN_KEY"
    for key in keys:
        if owners.setdefault(key.digest, key.name) != key.name:
            raise KeysError(f"{owners[key.digest]} and {key.name} have the same key: give each its own")
        if limits.setdefault(key.name, (key.rate, key.burst)) != (key.rate, key.burst):
            raise KeysError(f"the keys of {key.name} share one limit: write the same in each of their lines")
