"""Keeps secrets out of texts: it knows the shapes of keys, and learns the secrets of the connections that are read.

Errors pass through :func:`scrub` when they are created, so what a field was given by mistake is in none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from threading import Lock
from typing import Final

__all__ = ["learn_secrets", "scrub", "secret_kind"]

_MASK: Final = "***"
_EQUALS: Final = r"\s*(?:=|%3D)\s*"
_NAMED: Final = re.compile(
    rf"((?:SharedAccessKey|SharedAccessSignature|AccountKey|client_?secret|\bsig){_EQUALS})[^;&\s'\"]+", re.IGNORECASE
)
# A key of Service Bus: 32 bytes in Base64; a client secret of Microsoft Entra ID; a token.
_KEY: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{43}(?:=|%3D)(?!=)")
_CLIENT_SECRET: Final = re.compile(r"[\w.~-]{3}\dQ~[\w.~-]{31,34}", re.ASCII)
_TOKEN: Final = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", re.ASCII)
_SHAPES: Final = {"a connection string": _NAMED, "a key": _KEY, "a client secret": _CLIENT_SECRET, "a token": _TOKEN}
# Shorter secrets would mask ordinary words.
_MIN_LEARNED_CHARACTERS: Final = 8
_MAX_LEARNED: Final = 2000
_lock: Final = Lock()
# A dict, for its order: the secrets learned longest ago are forgotten first.
_learned: dict[str, None] = {}


def learn_secrets(secrets: Iterable[str]) -> None:
    """Mask these texts from now on in this process; texts of fewer than 8 characters are not learned."""
    with _lock:
        for secret in secrets:
            if len(secret) >= _MIN_LEARNED_CHARACTERS:
                _learned.pop(secret, None)
                _learned[secret] = None
        for secret in list(_learned)[:-_MAX_LEARNED]:
            del _learned[secret]


def secret_kind(value: object) -> str | None:
    """Return what kind of secret a value holds, such as ``a connection string``, or ``None``."""
    text = value if isinstance(value, str) else repr(value)
    kind = next((kind for kind, shape in _SHAPES.items() if shape.search(text)), None)
    return "a secret of a connection" if kind is None and _masked(text) != text else kind


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` with ``***`` for what is learned, given here, or has the shape of a secret.

    :param secrets: further texts to mask, whatever their length.
    """
    text = _masked(text, secrets)
    text = _NAMED.sub(rf"\1{_MASK}", text)
    for shape in (_KEY, _CLIENT_SECRET, _TOKEN):
        text = shape.sub(_MASK, text)
    return text


def _masked(text: str, secrets: Iterable[str] = ()) -> str:
    with _lock:
        known = [*_learned, *secrets]
    # Longest first: one secret may contain another.
    for secret in sorted(known, key=len, reverse=True):
        if secret and secret in text:
            text = text.replace(secret, _MASK)
    return text
