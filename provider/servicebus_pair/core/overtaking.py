"""What came out of order: messages of a session that later ones have overtaken (SPEC section 9). Pure.

A message is overtaken when one of its session that was accepted later arrived earlier in the same queue or
subscription. Of a message that was accepted or has arrived more than once, the first time counts: a duplicate may come
after its original. Who sends to one session from two processes at the same time has given it no order; it is judged by
the times of acceptance all the same. The same goes for messages that were scheduled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Arrival", "Overtaking", "in_order"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message of one session in one place.

    :param sent: where it stands in the order of acceptance: the time, and what tells apart what was accepted at once.
    """

    message_id: str
    sent: tuple[float, int, int]


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A message, and the one that overtook it: of those that arrived before, the one that was accepted last.

    :param by: its id; ``None`` when the message arrived in order.
    """

    message_id: str
    by: str | None


def in_order(arrivals: Iterable[Arrival]) -> Iterator[Overtaking]:
    """Judge the messages of one session in one place.

    :param arrivals: each message once, in the order in which they arrived.
    """
    latest: Arrival | None = None
    for arrival in arrivals:
        overtaken = latest is not None and arrival.sent < latest.sent
        yield Overtaking(arrival.message_id, latest.message_id if overtaken and latest is not None else None)
        if not overtaken:
            latest = arrival
