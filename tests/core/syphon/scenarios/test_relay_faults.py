"""A drain that leaves messages encoded survives what a peer does to its links (SPEC section 6)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import PairOptions
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from servicebus_pair.core.protocol.byte_window import ByteWindow
from servicebus_pair.core.sdk._private.raw_receiver import RawReceiver
from servicebus_pair.core.sdk.relay.receive import RelayReceiveLink
from servicebus_pair.core.sdk.relay.send import RelaySendLink
from tests.core.support.local_pair import BACKLOG, LocalPair, messages, open_local_pair

pytestmark = [pytest.mark.simulated, pytest.mark.fast_sdk]

COUNT = 600
QUEUES = 2
EVERYTHING = {f"m{n}" for n in range(COUNT)}
EIGHTY = [f"m{n}" for n in range(80)]


async def fill(local_pair: LocalPair, *, by_session: bool) -> None:
    if by_session:
        for start in range(0, COUNT, 300):
            sent = [
                ServiceBusMessage("x", message_id=f"m{n}", session_id=f"s{n % 4}") for n in range(start, start + 300)
            ]
            await local_pair.put_into_sessions("flights", sent)
        return
    for number, queue in enumerate(backlog_queue_paths("contoso", QUEUES)):
        half = range(number * COUNT // 2, (number + 1) * COUNT // 2)
        await local_pair.put_into_backlog("flights", messages(*half), queue=queue)


@pytest.mark.parametrize("ordering", ["none", "session"])
@pytest.mark.parametrize(
    ("namespace", "kind", "operation"),
    [
        ("primary", FaultKind.RESET, Operation.SEND),
        ("primary", FaultKind.CLOSE_CONNECTION, Operation.SEND),
        ("primary", FaultKind.CLOSE_LINK, Operation.SEND),
        ("primary", FaultKind.RELEASED, Operation.SEND),
        ("primary", FaultKind.MODIFIED, Operation.SEND),
        ("primary", FaultKind.SERVER_BUSY, Operation.SEND),
        ("primary", FaultKind.INTERNAL_ERROR, Operation.SEND),
        ("primary", FaultKind.NO_DISPOSITION, Operation.SEND),
        ("secondary", FaultKind.RESET, Operation.SETTLE),
        ("secondary", FaultKind.RESET, Operation.RECEIVE),
        ("secondary", FaultKind.CLOSE_LINK, Operation.RECEIVE),
        ("secondary", FaultKind.CLOSE_LINK, Operation.SETTLE),
        ("secondary", FaultKind.CLOSE_CONNECTION, Operation.SETTLE),
        ("secondary", FaultKind.NO_DISPOSITION, Operation.SETTLE),
        ("secondary", FaultKind.LOCK_LOST, Operation.SETTLE),
        ("secondary", FaultKind.DUPLICATE, Operation.SETTLE),
    ],
    ids=str,
)
async def test_section_6_nothing_is_lost_and_copies_are_counted_when_a_peer_misbehaves(
    namespace: str, kind: FaultKind, operation: Operation, ordering: str
) -> None:
    options = PairOptions(
        backlog_queue_count=QUEUES, ordering=ordering, attempt_timeout=timedelta(seconds=3), enable_syphon=False
    )
    async with open_local_pair("flights", options=options, lock="PT10S") as local_pair:
        await fill(local_pair, by_session=ordering == "session")
        struck = getattr(local_pair, namespace)
        struck.set_fault(Fault(kind=kind, on=(operation,), probability=0.2, count=3))
        report = await local_pair.pair.syphon().drain()
        copies = Counter(await local_pair.primary_ids())
        assert set(copies) == EVERYTHING
        assert report.empty, report
        assert report.dead_lettered == {}
        if kind is not FaultKind.DUPLICATE:  # which the service does behind our back
            assert copies.total() - COUNT <= report.duplicates_possible
        assert await local_pair.backlog_ids(*backlog_queue_paths("contoso", QUEUES)) == []


async def test_section_4_the_fourth_message_of_a_batch_is_rejected_alone() -> None:
    async with open_local_pair("flights") as local_pair:
        never = ServiceBusMessage("x", message_id="never", time_to_live=timedelta(0))
        await local_pair.put_into_backlog("flights", [*messages(0, 1, 2), never, *messages(*range(3, 200))])
        report = await local_pair.pair.syphon().drain()
        assert (report.moved, report.dead_lettered, report.left) == ({"flights": 200}, {"Rejected": 1}, 0)
        assert await local_pair.primary_ids() == [f"m{n}" for n in range(200)]
        assert await local_pair.backlog_ids(BACKLOG, dead_letter=True) == ["never"]


async def test_section_6_a_window_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    receive, requested = RawReceiver.receive, list[int]()

    async def noted(self: RawReceiver, *, max_messages: int, **more: Any) -> list[tuple[int, bytes]]:
        requested.append(max_messages)
        return await receive(self, max_messages=max_messages, **more)

    monkeypatch.setattr(RawReceiver, "receive", noted)
    add, held = ByteWindow.add, list[int]()

    def noted_size(self: ByteWindow, size: int) -> None:
        add(self, size)
        held.append(self._bytes)

    monkeypatch.setattr(ByteWindow, "add", noted_size)
    options = PairOptions(backlog_queue_count=1, syphon_max_bytes=8 * 2**20)
    async with open_local_pair("flights", options=options) as local_pair:
        for start in range(0, 80, 2):
            await local_pair.put_into_backlog("flights", messages(start, start + 1, body="x" * 100_000))
        report = await local_pair.pair.syphon().drain()
        assert report.moved == {"flights": 80}
        assert sorted(await local_pair.primary_ids()) == sorted(EIGHTY)
    # There are eight shares. What is asked for before any size is known keeps within one, too.
    assert requested[0] == 64
    assert 2**20 // 100_000 * 100_000 <= max(held) <= 2**20
    assert max(requested[2:]) == 2**20 // 100_000


async def test_section_6_a_kill_leaves_one_window_of_a_queue_sent_and_not_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many links receive from it: what is sent and not completed is what a kill would duplicate."""
    send, complete, unsettled, most = RelaySendLink.send_in_slot, RelayReceiveLink.complete, 0, 0

    async def noted_send(self: RelaySendLink, batch: Any, *more: Any) -> bool:
        nonlocal unsettled, most
        unsettled += len(batch)
        most = max(most, unsettled)
        return await send(self, batch, *more)

    async def noted_complete(self: RelayReceiveLink, completed: Any, **more: Any) -> Any:
        nonlocal unsettled
        try:
            return await complete(self, completed, **more)
        finally:
            unsettled -= len(completed)

    monkeypatch.setattr(RelaySendLink, "send_in_slot", noted_send)
    monkeypatch.setattr(RelayReceiveLink, "complete", noted_complete)
    options = PairOptions(backlog_queue_count=1, syphon_batch_size=20)
    async with open_local_pair("flights", "delays", options=options) as local_pair:
        for entity in ("flights", "delays"):
            await local_pair.put_into_backlog(entity, messages(*range(200)))
        report = await local_pair.pair.syphon().drain()
        assert report.moved == {"flights": 200, "delays": 200}
    assert (most, unsettled) == (20, 0)
