"""The served log: records of answers, written by a thread of its own. Off unless a setting names a folder or a stream.

==========  ====================================================================================
``writer``  the buffer, and the thread that encodes records into blocks and writes them
``stream``  the Redis stream
``folder``  names and files, recovery of what a killed worker left, limits of size and age
``entry``   an answered request as it is queued, and as a record; counts of dropped records
==========  ====================================================================================

``entry`` alone is imported where there is no log.
"""

from __future__ import annotations

from importlib.util import find_spec
from urllib.parse import urlsplit

from listwright.service.settings import PREFIX, Settings

SCHEMES = ("redis", "rediss", "unix")


def settings_fault(settings: Settings) -> str | None:
    """Return the fault of the log's settings, before anything is loaded; None if there is none."""
    if not settings.logs_served:
        return None
    needed = {"SERVED_LOG": ["fastavro"], "SERVED_STREAM": ["fastavro", "redis"]}
    for name, modules in needed.items():
        if getattr(settings, name.lower()) is None:
            continue
        for module in modules:
            if find_spec(module) is None:
                return f"{PREFIX}{name} needs {module}: pip install 'listwright[loop]'"
    return _folder_fault(settings) or _stream_fault(settings)


def _folder_fault(settings: Settings) -> str | None:
    folder = settings.served_log
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o750 if settings.served_group_reads else 0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = "is no folder" if folder.exists() else f"cannot be made: {error.strerror}"
        return f"{PREFIX}SERVED_LOG: {folder} {why}; name a folder that this process may write"
    return None


def _stream_fault(settings: Settings) -> str | None:
    if settings.served_stream is None:
        return None
    expected = f"{PREFIX}SERVED_STREAM: expected redis://HOST:PORT/DB, found an address"
    try:
        address = urlsplit(settings.served_stream.get_secret_value())
    except ValueError:  # its words repeat parts of the address, and so of the password
        return (
            f"{expected} that cannot be read: write [ and ] and other special characters of a password as %5B and %5D"
        )
    if address.scheme not in SCHEMES:
        return f"{expected} of scheme {address.scheme!r}"
    try:
        _ = address.port
    except ValueError:
        return f"{expected} whose port is no number up to 65535"
    return None
