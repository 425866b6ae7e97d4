"""Detect messages of a session that arrived out of order (SPEC section 9). Pure.

A message is overtaken if a message of its session that was accepted later arrived earlier in the same queue or
subscription. For messages that were accepted or arrived several times, the first time counts, since duplicates may come
later. Messages that several processes send to one session concurrently have no defined order, nor have scheduled
messages; they are compared by acceptance time, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message of one session in one queue or subscription.

    :param sent: sort key of the order of acceptance: the time, and tie-breakers for simultaneous acceptances.
    """

    message_id: str
    sent: tuple[float, int, int]


@dataclass(frozen=True, slots=True)
class OrderCheck:
    """A message, and the message that overtook it.

    :param overtaken_by: of the messages that arrived before, the id of the one accepted last; ``None`` if the message
        arrived in order.
    """

    message_id: str
    overtaken_by: str | None


def check_order(arrivals: Iterable[Arrival]) -> Iterator[OrderCheck]:
    """Yield the result for each message of one session in one queue or subscription.

    :param arrivals: each message once, in the order of arrival.
    """
    latest: Arrival | None = None
    for arrival in arrivals:
        overtaken = latest is not None and arrival.sent < latest.sent
        yield OrderCheck(arrival.message_id, latest.message_id if overtaken and latest is not None else None)
        if not overtaken:
            latest = arrival
