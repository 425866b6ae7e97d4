"""Keeps secrets out of texts: it knows the shapes of keys, and learns the secrets of the connections that are read.

Errors pass through :func:`scrub` when they are created, so what a field was given by mistake is in none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Final

OF_A_URL: Final = "a password"
"""The kind of secret that a URL has, before its host or in its query."""
_MASK: Final = "***"
_EQUALS: Final = r"\s*(?:=|%3D)\s*"
_NAMES: Final = r"(?:SharedAccessKey|SharedAccessSignature|AccountKey|client_?secret|\bsig)"
_NAMED: Final = re.compile(rf"{_NAMES}{_EQUALS}(?P<secret>[^;&\s'\"]+)", re.IGNORECASE)
# In JSON, also in JSON that is a string of another, and in Python's way of writing it. A connection has a password.
_MEMBER: Final = re.compile(
    rf"(?:{_NAMES}|password)\\*[\"']\s*:\s*(?P<quote>\\*[\"'])(?P<secret>(?:(?!(?P=quote))(?:\\.|.))+)", re.IGNORECASE
)
# A path has one slash of the two left; a password may have slashes, unlike a port.
_URL_PASSWORD: Final = re.compile(
    r":/{1,2}[^\s/?#:@\"'<>]*:(?!\d{1,5}/)(?P<secret>[^\s/?#\"'<>]+|[^\s?#\"'<>@]{1,200})@"
)
# In the query of a URL, by the names that stores and their gateways give them.
_QUERY_PASSWORD: Final = re.compile(
    r"[?&;][\w.-]*(?:passw(?:or)?d|pwd|secret|token|credential|api_?key|access_?key|signature)="
    r"(?P<secret>[^&;\s'\"<>]+)",
    re.IGNORECASE,
)
# A key of Service Bus: 32 bytes in Base64, but no path that ends in ``day=1``; a client secret of Microsoft Entra ID;
# a token.
_KEY: Final = re.compile(r"(?<![A-Za-z0-9+/_-])-{0,2}(?P<secret>[A-Za-z0-9+/_-]{43}(?:=|%3D))(?![=A-Za-z0-9])")
# Keys of 32 or 64 bytes without padding, as in the query of a URL, also at the end of a longer name. Letters of both
# cases beyond hexadecimal digits tell them from ids, and what :func:`_is_random` looks at from names and paths.
_UNPADDED_KEY: Final = re.compile(
    r"(?<![A-Za-z0-9+])(?=(?P<secret>[A-Za-z0-9+/_-]{43}(?:[A-Za-z0-9+/_-]{43})?)(?![A-Za-z0-9+/_-]))"
    r"(?=(?:[A-Fa-z0-9+/_-]{0,40}+[G-Z]){3})(?=(?:[A-Za-f0-9+/_-]{0,40}+[g-z]){3})"
)
_KEY_CHARACTERS: Final = 43
# A word, an acronym or a number of a name.
_WORD: Final = re.compile(r"(?>[A-Z]?[a-z]+|[A-Z]+|[0-9]+)")
# Measured: 1 of 10,000 keys is missed, and names of words have more only if these have two letters on average.
_MIN_RANDOMNESS: Final = 40
_CLIENT_SECRET: Final = re.compile(r"(?P<secret>[\w.~-]{3}\dQ~[\w.~-]{31,34})", re.ASCII)
# A connection string in Base64, as in a secret of Kubernetes: the three ways in which "SharedAccess" may be in it.
_ENCODED: Final = re.compile(
    r"(?<![\w+/-])(?P<secret>[\w+/-]*?(?:U2hhcmVkQWNjZXNz|NoYXJlZEFjY2Vzc|TaGFyZWRBY2Nlc3)[\w+/-]*=*)", re.ASCII
)
# The same in hexadecimal.
_HEX: Final = re.compile(r"(?<![0-9a-f])(?P<secret>[0-9a-f]*?536861726564416363657373[0-9a-f]*)", re.IGNORECASE)
# The header has a limit: a hyphen may begin another token, and each would be looked at to the end of the text.
_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9])(?P<secret>eyJ[\w-]{8,800}\.[\w-]{8,}+\.[\w-]*)", re.ASCII)
_SHAPES: Final = (
    ("a connection string", _NAMED),
    ("a connection string", _MEMBER),
    ("a connection string", _ENCODED),
    ("a connection string", _HEX),
    ("a key", _KEY),
    ("a key", _UNPADDED_KEY),
    ("a client secret", _CLIENT_SECRET),
    ("a token", _TOKEN),
    (OF_A_URL, _QUERY_PASSWORD),
    (OF_A_URL, _URL_PASSWORD),
)
# A character of a text, or an encoded one of a URL.
_CHARACTER: Final = re.compile(r"%(?P<code>[0-7][0-9A-Fa-f])|.", re.DOTALL)
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
    texts = (text, _unquoted(text)[0]) if "%" in text else (text,)
    kind = next((kind for kind, shape in _SHAPES for each in texts for _ in _matches(shape, each)), None)
    return "a secret of a connection" if kind is None and any(_learned_in(each) for each in texts) else kind


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` with ``***`` for what is learned, given here, or has the shape of a secret, also percent-encoded.

    :param secrets: further texts to mask, whatever their length.
    """
    # All are found in the text as it is: masking one could hide the shape, or a part, of another.
    given = list(secrets)
    spans = _secrets_in(text, given)
    if "%" in text:
        plain, begins = _unquoted(text)
        spans += [(begins[begin], begins[end]) for begin, end in _secrets_in(plain, given)]
    parts, end = [], 0
    for begin, until in sorted(spans):
        if begin >= end:
            parts += [text[end:begin], _MASK]
        end = max(end, until)
    return "".join([*parts, text[end:]])


def _unquoted(text: str) -> tuple[str, list[int]]:
    """Return ``text`` with its percent-encoded ASCII characters decoded, where each character began, and the end."""
    matches = list(_CHARACTER.finditer(text))
    plain = "".join(chr(int(match["code"], 16)) if match["code"] else match[0] for match in matches)
    return plain, [*(match.start() for match in matches), len(text)]


def _secrets_in(text: str, secrets: Iterable[str]) -> list[tuple[int, int]]:
    """Return where secrets are: learned, given and known by their shapes."""
    shaped = (match.span("secret") for _, shape in _SHAPES for match in _matches(shape, text))
    return [*_learned_in(text, secrets), *shaped]


def _matches(shape: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    matches = shape.finditer(text)
    return (each for each in matches if _is_random(each["secret"])) if shape is _UNPADDED_KEY else matches


def _is_random(text: str) -> bool:
    """Return whether each part of the length of a key has many words for its length, or many different characters."""
    parts = [text[begin : begin + _KEY_CHARACTERS] for begin in range(0, len(text), _KEY_CHARACTERS)]
    return all(len(_WORD.findall(part)) + len(set(part)) >= _MIN_RANDOMNESS for part in parts)


def _learned_in(text: str, secrets: Iterable[str] = ()) -> list[tuple[int, int]]:
    """Return where learned and given secrets are."""
    with _lock:
        known = [*_learned, *secrets]
    spans = []
    for secret in filter(None, known):
        begin = text.find(secret)
        while begin >= 0:
            spans.append((begin, begin + len(secret)))
            begin = text.find(secret, begin + 1)
    return spans
