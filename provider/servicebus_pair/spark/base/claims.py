"""Claims of a stream that receives: which messages a micro-batch consists of, as its offset names them. Pure.

A claimed message is deferred in its queue: it stays there until the stream removes it, and nobody else is given it. An
offset is ``{"claims": {"flights": {"": "1-500,502"}}}``: by address of the queue and by session (empty where there are
none) the sequence numbers of one micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

from servicebus_pair.core.errors import ConfigurationError

_CLAIMS: Final = "claims"
_MAX_CLAIMS: Final = 10_000_000

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Sequence numbers in ascending order: the first and last of each contiguous range."""
Claims: TypeAlias = dict[tuple[str, str], Ranges]
"""Claimed sequence numbers by address of the queue and session id, empty where there are no sessions."""


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return sequence numbers as ranges."""
    ordered = sorted(set(numbers))
    if not ordered:
        return ()
    gaps = [(before, after) for before, after in pairwise(ordered) if after != before + 1]
    firsts = [ordered[0], *(after for _, after in gaps)]
    lasts = [*(before for before, _ in gaps), ordered[-1]]
    return tuple(zip(firsts, lasts, strict=True))


def numbers_of(ranges: Ranges) -> Iterator[int]:
    """Yield the sequence numbers of ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


def count(ranges: Ranges) -> int:
    """Return how many sequence numbers there are."""
    return sum(last - first + 1 for first, last in ranges)


def merge_claims(*parts: Mapping[tuple[str, str], Iterable[int]]) -> Claims:
    """Return claims of all sequence numbers in ``parts``."""
    numbers: dict[tuple[str, str], set[int]] = {}
    for part in parts:
        for key, each in part.items():
            numbers.setdefault(key, set()).update(each)
    return {key: ranges_of(each) for key, each in numbers.items() if each}


def claims_to_offset(claims: Claims) -> dict[str, Any]:
    """Return claims as Spark stores them in the checkpoint."""
    offset: dict[str, dict[str, str]] = {}
    for (address, session_id), ranges in sorted(claims.items()):
        text = ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)
        offset.setdefault(address, {})[session_id] = text
    return {_CLAIMS: offset}


def claims_from_offset(offset: Mapping[str, Any]) -> Claims:
    """Return the claims that a checkpoint has.

    :raises ConfigurationError: the checkpoint is of a stream that peeks, or has more than a stream can claim.
    """
    if not offset:
        return {}
    try:
        claims = {
            (address, session_id): tuple(_parse_ranges(text))
            for address, sessions in offset[_CLAIMS].items()
            for session_id, text in sessions.items()
        }
    except (KeyError, AttributeError, ValueError, TypeError):
        raise ConfigurationError(
            "the checkpoint has no claims: it is of a stream with option mode=peek; start with a new checkpoint"
        ) from None
    # Whoever may write to the checkpoint must not make the stream count for ever.
    if sum(map(count, claims.values())) > _MAX_CLAIMS:
        raise ConfigurationError(f"the checkpoint has more than {_MAX_CLAIMS} claims of one batch: no stream wrote it")
    return claims


def _parse_ranges(text: str) -> Iterator[tuple[int, int]]:
    # In ascending order: "1,1" again and again takes memory a hundred times its size.
    before = 0
    for each in text.split(","):
        first, _, last = each.partition("-")
        if not before < int(first) <= int(last or first):
            raise ValueError(each)
        before = int(last or first)
        yield int(first), before


def split_ranges(ranges: Ranges, parts: int) -> list[Ranges]:
    """Split ranges into at most ``parts`` of about equal size, in ascending order."""
    total = count(ranges)
    size = -(-total // max(1, min(parts, total)))
    result: list[list[tuple[int, int]]] = [[]]
    free = size
    for first, last in ranges:
        start = first
        while start <= last:
            if free == 0:
                result.append([])
                free = size
            end = min(last, start + free - 1)
            result[-1].append((start, end))
            free -= end - start + 1
            start = end + 1
    return [tuple(each) for each in result if each]


def distribute(claims: Claims, tasks: int) -> list[Claims]:
    """Divide claims among at most ``tasks`` tasks for each queue; a session is read by one of them, in order."""
    result: list[Claims] = []
    for address in dict.fromkeys(address for address, _ in claims):
        sessions = {key: ranges for key, ranges in claims.items() if key[0] == address}
        if list(sessions) == [(address, "")]:
            result += [{(address, ""): part} for part in split_ranges(sessions[address, ""], tasks)]
        else:
            result += _distribute_sessions(sessions, tasks)
    return result


def _distribute_sessions(sessions: Claims, tasks: int) -> list[Claims]:
    groups: Sequence[Claims] = [{} for _ in range(min(tasks, len(sessions)))]
    sizes = [0] * len(groups)
    for key, ranges in sorted(sessions.items(), key=lambda item: (-count(item[1]), item[0])):
        smallest = sizes.index(min(sizes))
        groups[smallest][key] = ranges
        sizes[smallest] += count(ranges)
    return list(groups)
