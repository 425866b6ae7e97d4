"""Why a token is refused, begun in the service's own words, which clients and their users know."""

from __future__ import annotations

from typing import Final

from servicebus_emulator.engine.errors import Unauthorized

__all__ = ["bad_signature", "expired", "malformed", "wrong_audience"]

_SIGNATURE: Final = "InvalidSignature: The token has an invalid signature."
_AUDIENCE: Final = "InvalidAudience: The authorization header contains a token with a wrong audience."


def bad_signature(why: str) -> Unauthorized:
    """Return the refusal of a token that nobody made who might."""
    return Unauthorized(f"{_SIGNATURE} {why}")


def wrong_audience(why: str) -> Unauthorized:
    """Return the refusal of a token that is for something else."""
    return Unauthorized(f"{_AUDIENCE} {why}")


def expired(when: str) -> Unauthorized:
    """Return the refusal of a token whose time is over."""
    return Unauthorized(f"ExpiredToken: The token is expired{when}")


def malformed(why: str) -> Unauthorized:
    """Return the refusal of what is no token."""
    return Unauthorized(f"MalformedToken: The token {why}")
