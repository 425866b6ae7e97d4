"""The last step of the messages of a batch (SPEC section 4); those that need a service are in ``scenarios``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.model.errors import RejectedError
from servicebus_pair.core.send.last_step import NO_HISTORY, LastStep, Part
from servicebus_pair.core.send.next_step import Split


@pytest.mark.parametrize(("count", "sizes"), [(2, [1, 1]), (3, [2, 1]), (4, [2, 2]), (7, [4, 3]), (100, [50, 50])])
async def test_section_4_a_rejected_batch_is_halved_in_order(count: int, sizes: list[int]) -> None:
    pair: Any = SimpleNamespace(registry=None)
    sender: Any = SimpleNamespace(entity="flights", pair=pair, policy=None, backlog=None)
    messages: list[Any] = [object() for _ in range(count)]
    history = NO_HISTORY.failed(RejectedError("poison"), began=5.0, was_attached=True, is_final=False)
    nothing: Any = None
    halves = await LastStep(sender, nothing, deadline=nothing).execute(Part(messages, None, history), Split())
    assert [len(each.messages) for each in halves] == sizes
    assert [message for each in halves for message in each.messages] == messages
    assert {(each.history.failing_since, each.history.rejections, each.batch) for each in halves} == {(5.0, 0, None)}
