"""Signs and verifies bearer tokens: JSON Web Tokens with ES256 (RFC 7519, RFC 7518).

The key is derived from the clients' secrets, so that it is the same in every process and after a restart without being
stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from servicebus_emulator.security.token_errors import bad_signature

_ALGORITHM: Final = "ES256"
_PURPOSE: Final = b"servicebus_emulator bearer tokens"
# The order of the P-256 group; private keys are 1 .. order - 1 (FIPS 186-5).
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class Signer:
    """Signs claims and verifies its own signatures.

    :param secrets: the key is derived from these, in order.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._key: Final = _derived_key(secrets)

    def sign(self, claims: dict[str, Any]) -> str:
        """Return a signed token with the claims."""
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM)

    def verified_claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token. Audience and times are not checked.

        :raises Unauthorized: when the signature is not from this signer, or ``appid``, ``aud`` or ``exp`` is missing.
            The message does not contain any part of the token.
        """
        options: Any = {
            "require": ["appid", "aud", "exp"],
            "verify_aud": False,
            "verify_exp": False,
            "verify_iat": False,
            "verify_nbf": False,
        }
        try:
            claims: dict[str, Any] = jwt.decode(token, self._key.public_key(), algorithms=[_ALGORITHM], options=options)
        except jwt.InvalidTokenError as error:
            # Only the class name: the text may contain parts of the token.
            reason = type(error).__name__
            raise bad_signature(f"It was not issued here ({reason})") from None
        return claims


def _derived_key(secrets: Iterable[str]) -> ec.EllipticCurvePrivateKey:
    digest = hashlib.sha512(_PURPOSE)
    for secret in secrets:
        encoded = secret.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    # 512 bits modulo the order: the bias is negligible (FIPS 186-5, A.2.1).
    value = int.from_bytes(digest.digest(), "big") % (_ORDER - 1) + 1
    return ec.derive_private_key(value, ec.SECP256R1())
