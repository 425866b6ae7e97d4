"""LIKE patterns."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from servicebus_emulator.engine.sql.errors import SqlEvaluationError


class _Wildcard(Enum):
    ANY = auto()
    ONE = auto()


_WILDCARDS: Final = {"%": _Wildcard.ANY, "_": _Wildcard.ONE}


def like(text: str, *, pattern: str, escape: str) -> bool:
    """Return whether a text matches a pattern, in time proportional to at most the product of their lengths.

    :param pattern: ``%`` matches any characters, ``_`` one; all others match themselves, case-sensitively.
    :param escape: the escape character, or the empty string.
    :raises SqlEvaluationError: when the pattern ends with the escape character.
    """
    parts = _parts(pattern, escape=escape)
    at = part = 0
    retry_part, retry_at = -1, 0
    while at < len(text):
        if part < len(parts) and parts[part] is _Wildcard.ANY:
            retry_part, retry_at = part, at
            part += 1
        elif part < len(parts) and (parts[part] is _Wildcard.ONE or parts[part] == text[at]):
            part += 1
            at += 1
        elif retry_part >= 0:
            # Backtrack: let the last % match one more character.
            retry_at += 1
            part, at = retry_part + 1, retry_at
        else:
            return False
    return all(each is _Wildcard.ANY for each in parts[part:])


def _parts(pattern: str, *, escape: str) -> list[str | _Wildcard]:
    parts: list[str | _Wildcard] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise SqlEvaluationError(f"the pattern of LIKE ends with its escape character {escape!r}")
            parts.append(escaped)
        else:
            parts.append(_WILDCARDS.get(character, character))
    return parts
