"""Keeps secrets out of texts: it knows the shapes of keys, and learns the secrets of the connections that are read.

Errors pass through :func:`scrub` when they are created, so what a field was given by mistake is in none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Final

__all__ = ["learn_secrets", "scrub", "secret_kind"]

_MASK: Final = "***"
_EQUALS: Final = r"\s*(?:=|%3D)\s*"
_NAMED: Final = re.compile(
    rf"((?:SharedAccessKey|SharedAccessSignature|AccountKey|client_?secret|\bsig){_EQUALS})(?P<secret>[^;&\s'\"]+)",
    re.IGNORECASE,
)
# A key of Service Bus: 32 bytes in Base64, but no path that ends in ``day=1``; a client secret of Microsoft Entra ID;
# a token.
_KEY: Final = re.compile(r"(?<![A-Za-z0-9+/_-])-{0,2}(?P<secret>[A-Za-z0-9+/_-]{43}(?:=|%3D))(?![=A-Za-z0-9])")
_CLIENT_SECRET: Final = re.compile(r"(?P<secret>[\w.~-]{3}\dQ~[\w.~-]{31,34})", re.ASCII)
_TOKEN: Final = re.compile(r"(?P<secret>\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)", re.ASCII)
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
    return "a secret of a connection" if kind is None and any(_learned_in(text)) else kind


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` with ``***`` for what is learned, given here, or has the shape of a secret.

    :param secrets: further texts to mask, whatever their length.
    """
    # All are found in the text as it is: masking one could hide the shape, or a part, of another.
    spans = [
        *_learned_in(text, secrets),
        *(match.span("secret") for each in _SHAPES.values() for match in each.finditer(text)),
    ]
    parts, end = [], 0
    for begin, until in sorted(spans):
        if begin >= end:
            parts += [text[end:begin], _MASK]
        end = max(end, until)
    return "".join([*parts, text[end:]])


def _learned_in(text: str, secrets: Iterable[str] = ()) -> Iterator[tuple[int, int]]:
    """Yield where learned and given secrets are."""
    with _lock:
        known = [*_learned, *secrets]
    for secret in filter(None, known):
        begin = text.find(secret)
        while begin >= 0:
            yield begin, begin + len(secret)
            begin = text.find(secret, begin + 1)
