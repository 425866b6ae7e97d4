"""Messages of sessions in the backlog, and how they arrived."""

from __future__ import annotations

from collections import defaultdict

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import PairOptions
from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from tests.core.support.local_pair import LocalPair
from tests.core.support.queues import peek_all

OPTIONS = PairOptions(backlog_queue_count=2, ordering="session")
QUEUES = session_queue_paths("contoso", 2)


def session_messages(count: int, *sessions: str, start: int = 0) -> list[ServiceBusMessage]:
    """Messages of several sessions, interleaved; each id names its session and number."""
    return [
        ServiceBusMessage("x", message_id=f"{session}/{n}", session_id=session)
        for n in range(start, start + count)
        for session in sessions
    ]


async def arrivals(local_pair: LocalPair, entity: str = "flights") -> dict[str, list[int]]:
    """The numbers of each session in the order of their first arrival."""
    found: dict[str, dict[int, None]] = defaultdict(dict)
    for message in await peek_all(local_pair.primary.connection_string, entity):
        session, _, number = (message.message_id or "").partition("/")
        found[session].setdefault(int(number))
    return {session: list(numbers) for session, numbers in found.items()}


def in_order(count: int, *sessions: str) -> dict[str, list[int]]:
    return {session: list(range(count)) for session in sessions}
