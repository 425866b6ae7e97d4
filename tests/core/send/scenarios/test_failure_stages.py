"""A send cancelled or timed out at any stage reports the state of each message (SPEC section 4)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core.model.errors import SendCancelledError, SendError, SendTimeoutError, find_send_error
from tests.core.support.local_pair import LocalPair, numbered, open_quick_pair

pytestmark = pytest.mark.simulated

K = FaultKind
IDS = ["m0", "m1", "m2"]
# Seconds; a send that takes longer does not honour its timeout.
SOON = 3.0


@dataclass(frozen=True)
class Stage:
    """Where a send hangs.

    :param primary: faults there.
    :param secondary: faults there; then the entity is failed over.
    :param warm: whether a link was open before.
    :param doubt: whether the messages may be stored without confirmation.
    """

    primary: tuple[Fault, ...] = ()
    secondary: tuple[Fault, ...] = ()
    warm: bool = False
    doubt: bool = False


SILENT_TOKEN = Fault(kind=K.NO_DISPOSITION, on=(Operation.AUTHENTICATE,))
SILENT_SEND = Fault(kind=K.NO_DISPOSITION)
STAGES = {
    "connecting": Stage(primary=(Fault(kind=K.FREEZE),)),
    "bringing its token": Stage(primary=(SILENT_TOKEN,)),
    "in flight to the primary": Stage(primary=(SILENT_SEND,), warm=True, doubt=True),
    "between two attempts": Stage(primary=(Fault(kind=K.CLOSE_LINK), Fault(kind=K.FREEZE)), warm=True, doubt=True),
    "waiting for a busy primary": Stage(primary=(Fault(kind=K.SERVER_BUSY),), warm=True),
    "connecting to the backlog": Stage(secondary=(Fault(kind=K.FREEZE),)),
    "bringing its token to the backlog": Stage(secondary=(SILENT_TOKEN,)),
    "in flight to the backlog": Stage(secondary=(SILENT_SEND,), warm=True, doubt=True),
    "waiting for a busy backlog": Stage(secondary=(Fault(kind=K.SERVER_BUSY),), warm=True),
}


def ids(messages: tuple[Any, ...]) -> list[str]:
    return [str(message.message_id) for message in messages]


async def ended(local_pair: LocalPair, how: str) -> SendError:
    """Start a send of three messages, end it after half a second, and return its error."""
    async with local_pair.pair.sender("flights") as sender:
        started = asyncio.get_running_loop().time()
        sending = asyncio.create_task(sender.send(numbered(3), timeout=0.6 if how == "timed out" else None))
        if how == "cancelled":
            await asyncio.wait({sending}, timeout=0.6)
            sending.cancel()
        with pytest.raises((asyncio.CancelledError, SendTimeoutError)) as caught:
            await sending
        assert asyncio.get_running_loop().time() - started < SOON
    account = find_send_error(caught.value)
    assert isinstance(account, SendCancelledError if how == "cancelled" else SendTimeoutError)
    return account


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
async def test_section_4_a_send_that_ends_at_any_stage_reports_its_messages(stage: Stage, how: str) -> None:
    options: dict[str, Any] = {"failover_interval": timedelta(minutes=5), "server_busy_delay": timedelta(seconds=0.25)}
    async with open_quick_pair(**options, ping_primary_interval=timedelta(minutes=5)) as local_pair:
        if stage.secondary:
            await local_pair.pair.fail_over("flights", reason="test")
        if stage.warm:
            async with local_pair.pair.sender("flights") as sender:
                await sender.send(numbered(1, start=100))
                for queue in local_pair.pair._queues if stage.secondary else ():
                    await local_pair.pair._open().secondary.send_link(queue).open(timeout=5)
        for hosted, faults in ((local_pair.primary, stage.primary), (local_pair.secondary, stage.secondary)):
            for fault in faults:
                hosted.set_fault(fault)
        account = await ended(local_pair, how)
        assert ids(account.unsent) == IDS
        assert ids(account.in_doubt) == (IDS if stage.doubt else [])
        assert account.result.sent == 0
        assert f"3 unsent, {len(account.in_doubt)} of them in doubt" in str(account)
        local_pair.primary.clear_faults()
        local_pair.secondary.clear_faults()
        # Only messages in doubt may be stored.
        stored = {*await local_pair.primary_ids(), *await local_pair.backlog_ids()} - {"m100"}
        assert stored <= set(ids(account.in_doubt))
        await local_pair.pair.mark_healthy("flights")
        async with local_pair.pair.sender("flights") as sender:
            assert (await sender.send(account.unsent)).primary_ids == tuple(IDS)
