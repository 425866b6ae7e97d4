"""What a cursor finds in a queue, whatever the service answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.sdk import MessageState, ReceiveLink
from servicebus_pair.spark.connections.peek_client import PeekCursor

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class Liar:
    """A link whose pages have one message behind what was asked for, and any others before it."""

    path = "flights"

    def __init__(self, others: list[int], step: int) -> None:
        self.others, self.step, self.requests = others, step, 0

    async def peek(self, *, from_sequence_number: int, **_: Any) -> list[Any]:
        self.requests += 1
        assert self.requests < 500, "an endless search"
        if (last := from_sequence_number + self.step) > 2**40:
            return []
        return [
            SimpleNamespace(sequence_number=each, state=MessageState.ACTIVE, enqueued_time=MOMENT - timedelta(days=1))
            for each in sorted({*self.others, last})
        ]


@given(others=st.lists(st.integers(-5, 3), max_size=3), step=st.integers(0, 9))
async def test_every_search_has_an_end(others: list[int], step: int) -> None:
    link = Liar(others, step)
    cursor = PeekCursor(cast("ReceiveLink", link))
    await cursor.end(3)
    await cursor.available(3)
    await cursor.first_since(MOMENT)
    async for _ in cursor.claimed_pages(((3, 5), (7, 40))):
        pass
    async for _ in cursor.pages(3, end=50):
        pass
