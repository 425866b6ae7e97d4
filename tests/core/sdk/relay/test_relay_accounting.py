"""Links of encoded messages count what is billed, name each failure, and batch what may travel together."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, Self

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.model.errors import LockLostError, ServiceError, TimedOutError, UnreachableError
from servicebus_pair.core.model.pricing import Operations
from servicebus_pair.core.model.usage_meter import Meter
from servicebus_pair.core.protocol.amqp_sections import binary, section, uint
from servicebus_pair.core.protocol.relay_batch import RelayBatch
from servicebus_pair.core.protocol.relayed_message import RelayedMessage
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.relay.delivery import RelayDelivery
from servicebus_pair.core.sdk.relay.receive import RelayReceiveLink
from servicebus_pair.core.sdk.relay.send import RelaySendLink
from tests.core.support.encoding import encode
from tests.core.support.frames import FALSE, HANDLE, FakeHandler, disposition, frame

pytestmark = [pytest.mark.fast_sdk, pytest.mark.simulated]

ACCEPTED, MODIFIED = (section(code, b"\x45") for code in (0x24, 0x27))
LOCKED_UNTIL = 1_900_000_000_250


class Owner(NamespaceClient):
    def __init__(self) -> None:
        self.namespace, self.meter, self.authenticated = "contoso", Meter(), True
        self.is_closed, self._fault, self._background = False, None, set()


class Receiver(FakeHandler):
    """An open receiver of the SDK."""

    def __init__(self) -> None:
        super().__init__()
        self._handler = self
        self._amqp_transport, self._config = self.owner._amqp_transport, self.owner._config

    async def __aenter__(self) -> Self:
        return self

    async def close(self) -> None: ...


class Setting:
    def __init__(self) -> None:
        self.owner, self.stop, self.receiver = Owner(), False, Receiver()
        self.link = RelayReceiveLink(self.owner, "q", lambda: self.receiver, should_stop=lambda: self.stop)

    def deliver(self, *sizes: int) -> None:
        for number, size in enumerate(sizes):
            annotations: dict[Any, Any] = {
                "x-opt-sequence-number": amqp_typed("LONG", 70 + number),
                "x-opt-locked-until": amqp_typed("TIMESTAMP", LOCKED_UNTIL + number),
            }
            payload = encode(AmqpAnnotatedMessage(data_body=b"", annotations=annotations))
            payload = encode(AmqpAnnotatedMessage(data_body=b"x" * (size - len(payload)), annotations=annotations))
            fields = [uint(HANDLE), uint(number), binary(b"tag"), uint(0), FALSE, FALSE]
            self.receiver.feed(frame(0x14, fields, payload))

    async def receive(self, count: int = 10) -> list[RelayDelivery]:
        found = await self.link.receive(max_messages=count, max_wait_time=1.0, timeout=5.0)
        assert all(isinstance(each, RelayDelivery) for each in found)
        return [each for each in found if isinstance(each, RelayDelivery)]

    @property
    def billed(self) -> Operations:
        return self.owner.meter.read()


@pytest.fixture
async def setting() -> Setting:
    return Setting()


async def test_receives_are_billed_by_message_and_by_each_64_kb(setting: Setting) -> None:
    assert await setting.receive() == []
    assert setting.billed == Operations(empty_receives=1)
    setting.deliver(70_000, 60_000, 200_000)
    received = await setting.receive()
    assert [len(each.encoded) > 65_536 for each in received] == [True, False, True]
    assert setting.billed == Operations(empty_receives=1, receives=3, further_increments=1 + 3)
    assert [each.sequence_number for each in received] == [70, 71, 72]
    # All were locked no earlier than the first.
    assert {each.locked_until for each in received} == {datetime.fromtimestamp(LOCKED_UNTIL / 1000, UTC)}


async def test_a_receive_that_fails_is_billed_as_an_empty_one_and_says_nothing_of_silence(setting: Setting) -> None:
    setting.deliver(200)
    await setting.receive()
    silent = [setting.link.fell_silent]
    setting.receiver._connection._error = ConnectionAbortedError("gone")
    with pytest.raises(UnreachableError, match="receive from q on contoso"):
        await setting.receive()
    assert setting.billed == Operations(receives=1, empty_receives=1)
    assert [*silent, setting.link.fell_silent] == [True, False]


async def test_a_receive_that_hangs_ends_with_its_wait_and_its_timeout(setting: Setting) -> None:
    async def hang(wait: float) -> None:
        await asyncio.sleep(60 + wait)

    setting.receiver._connection.listen = hang  # type: ignore[method-assign]
    clock = asyncio.get_running_loop().time
    began = clock()
    with pytest.raises(TimedOutError):
        await setting.link.receive(max_messages=1, max_wait_time=3.0, timeout=4.0)
    assert clock() - began == pytest.approx(3.0 + 4.0 + 0.4, abs=0.05)


async def test_messages_that_arrive_when_the_link_should_stop_are_released(setting: Setting) -> None:
    await setting.receive()
    setting.deliver(200, 200)
    setting.stop = True
    assert await setting.receive() == []
    setting.stop = False
    assert len(await setting.receive(2)) == 2, "they are not read before it stops"
    setting.deliver(200, 200)
    asyncio.get_running_loop().call_later(0.02, lambda: vars(setting).update(stop=True))
    assert await setting.receive() == []
    assert [(each.first, each.last, each.settled) for each in setting.receiver._session.dispositions] == [(0, 1, True)]
    assert setting.billed.settlements == 2


@pytest.mark.parametrize(("settlement", "confirmed"), [("complete", ACCEPTED), ("abandon", MODIFIED)])
async def test_each_settlement_has_its_outcome_in_the_order_given(
    setting: Setting, settlement: str, confirmed: bytes
) -> None:
    setting.deliver(200, 200, 200, 200)
    received = await setting.receive(4)
    session = setting.receiver._session
    session.on_disposition = lambda _: setting.receiver.feed(
        disposition(0, 1, confirmed), disposition(2, 2, section(0x26, b"\x45"))
    )
    outcomes: list[ServiceError | None] = await getattr(setting.link, settlement)(received[::-1], timeout=1.0)
    assert [type(each).__name__ for each in outcomes] == [
        "TimedOutError",
        outcomes[1].__class__.__name__,
        *["NoneType"] * 2,
    ]
    assert isinstance(outcomes[1], ServiceError)
    assert setting.billed.settlements == 4
    session.on_disposition = lambda _: setting.receiver.feed(disposition(0, 3, confirmed))
    assert await getattr(setting.link, settlement)(received, timeout=1.0) == [None] * 4


async def test_messages_of_another_link_cannot_be_settled(setting: Setting) -> None:
    setting.deliver(200, 200)
    received = await setting.receive(2)
    foreign = RelayDelivery(b"", delivery_id=1, receiver=object(), lock_ends=None)
    assert foreign.locked_until is None
    for messages in ([received[0], foreign], [foreign]):
        outcomes = await setting.link.complete(messages, timeout=1.0)
        assert [type(each) for each in outcomes] == [LockLostError] * len(messages)
    setting.link._handler = None
    [lost] = await setting.link.complete(received[:1], timeout=1.0)
    assert "settle on q on contoso: the link that delivered the messages is gone" in str(lost)
    assert (setting.billed.settlements, setting.receiver._session.dispositions) == (0, [])
    setting.receiver = Receiver()
    setting.deliver(200)
    assert len(await setting.receive(1)) == 1
    assert [type(each) for each in await setting.link.complete(received[:1], timeout=1.0)] == [LockLostError]


async def test_credit_is_taken_back_from_an_open_link_only(setting: Setting) -> None:
    await setting.link.drain_credit(timeout=1.0)
    assert setting.link._handler is None
    await setting.receive()
    flows = setting.receiver._link.flows
    await setting.link.drain_credit(timeout=1.0)
    assert flows[1:] == [{"link_credit": 0, "drain": True}]
    setting.link._handler = None
    await setting.link.drain_credit(timeout=1.0)
    assert (len(flows), setting.link._handler) == (2, None)


async def test_a_lost_link_fails_all_settlements(setting: Setting) -> None:
    setting.deliver(200, 200)
    received = await setting.receive(2)
    setting.receiver._connection._error = ConnectionAbortedError("gone")
    outcomes = await setting.link.complete(received, timeout=1.0)
    assert [type(each) for each in outcomes] == [UnreachableError] * 2


async def test_settlements_that_hang_end_with_their_timeout(setting: Setting) -> None:
    setting.deliver(200, 200)
    received = await setting.receive(2)

    async def hang(wait: float) -> None:
        await asyncio.sleep(60 + wait)

    setting.receiver._connection.listen = hang  # type: ignore[method-assign]
    outcomes = await setting.link.complete(received, timeout=1.0)
    assert [type(each) for each in outcomes] == [TimedOutError] * 2


def relayed(name: str, session: str | None, key: str | None) -> RelayedMessage:
    return RelayedMessage(encode(AmqpAnnotatedMessage(data_body=b"x")), name, session_id=session, partition_key=key)


def test_a_refused_batch_is_split_by_session_and_later_batches_are_not_mixed() -> None:
    link = RelaySendLink(Owner(), "flights", object)
    batch = RelayBatch(10_000)
    mixed = [relayed("1", "a", None), relayed("2", "b", None), relayed("3", "a", None), relayed("4", None, "k")]
    for each in mixed:
        assert batch.try_add(each)
    assert [link.batch_key(each) for each in mixed] == [None, None, None, "k"]
    parts = link.split_if_mixed(batch)
    assert [[each.message_id for each in part.messages] for part in parts] == [["1", "3"], ["2"], ["4"]]
    assert [link.batch_key(each) for each in mixed] == [(None, "a"), (None, "b"), (None, "a"), ("k", None)]
    assert link.split_if_mixed(parts[0]) == []
    one = RelaySendLink(Owner(), "flights", object)
    assert one.split_if_mixed(parts[0]) == []
    assert one.accepts_mixed_sessions
