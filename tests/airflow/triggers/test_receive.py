"""``ServiceBusReceiveTrigger`` in Airflow's shared streams: a message is completed once its event is stored."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from servicebus_pair.core import InboundMessage, PairReceiver
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.queues.servicebus_pair import ServiceBusPairQueueProvider
from servicebus_pair.triggers import receive
from servicebus_pair.triggers.receive import ServiceBusReceiveTrigger
from tests.airflow.conftest import CONN_ID, Pair
from tests.airflow.support.queues import contents, dead_letters, send_texts
from tests.airflow.support.receiving import DOWN_SECONDS, MOST_PINGS, count_pings, report_receiving, with_short_locks
from tests.airflow.support.versions import needs

with contextlib.suppress(ImportError):  # before Airflow 3.3
    from airflow.triggers import shared_stream
    from airflow.triggers.shared_stream import SharedStreamManager

FLIGHTS: dict[str, Any] = {"servicebus_pair_conn_id": CONN_ID, "entity": "flights"}


class Runner:
    """What the triggerer does with triggers: it runs them, stores their events and says so."""

    def __init__(self, manager: SharedStreamManager) -> None:
        self.manager = manager
        self.events: dict[int, list[dict[str, Any]]] = {}
        self.unconfirmed: list[int] = []
        self._arrived = asyncio.Event()

    async def run(self, trigger_id: int, trigger: ServiceBusReceiveTrigger) -> None:
        key = trigger.shared_stream_key()
        stream = self.manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
        try:
            async for event in trigger.filter_shared_stream(stream):
                seq = self.manager.bind_pending_event(trigger_id=trigger_id, key=key)
                assert seq is not None
                self.unconfirmed.append(seq)
                self.events.setdefault(trigger_id, []).append(event.payload)
                self._arrived.set()
        finally:
            await self.manager.unsubscribe(trigger_id, key)

    async def wait_for(self, *counts: int) -> None:
        async with asyncio.timeout(20):
            while [len(self.events.get(each, [])) for each in range(len(counts))] != list(counts):
                self._arrived.clear()
                await self._arrived.wait()

    def confirm(self) -> None:
        self.manager.confirm_persisted(self.unconfirmed)
        self.unconfirmed.clear()

    def counted(self) -> Counter[str]:
        """How often each message of the first trigger came."""
        return Counter(body for bodies in self.bodies() for body in bodies)

    async def confirm_until(self, count: int) -> None:
        """Confirm events as they come, until so many different messages came."""
        async with asyncio.timeout(60):
            while len(self.counted()) < count:
                self.confirm()
                await asyncio.sleep(0.05)

    def bodies(self, trigger_id: int = 0) -> list[list[str]]:
        return [[each["body"] for each in event["messages"]] for event in self.events.get(trigger_id, [])]


@asynccontextmanager
async def running(*triggers: ServiceBusReceiveTrigger, **settings: Any) -> AsyncIterator[Runner]:
    runner = Runner(SharedStreamManager(**settings))
    tasks = [asyncio.create_task(runner.run(index, trigger)) for index, trigger in enumerate(triggers)]
    try:
        yield runner
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110  the service has no event
            await asyncio.sleep(0.1)


async def until_left(pair: Pair, bodies: Iterable[str]) -> None:
    """Wait until the queue holds these messages, locked or not."""
    expected = list(bodies)

    async def are_left() -> bool:
        return [each.body for each in await asyncio.to_thread(contents, pair.primary["contoso"], "flights")] == expected

    await until(are_left)


@needs("acknowledged_events")
async def test_a_message_stays_until_the_events_of_all_triggers_are_stored(pair: Pair):
    await asyncio.to_thread(send_texts, pair.primary["contoso"], "flights", "a", "b", "c")
    triggers = [ServiceBusReceiveTrigger(**FLIGHTS, max_messages=2) for _ in range(2)]

    async with running(*triggers) as runner:
        await runner.wait_for(2, 2)
        assert runner.bodies(0) == runner.bodies(1) == [["a", "b"], ["c"]]
        first, *others = runner.unconfirmed
        runner.manager.confirm_persisted([first])
        await asyncio.sleep(1)
        await until_left(pair, "abc")
        runner.manager.confirm_persisted(others)
        await until_left(pair, "")
        assert runner.events[0][0]["messages"][0]["broker"]["delivery_count"] == 0


@needs("acknowledged_events")
async def test_what_was_not_stored_comes_again_at_once_when_the_triggerer_stops(pair: Pair):
    await asyncio.to_thread(send_texts, pair.primary["contoso"], "flights", "a", "b")
    async with running(ServiceBusReceiveTrigger(**FLIGHTS)) as runner:
        await runner.wait_for(2)
        runner.manager.confirm_persisted(runner.unconfirmed[:1])
        await until_left(pair, "b")

    async with running(ServiceBusReceiveTrigger(**FLIGHTS)) as runner:
        await runner.wait_for(1)
        assert runner.bodies() == [["b"]]
        assert runner.events[0][0]["messages"][0]["broker"]["delivery_count"] == 0
        runner.confirm()
        await until_left(pair, "")


@needs("acknowledged_events")
async def test_an_event_that_is_never_stored_gives_its_message_back(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_stream, "_ACK_TIMEOUT_SCAN_INTERVAL", 0.1, raising=False)
    await asyncio.to_thread(send_texts, pair.primary["contoso"], "flights", "a")
    async with running(ServiceBusReceiveTrigger(**FLIGHTS), ack_timeout=0.5) as runner:
        await runner.wait_for(1)
        await asyncio.sleep(3)
    async with running(ServiceBusReceiveTrigger(**FLIGHTS)) as runner:
        await runner.wait_for(1)
        assert runner.bodies() == [["a"]]


@needs("acknowledged_events")
async def test_what_an_event_cannot_hold_is_dead_lettered_with_a_reason(pair: Pair):
    large = [each * 300 for each in "bcde"]
    await asyncio.to_thread(send_texts, pair.primary["contoso"], "flights", "a" * 2000, *large)
    trigger = ServiceBusReceiveTrigger(**FLIGHTS, max_messages=10, max_event_bytes=1000)

    async with running(trigger) as runner:
        while [body for event in runner.bodies() for body in event] != large:  # noqa: ASYNC110  bounded by the test
            await asyncio.sleep(0.1)
        assert len(runner.events[0]) > 1  # split, so that no event is larger than allowed
        runner.confirm()
        await until_left(pair, "")
    [dead] = await asyncio.to_thread(dead_letters, pair.primary["contoso"], "flights")
    assert dead.startswith("TooLargeForEvent: the event would have more than max_event_bytes=1000")


@needs("acknowledged_events")
async def test_a_few_messages_are_in_memory_at_once_and_no_more_than_an_event_holds(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    calls: list[tuple[int, list[str]]] = []
    original = PairReceiver.receive

    async def recorded(self: PairReceiver, *, max_messages: int = 1, **options: Any) -> list[InboundMessage]:
        found = await original(self, max_messages=max_messages, **options)
        calls.append((max_messages, [str(each.fields["body"]) for each in found]))
        return found

    monkeypatch.setattr(PairReceiver, "receive", recorded)
    large = [letter * 30_000 for letter in "vwxyz"]
    small = [f"small {number}" for number in range(20)]
    await asyncio.to_thread(send_texts, pair.primary["contoso"], "flights", *large, *small)
    trigger = ServiceBusReceiveTrigger(**FLIGHTS, max_messages=20, linger=60, max_event_bytes=50_000)

    async with running(trigger) as runner:
        await runner.wait_for(5)  # each large message has an event, and the last one a small message as well
        await until_left(pair, [*large, *small])
    assert [most for most, _ in calls][:8] == [1, 2, 1, 2, 1, 2, 4, 8]
    assert [body for _, bodies in calls for body in bodies][:20] == [*large, *small][:20]


@needs("acknowledged_events")
async def test_an_outage_in_the_middle_of_receiving_loses_nothing_and_a_missing_entity_ends_no_trigger(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(receive, "_RETRY_SECONDS", 0.5)
    pings = count_pings(monkeypatch)
    with_short_locks(pair)
    sent = [f"m{number}" for number in range(500)]
    await asyncio.to_thread(send_texts, pair.primary["contoso"], "flights", *sent)
    missing = ServiceBusReceiveTrigger(servicebus_pair_conn_id=CONN_ID, entity="missing")

    async with running(ServiceBusReceiveTrigger(**FLIGHTS, max_messages=5, linger=0), missing) as runner:
        await runner.confirm_until(100)
        await asyncio.to_thread(pair.primary.kill)
        runner.confirm()  # what Airflow stores during the outage cannot be completed
        await asyncio.sleep(DOWN_SECONDS)
        while_down = pings.count("flights")
        await asyncio.to_thread(pair.primary.start)
        await runner.confirm_until(len(sent))
        while await asyncio.to_thread(contents, pair.primary["contoso"], "flights"):
            runner.confirm()  # what comes again
            await asyncio.sleep(0.1)
        received = runner.counted()
    waits = [each for each in caplog.messages if "flights: receiving waits" in each]
    report_receiving("trigger", sent, received, pings=while_down, lines=len(waits))
    assert len(waits) == 1, waits
    assert while_down <= MOST_PINGS
    assert [each for each in caplog.messages if "entity=missing: cannot receive" in each]


async def test_without_confirmations_a_message_is_completed_after_a_delay(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(receive, "_UNCONFIRMED_SECONDS", 1.0)
    await asyncio.to_thread(send_texts, pair.primary["contoso"], "flights", "a")
    events = ServiceBusReceiveTrigger(**FLIGHTS).run()
    async with contextlib.aclosing(events):  # type: ignore[type-var]
        event = await anext(events)
        assert event.payload["messages"][0]["body"] == "a"
        waiting = asyncio.ensure_future(anext(events))
        await until_left(pair, "a")
        await until_left(pair, "")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


def test_triggers_that_want_the_same_share_a_stream_and_survive_serialization():
    trigger = ServiceBusReceiveTrigger(**FLIGHTS, max_messages=5)
    path, arguments = trigger.serialize()
    assert path == "servicebus_pair.triggers.receive.ServiceBusReceiveTrigger"
    twin = ServiceBusReceiveTrigger(**{**arguments, "entity": "Flights"})
    assert twin.shared_stream_key() == trigger.shared_stream_key()
    assert ServiceBusReceiveTrigger(**FLIGHTS).shared_stream_key() != trigger.shared_stream_key()


@pytest.mark.parametrize(
    ("name", "value"),
    [("entity", ""), ("max_messages", 0), ("linger", 61), ("dead_letter", "yes"), ("max_event_bytes", 1)],
)
def test_invalid_parameters_are_refused(name: str, value: Any):
    with pytest.raises(ConfigurationError, match=name):
        ServiceBusReceiveTrigger(**{**FLIGHTS, name: value})


def test_a_queue_of_the_messaging_provider_names_connection_and_entity():
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

    expected = ServiceBusReceiveTrigger(servicebus_pair_conn_id="a.b", entity="t/Subscriptions/s").serialize()
    by_scheme = MessageQueueTrigger(scheme="servicebus-pair", servicebus_pair_conn_id="a.b", entity="t/Subscriptions/s")
    assert by_scheme.serialize() == expected
    by_queue = MessageQueueTrigger(queue="servicebus-pair://a.b/t/Subscriptions/s")
    assert by_queue.serialize() == expected
    for wrong in ("servicebus-pair://a", "servicebus-pair:///flights", "servicebus-pair://a/b?c=d"):
        with pytest.raises(ConfigurationError, match="queue is"):
            ServiceBusPairQueueProvider().trigger_kwargs(wrong)


@pytest.mark.parametrize("secret", ["user:c4nary-c4nary@a", "a/SharedAccessKey=c4nary"])
def test_a_secret_in_a_queue_or_a_name_is_refused_because_airflow_stores_the_arguments_of_triggers(secret: str):
    for make in (
        lambda: ServiceBusPairQueueProvider().trigger_kwargs(f"servicebus-pair://{secret}/flights"),
        lambda: ServiceBusReceiveTrigger(servicebus_pair_conn_id=f"sb://{secret}", entity="flights"),
        lambda: ServiceBusReceiveTrigger(servicebus_pair_conn_id="a", entity=f"sb://{secret}"),
    ):
        with pytest.raises(ConfigurationError, match="which is not shown here: it belongs in the connection") as raised:
            make()
        assert "c4nary" not in str(raised.value)
