"""What somebody may have meant by a name that is unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

__all__ = ["unknown"]

_LIKE: Final = 0.72


def unknown(what: str, given: str, *, allowed: Iterable[str], elsewhere: Mapping[str, str]) -> str:
    """Answer the sentence that refuses a name, with the one that was probably meant and all that are allowed.

    :param what: of which kind it is, such as ``option``.
    :param elsewhere: what other programs call the same: our name by theirs, folded as by :func:`_folded`.
    """
    names = tuple(allowed)
    by_fold = {_folded(name): name for name in names}
    meant = elsewhere.get(_folded(given))
    if meant is None:
        meant = next((by_fold[near] for near in get_close_matches(_folded(given), by_fold, n=1, cutoff=_LIKE)), None)
    hint = "" if meant not in names else f"did you mean {meant}? "
    return f"{what} {given} is unknown: {hint}allowed are {', '.join(names)}"


def _folded(name: str) -> str:
    """Without case and separators: ``rate_per_task`` is ``ratePerTask``."""
    return "".join(character for character in name.casefold() if character.isalnum())
