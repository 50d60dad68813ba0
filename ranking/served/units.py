"""The salted hash that stands for a unit in the served log."""

from __future__ import annotations

import hmac

UNIT_CHARACTERS = 32


def hashed(unit: str, salt: bytes) -> str:
    """The first 128 bits of HMAC-SHA256 of a unit, in hexadecimal: whoever lacks the salt cannot try units out."""
    return hmac.digest(salt, unit.encode("utf-8", "surrogatepass"), "sha256").hex()[:UNIT_CHARACTERS]
