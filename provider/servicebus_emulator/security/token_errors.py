"""The errors of refused tokens. They begin with the service's own words, which clients and users recognize."""

from __future__ import annotations

from typing import Final

from servicebus_emulator.engine.model.errors import Unauthorized

_SIGNATURE: Final = "InvalidSignature: The token has an invalid signature."
_AUDIENCE: Final = "InvalidAudience: The authorization header contains a token with a wrong audience."


def bad_signature(detail: str) -> Unauthorized:
    """Return the error of a token whose signature or issuer is not accepted."""
    return Unauthorized(f"{_SIGNATURE} {detail}")


def wrong_audience(detail: str) -> Unauthorized:
    """Return the error of a token for another resource."""
    return Unauthorized(f"{_AUDIENCE} {detail}")


def expired(detail: str) -> Unauthorized:
    """Return the error of an expired token."""
    return Unauthorized(f"ExpiredToken: The token is expired{detail}")


def malformed(detail: str) -> Unauthorized:
    """Return the error of a value that is not a token."""
    return Unauthorized(f"MalformedToken: The token {detail}")
