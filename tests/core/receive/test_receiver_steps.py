"""One receive, step by step, over a fake link on a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.errors import (
    AuthorizationError,
    LockLostError,
    ServerBusyError,
    ServiceError,
    UnreachableError,
)
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, Properties
from servicebus_pair.core.receive import receiver
from servicebus_pair.core.receive.receiver import NEXT_SESSION, PairReceiver, ReceiveContext
from servicebus_pair.core.sdk.session_link import SessionLink
from tests.core.support.manual_clock import ManualClock

DOWN = UnreachableError("down")


class Message:
    """A received message."""

    decode_error = locked_until = enqueued_time = None
    dead_letter_reason = dead_letter_error_description = dead_letter_source = None
    sequence_number = delivery_count = 0
    content_type = "text/plain"

    def __init__(self, name: str, **properties: Any) -> None:
        self.amqp = AmqpMessage([b""], properties=Properties(message_id=name), application_properties=properties)


class Receiving:
    """A receiver and its link; a client that creates it, and a prober.

    :ivar answers: of the next receives, with the seconds that they take; then nothing comes.
    :ivar probes: outcomes of the next pings.
    """

    def __init__(self, entity: str = "flights", *, interval: float = 30.0, **more: Any) -> None:
        self.clock = ManualClock()
        self.answers: list[tuple[float, list[Any] | ServiceError]] = []
        self.receives: list[tuple[int, float, float]] = []
        self.probed: list[tuple[str, float]] = []
        self.probes: list[ServiceError | None] = []
        self.accepted: list[str | ServiceError | None] = []
        self.accepts: list[tuple[str | None, float]] = []
        self.settled: list[tuple[str, int]] = []
        self.failure: ServiceError | None = None
        self.opened = self.closed = 0
        self.is_stopping: Callable[[], bool] = bool
        client: Any = SimpleNamespace(receive_link=self._link, session_link=self._session)
        prober: Any = SimpleNamespace(probe=self._probe)
        context = ReceiveContext(client=client, prober=prober, clock=self.clock, ping_interval=interval)
        self.receiver = PairReceiver(entity, context, **more)

    def _link(self, path: str, *, dead_letter: bool, should_stop: Callable[[], bool]) -> Any:
        assert (path, dead_letter) == ("flights", False)
        self.opened, self.is_stopping = self.opened + 1, should_stop
        return self

    def _session(self, path: str, *, session_id: str | None, wait: float, should_stop: Callable[[], bool]) -> Any:
        del path
        self.accepts.append((session_id, wait))
        self.is_stopping = should_stop
        return self

    async def accept(self, *, timeout: float) -> str | None:
        assert timeout == 10.0
        found = self.accepted.pop(0) if self.accepted else "s"
        if isinstance(found, ServiceError):
            raise found
        return found

    async def close(self) -> None:
        self.closed += 1

    async def receive(self, *, max_messages: int, max_wait_time: float, timeout: float) -> list[Any]:
        self.receives.append((max_messages, max_wait_time, timeout))
        seconds, answer = self.answers.pop(0) if self.answers else (max_wait_time, [])
        self.clock.time += seconds
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    async def _probe(self, entity: str, *, timeout: float) -> ServiceError | None:
        self.probed.append((entity, timeout))
        return self.probes.pop(0) if self.probes else None

    async def _settle(self, kind: str, messages: Sequence[Any], timeout: float) -> list[ServiceError | None]:
        assert (self.is_stopping(), timeout) == (True, 10.0)
        self.settled.append((kind, len(messages)))
        return [self.failure] * len(messages)

    async def complete(self, messages: Sequence[Any], *, timeout: float) -> list[ServiceError | None]:
        return await self._settle("complete", messages, timeout)

    async def abandon(self, messages: Sequence[Any], *, timeout: float) -> list[ServiceError | None]:
        return await self._settle("abandon", messages, timeout)

    async def renew_locks(self, messages: Sequence[Any], *, timeout: float) -> list[ServiceError | None]:
        return await self._settle("renew", messages, timeout)

    async def dead_letter(self, message: Any, *, reason: str, description: str, timeout: float) -> ServiceError | None:
        return (await self._settle(f"{reason}: {description}", [message], timeout))[0]

    async def release(self, messages: Sequence[Any], *, timeout: float) -> None:
        await self._settle("release", messages, timeout)
        if self.failure is not None:
            raise self.failure

    async def take(self, **more: Any) -> list[str]:
        return [message.fields["message_id"] for message in await self.receiver.receive(**more)]


def some(*names: str) -> list[Any]:
    return [Message(name) for name in names]


async def test_a_receive_asks_for_what_is_missing_in_waits_of_a_minute() -> None:
    receiving = Receiving()
    receiving.answers = [(60.0, []), (5.0, some("a")), (0.0, some("b", "c"))]
    assert await receiving.take(max_messages=3, max_wait=100, linger=7) == ["a", "b", "c"]
    assert receiving.receives == [(3, 60.0, 10.0), (3, 40.0, 10.0), (2, 7.0, 10.0)]
    assert (receiving.opened, receiving.closed) == (1, 0)
    assert (await receiving.take(max_messages=900, max_wait=0.5), receiving.receives[-1]) == ([], (500, 0.5, 10.0))


async def test_it_waits_for_the_first_message_only_unless_told_to_linger() -> None:
    receiving = Receiving()
    receiving.answers = [(1.0, some("a"))]
    assert await receiving.take(max_messages=5) == ["a"]
    assert len(receiving.receives) == 1
    assert await receiving.take(max_wait=0) == []
    assert len(receiving.receives) == 1
    receiving.answers = [(0.0, some("b", "c"))]
    assert await receiving.take() == ["b", "c"], "what came is not dropped, even if it is more"


@pytest.mark.parametrize(("seconds", "pauses"), [(0.0, [0.05]), (0.04, [0.05]), (0.06, []), (3.0, [])])
async def test_a_receive_that_ends_at_once_with_nothing_is_followed_by_a_pause(
    seconds: float, pauses: list[float]
) -> None:
    receiving = Receiving()
    receiving.answers = [(seconds, []), (0.0, some("a"))]
    assert await receiving.take() == ["a"]
    assert receiving.clock.sleeps == pauses


async def test_pings_are_completed_and_never_returned_and_what_does_not_match_is_set_aside() -> None:
    receiving, ping = Receiving(), Message("ping")
    ping.content_type = "application/vnd.ms-servicebus-ping"
    late, early, other = Message("late", c="UA", n=1), Message("early", c="UA"), Message("other", c="AA", n=1)
    receiving.answers = [(0.0, [ping, early, other]), (0.0, [late])]
    assert await receiving.take(max_wait=5, properties={"c": "UA", "n": 1}) == ["late"]
    assert receiving.settled == [("complete", 1)]
    assert set(receiving.receiver._aside) == {early, other}
    assert receiving.receiver._locks.held() == [early, other, late]
    await receiving.receiver.__aexit__()
    assert receiving.settled[-1] == ("release", 3)
    assert (receiving.receiver._locks.held(), receiving.receiver._aside, receiving.closed) == ([], set(), 1)


async def test_while_the_primary_is_down_it_pings_at_growing_intervals_that_do_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiving = Receiving("delays/Subscriptions/late")
    receiving.receiver._link = receiving  # type: ignore[assignment]
    receiving.answers = [(3.0, DOWN), (0.0, ServerBusyError("busy")), (2.0, some("a"))]
    receiving.probes = [*[DOWN] * 6, AuthorizationError("no right"), None]
    opening = receiving.receiver._context.client
    opening.receive_link = lambda *_, **__: receiving  # type: ignore[method-assign, assignment]
    assert await receiving.take(max_wait=10) == ["a"]
    # The second outage, which began before anything was received, goes on where the first one ended.
    assert receiving.clock.sleeps == [1, 2, 4, 8, 16, 30, 30, 30]
    assert receiving.probed == [("delays", 10.0)] * 8
    assert [wait for _, wait, _ in receiving.receives] == [10, 7, 7]
    assert receiving.closed == 2
    assert [each.getMessage() for each in caplog.records] == [
        "entity=delays/Subscriptions/late: receiving waits until the primary answers a ping: down",
        "entity=delays/Subscriptions/late: the primary answers again after 123 s: receiving goes on",
    ]
    receiving.answers = [(0.0, DOWN), (0.0, some("b"))]
    assert await receiving.take() == ["b"]
    assert (receiving.clock.sleeps[8:], caplog.messages[3:]) == (
        [1],
        ["entity=delays/Subscriptions/late: the primary answers again after 1 s: receiving goes on"],
    )


async def test_a_failure_after_some_messages_is_met_by_the_next_call_and_one_that_does_not_pass_is_raised() -> None:
    receiving = Receiving()
    receiving.answers = [(1.0, some("a")), (1.0, DOWN), (0.0, DOWN), (0.0, AuthorizationError("no"))]
    assert await receiving.take(max_messages=2, linger=30) == ["a"]
    with pytest.raises(UnreachableError):
        await receiving.take(wait_for_primary=False)
    with pytest.raises(AuthorizationError):
        await receiving.take()
    assert receiving.probed == []


async def test_settling_counts_what_was_not_confirmed() -> None:
    receiving = Receiving()
    receiving.answers = [(0.0, some("a", "b", "c"))]
    taken = await receiving.receiver.receive(max_messages=3)
    assert await receiving.receiver.complete([]) == 0
    assert await receiving.receiver.complete(taken[:1]) == 0
    receiving.failure = LockLostError("lost")
    assert await receiving.receiver.abandon(taken[1:]) == 2
    assert await receiving.receiver.dead_letter(taken[:2], reason="Odd", description="it is") == 2
    assert receiving.settled == [("complete", 1), ("abandon", 2), ("Odd: it is", 1), ("Odd: it is", 1)]
    assert (receiving.receiver._locks.held(), receiving.is_stopping()) == ([], False)
    await receiving.receiver.release(taken)  # its failure is no error: they come again
    receiving.receiver._link = None
    assert await receiving.receiver.complete(taken) == 3
    assert await receiving.receiver.dead_letter(taken, reason="Odd", description="it is") == 3
    await receiving.receiver.release(taken)
    assert len(receiving.settled) == 5


async def test_of_several_sessions_an_empty_one_is_given_back_unless_messages_of_it_are_held() -> None:
    receiving = Receiving(session_id=NEXT_SESSION)
    receiving.accepted = [None, "s1", "s2"]
    receiving.answers = [(1.0, []), (0.2, some("a")), (1.0, [])]
    taken = await receiving.receiver.receive(max_wait=50)
    assert receiving.accepts == [(None, 30.0)] * 3
    assert [wait for _, wait, _ in receiving.receives] == [1.0, 1.0]
    assert (receiving.closed, receiving.clock.sleeps) == (2, [0.05])
    assert await receiving.take(max_wait=1) == []
    assert receiving.closed == 2, "a message of the session is held"
    assert await receiving.receiver.complete(taken) == 0
    assert await receiving.take(max_wait=0.5) == []
    assert receiving.closed == 3


async def test_one_session_is_accepted_by_its_id_and_waited_on_as_a_whole() -> None:
    receiving = Receiving(session_id="UA")
    receiving.accepted = [DOWN]
    with pytest.raises(UnreachableError):
        await receiving.take(wait_for_primary=False)
    assert receiving.closed == 1
    assert await receiving.take(max_wait=20) == []
    assert receiving.accepts == [("UA", 30.0), ("UA", 20.0)]
    assert receiving.receives == [(1, 20.0, 10.0)]


async def test_a_lost_session_is_accepted_again_and_its_messages_are_no_longer_held() -> None:
    receiving = Receiving(session_id="UA")
    receiving.answers = [(0.0, some("a")), (0.0, LockLostError("lost")), (0.0, some("a"))]
    assert await receiving.take() == ["a"]
    assert await receiving.take() == ["a"]
    assert (receiving.closed, len(receiving.accepts), len(receiving.receiver._locks)) == (1, 2, 1)


async def test_locks_are_renewed_over_the_link_one_by_one_or_for_the_session() -> None:
    receiving = Receiving()
    messages = some("a", "b")
    assert await receiving.receiver._renew(messages) == [None, None]
    receiving.answers = [(0.0, messages)]
    await receiving.take(max_messages=2)
    assert await receiving.receiver._renew(messages) == [None, None]
    assert receiving.settled == [("renew", 2)]

    class Session(SessionLink):
        def __init__(self) -> None:
            self.failure: ServiceError | None = None

        async def renew(self, *, timeout: float) -> None:
            assert timeout == 10.0
            if self.failure is not None:
                raise self.failure

    session = receiving.receiver._link = Session()
    assert await receiving.receiver._renew(messages) == [None, None]
    session.failure = LockLostError("lost")
    assert await receiving.receiver._renew(messages) == [session.failure] * 2


async def _cancel_a_take(receiving: Receiving, receive: Any) -> None:
    receiving.receive = receive  # type: ignore[method-assign]
    task = asyncio.create_task(receiving.take(max_wait=inf))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_cancelled_receive_is_stopped_first_and_what_it_brings_is_held(arrives: bool) -> None:
    receiving, stopped = Receiving(), asyncio.Event()

    async def receive(**_: Any) -> list[Any]:
        while not receiving.is_stopping():  # noqa: ASYNC110 - as a link does
            await asyncio.sleep(0)
        if not arrives:
            stopped.set()
            raise DOWN
        return some("a")

    await _cancel_a_take(receiving, receive)
    assert (len(receiving.receiver._locks), stopped.is_set(), receiving.is_stopping()) == (arrives, not arrives, False)


async def test_a_cancelled_receive_that_does_not_stop_is_cancelled_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiving, outcome = Receiving(), asyncio.Event()
    monkeypatch.setattr(receiver, "_STOP_TIMEOUT", 0.01)

    async def receive(**_: Any) -> list[Any]:
        try:
            await asyncio.Event().wait()
            return []
        finally:
            outcome.set()

    await _cancel_a_take(receiving, receive)
    async with asyncio.timeout(5):
        await outcome.wait()
    assert len(receiving.receiver._locks) == 0
