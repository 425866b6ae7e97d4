"""A send that ends at any stage leaves a defined state and says which messages are where (SPEC section 4)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core.errors import SendCancelledError, SendError, SendTimeoutError, account_of
from servicebus_pair.core.events import Event, MessagesAccepted, QueuePulled
from tests.core.breakable import Breakable, breakable_pair, numbered

pytestmark = pytest.mark.simulated

K = FaultKind
IDS = ["m0", "m1", "m2"]
# Beyond it a stage is no stage but a bug.
SOON = 3.0


@dataclass(frozen=True)
class Stage:
    """Where a send hangs.

    :param primary: faults there.
    :param secondary: faults there; then the entity is failed over.
    :param warm: whether a link was open before.
    :param doubt: whether the messages may be stored although nobody confirmed it.
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


def ids(messages: tuple[object, ...]) -> list[str]:
    return [str(message.properties.message_id) for message in messages]  # type: ignore[attr-defined]


async def ended(breakable: Breakable, how: str) -> SendError:
    """Begin a send of three, end it after half a second, and answer its account."""
    async with breakable.pair.sender("flights") as sender:
        began = asyncio.get_running_loop().time()
        sending = asyncio.create_task(sender.send(numbered(3), timeout=0.6 if how == "timed out" else None))
        if how == "cancelled":
            await asyncio.wait({sending}, timeout=0.6)
            sending.cancel()
        with pytest.raises((asyncio.CancelledError, SendTimeoutError)) as caught:
            await sending
        assert asyncio.get_running_loop().time() - began < SOON
    account = account_of(caught.value)
    assert isinstance(account, SendCancelledError if how == "cancelled" else SendTimeoutError)
    return account


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
async def test_section_4_a_send_that_ends_at_any_stage_says_where_its_messages_are(stage: Stage, how: str) -> None:
    options = {"failover_interval": timedelta(minutes=5), "server_busy_delay": timedelta(seconds=0.25)}
    async with breakable_pair(**options, ping_primary_interval=timedelta(minutes=5)) as breakable:
        if stage.secondary:
            breakable.pair.fail_over("flights", reason="test")
        if stage.warm:
            async with breakable.pair.sender("flights") as sender:
                await sender.send(numbered(1, start=100))
                for queue in breakable.pair._queues if stage.secondary else ():
                    await breakable.pair._open().secondary.send_link(queue).open(timeout=5)
        for hosted, faults in ((breakable.primary, stage.primary), (breakable.secondary, stage.secondary)):
            for fault in faults:
                hosted.set_fault(fault)
        account = await ended(breakable, how)
        assert ids(account.unsent) == IDS
        assert ids(account.in_doubt) == (IDS if stage.doubt else [])
        assert account.result.sent == 0
        breakable.primary.clear_faults()
        breakable.secondary.clear_faults()
        # What is stored is in doubt, and nothing else is.
        stored = {*await breakable.ids_on_the_primary(), *await breakable.ids_in_the_backlog()} - {"m100"}
        assert stored <= set(ids(account.in_doubt))
        breakable.pair.mark_healthy("flights")
        async with breakable.pair.sender("flights") as sender:
            assert (await sender.send(account.unsent)).primary_ids == tuple(IDS)


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_section_4_a_send_that_ends_while_it_waits_behind_another_was_never_begun(how: str) -> None:
    long = timedelta(minutes=5)
    async with breakable_pair(failover_interval=long) as breakable, breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1, start=100))
        breakable.primary.set_fault(Fault(kind=K.LATE_DISPOSITION, delay=1.5))
        first = asyncio.create_task(sender.send(numbered(1, start=101)))
        await asyncio.sleep(0.1)
        account = await ended(breakable, how)
        assert (await first).primary == 1
        assert (ids(account.unsent), account.in_doubt) == (IDS, ())
        assert await breakable.ids_on_the_primary() == ["m100", "m101"]


class SilentAfter:
    """An observer that makes the backlog silent once it has taken the first batch."""

    breakable: Breakable

    def observe(self, event: Event) -> None:
        if isinstance(event, MessagesAccepted):
            self.breakable.secondary.set_fault(SILENT_SEND)


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_section_4_a_send_that_ends_between_two_batches_of_the_backlog_names_all_three_kinds(how: str) -> None:
    silent = SilentAfter()
    big = [ServiceBusMessage(b"x" * 100_000, message_id=f"m{n}") for n in range(5)]
    async with breakable_pair(observers=(silent,)) as breakable, breakable.pair.sender("flights") as sender:
        silent.breakable = breakable
        breakable.pair.fail_over("flights", reason="test", hold=timedelta(minutes=1))
        sending = asyncio.create_task(sender.send(big, timeout=1.5 if how == "timed out" else None))
        if how == "cancelled":
            await breakable.recorder.next_of(MessagesAccepted)
            while not set(await breakable.ids_in_the_backlog()) >= {"m2", "m3"}:
                assert not sending.done()
            sending.cancel()
        with pytest.raises((asyncio.CancelledError, SendTimeoutError)) as caught:
            await sending
        account = account_of(caught.value)
        assert account is not None
        assert account.result.diverted_ids == ("m0", "m1")
        assert ids(account.in_doubt) == ["m2", "m3"]
        assert ids(account.unsent) == ["m2", "m3", "m4"]
        assert set(await breakable.ids_in_the_backlog()) == {"m0", "m1", "m2", "m3"}


async def test_section_4_a_busy_backlog_is_waited_for_as_a_busy_primary_is(breakable: Breakable) -> None:
    breakable.secondary.set_fault(Fault(kind=K.SERVER_BUSY, count=3))
    breakable.pair.fail_over("flights", reason="test", hold=timedelta(minutes=1))
    async with breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(3))).diverted == 3
    assert breakable.recorder.of(QueuePulled) == []


async def test_section_4_one_lost_connection_to_the_backlog_is_forgiven(breakable: Breakable) -> None:
    breakable.pair.fail_over("flights", reason="test", hold=timedelta(minutes=1))
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.secondary.set_fault(Fault(kind=K.RESET, count=1))
        assert (await sender.send(numbered(1, start=1))).diverted == 1
    assert breakable.recorder.of(QueuePulled) == []


async def test_section_4_a_link_that_was_idle_for_minutes_is_opened_anew_instead_of_failing(
    breakable: Breakable,
) -> None:
    """The service closes idle connections, and a client learns of it by a send that fails."""
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        link = breakable.pair._open().primary.send_link("flights")
        old = link._handler
        assert link.attached
        link._used -= 201
        assert not link.attached
        assert (await sender.send(numbered(1, start=1))).primary == 1
        assert link._handler is not old
    assert breakable.recorder.states == []
