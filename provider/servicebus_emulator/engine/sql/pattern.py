"""LIKE patterns."""

from __future__ import annotations

import re
from functools import lru_cache

from servicebus_emulator.engine.sql.errors import SqlEvaluationError


def like(text: str, *, pattern: str, escape: str) -> bool:
    """Return whether a text matches a pattern, in time proportional to at most the product of their lengths.

    :param pattern: ``%`` matches any characters, ``_`` one; all others match themselves, case-sensitively.
    :param escape: the escape character, or the empty string.
    :raises SqlEvaluationError: when the pattern ends with the escape character.
    """
    return _compiled(pattern, escape).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str, escape: str) -> re.Pattern[str]:
    parts = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise SqlEvaluationError(f"the pattern of LIKE ends with its escape character {escape!r}")
            parts[-1] += re.escape(escaped)
        elif character == "%":
            parts.append("")
        else:
            parts[-1] += "." if character == "_" else re.escape(character)
    # What is between two % is looked for once: if the rest does not match after its first place, it never does.
    first, *between = parts[:-1] or [""]
    searched = "".join(f"(?>.*?{part})" for part in between if part != "")
    return re.compile(f"{first}{searched}{'.*' if len(parts) > 1 else ''}{parts[-1]}", re.DOTALL)
