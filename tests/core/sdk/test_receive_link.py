"""A receive link reports the outcome of each settled message, and closing a broken handler raises nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.model.errors import LockLostError, UnreachableError
from servicebus_pair.core.model.usage_meter import Meter
from servicebus_pair.core.sdk import receive_link
from servicebus_pair.core.sdk._private.receiver_patches import PartialSettlementError
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.receive_link import ReceiveLink


class Owner(NamespaceClient):
    def __init__(self) -> None:
        self.namespace, self.meter, self.authenticated = "contoso", Meter(), True
        self._closed, self._fault, self._background = False, None, set()


def link_over(receiver: Any) -> tuple[ReceiveLink, Owner]:
    owner = Owner()
    link = ReceiveLink(owner, "flights", lambda: receiver, should_stop=lambda: False)
    link._handler = receiver
    return link, owner


async def test_only_unconfirmed_messages_of_a_partly_settled_range_have_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confirmed, other = (SimpleNamespace(_delivery_id=number) for number in (1, 2))

    async def settle_range(*_: Any, **__: Any) -> None:
        raise PartialSettlementError(frozenset([id(confirmed)])) from OSError("detached")

    monkeypatch.setattr(receive_link, "can_settle_ranges", lambda *_: True)
    monkeypatch.setattr(receive_link, "settle_range", settle_range)
    link, owner = link_over(SimpleNamespace())
    first, second = await link.complete([confirmed, other], timeout=5)  # type: ignore[list-item]
    assert (first, type(second)) == (None, UnreachableError)
    assert "settle on flights on contoso: OSError: detached" in str(second)
    assert owner.meter.read().settlements == 2


async def test_messages_are_settled_one_by_one_and_a_failure_does_not_stop_the_others() -> None:
    settled = []

    async def complete_message(message: Any) -> None:
        if message == "b":
            raise LockLostError
        settled.append(message)

    link, _ = link_over(SimpleNamespace(complete_message=complete_message))
    outcomes = await link.complete(["a", "b", "c"], timeout=5)  # type: ignore[list-item]
    assert settled == ["a", "c"]
    assert [outcome is None for outcome in outcomes] == [True, False, True]


async def test_closing_a_broken_handler_raises_nothing_and_the_next_call_creates_another() -> None:
    async def close() -> None:
        raise OSError("broken")

    async def peek_messages(**options: Any) -> list[Any]:
        return [options]

    link, _ = link_over(SimpleNamespace(close=close))
    await link.close()
    link._create_handler = lambda: SimpleNamespace(peek_messages=peek_messages)
    peeked: list[Any] = [*await link.peek(max_messages=2, timeout=5)]
    assert peeked == [{"max_message_count": 2, "sequence_number": 1, "timeout": 5}]
