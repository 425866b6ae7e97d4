"""``ordering="session"`` with a spool: a send that neither namespace takes goes where all processes agree (SPEC 10)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import EntityHealth
from servicebus_pair.core.model.errors import SendError
from servicebus_pair.core.model.interfaces import InMemoryHealthStore
from tests.core.health.scenarios.test_session_order import numbered
from tests.core.health.scenarios.test_session_order_with_spool import SPOOLING
from tests.core.support.local_pair import open_local_pair
from tests.core.support.spooling import stop

pytestmark = pytest.mark.simulated


class Overwritten(InMemoryHealthStore):
    """A store in which a process that had not read of the spool writes over it, once."""

    before: EntityHealth | None = None

    async def save(self, entity: str, health: EntityHealth) -> None:
        await super().save(entity, health)
        if not health.spool:
            self.before = health
        elif self.before is not None:
            unread, self.before = self.before, None
            asyncio.get_running_loop().call_later(0.2, asyncio.ensure_future, super().save(entity, unread))


async def test_section_10_a_change_to_the_spool_that_was_overwritten_is_made_again(tmp_path: Path) -> None:
    options = replace(SPOOLING, spool=str(tmp_path))
    async with open_local_pair("flights", options=options, store=Overwritten()) as both:
        stop(both.primary, both.secondary)
        async with both.pair.sender("flights") as sender:
            assert (await sender.send(numbered("a", 0))).spooled == 1


async def test_section_10_in_session_order_what_the_backlog_refuses_is_set_aside_and_holds_nothing_up(
    tmp_path: Path,
) -> None:
    options = replace(SPOOLING, spool=str(tmp_path))
    # A copy for the backlog has more properties than its message: these are the most that the primary takes.
    most: dict[str | bytes, Any] = {f"p{n}": "x" * 32_740 for n in range(2)}
    async with open_local_pair("flights", options=options, store=InMemoryHealthStore()) as both:
        async with both.pair.sender("flights") as sender:
            stop(both.primary, both.secondary)
            assert (await sender.send(numbered("a", 0))).spooled == 1
            large = ServiceBusMessage("x", message_id="a/1", session_id="a", application_properties=most)
            with pytest.raises(SendError, match="as a copy for the backlog") as caught:
                await sender.send([large, *numbered("a", 2)])
            assert (caught.value.result.spooled, len(caught.value.refused)) == (1, 1)
            with pytest.raises(SendError, match="as a copy for the backlog") as caught:
                await sender.send(large)
            assert (caught.value.result.spooled, len(caught.value.refused)) == (0, 1)
        both.secondary.clear_faults()
        # The first message is rejected however often it is tried.
        both.secondary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.SEND,), count=3))
        report = await both.pair.empty_spool()
        assert (report.set_aside, report.left, report.results["flights"].diverted) == ({"flights": 1}, 0, 1)
        assert not both.pair.health("flights").spool
