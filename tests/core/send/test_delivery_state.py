"""Each message of a send is in exactly one state, kept by its identity (SPEC section 4)."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import RejectedError
from servicebus_pair.core.model.events import Route
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.send.delivery_state import DeliveryState, MessageStatus, TrackedMessage

MESSAGES = [to_amqp_message(ServiceBusMessage("x", message_id=f"m{n}")) for n in range(4)]


def taken(state: DeliveryState, count: int = 4) -> list[TrackedMessage]:
    return [state.take(message) for message in MESSAGES[:count]]


def ids(*numbers: int) -> list[str]:
    return [f"m{number}" for number in numbers]


def test_section_4_accepted_messages_are_neither_unsent_nor_in_doubt() -> None:
    state = DeliveryState()
    m0, m1, m2, m3 = taken(state)
    assert (state.unsent, len(state.in_doubt), state.result()) == (tuple(MESSAGES), 0, SendResult())
    state.start_attempt([m0, m2, m3])
    assert list(state.in_doubt) == [MESSAGES[0], MESSAGES[2], MESSAGES[3]]
    state.accept([m0, m2], route=Route.PRIMARY, queue=None, ids=ids(0, 2))
    state.end_attempt([m3], may_be_stored=False)
    assert (list(state.unsent), len(state.in_doubt)) == ([MESSAGES[1], MESSAGES[3]], 0)
    state.accept([m1], route=Route.BACKLOG, queue="q1", ids=ids(1))
    state.accept([m3], route=Route.BACKLOG, queue="q0", ids=ids(3))
    assert not state.unsent
    assert not state.in_doubt
    assert state.result() == SendResult(
        primary=2,
        diverted=2,
        backlog_queues=("q1", "q0"),
        message_ids=("m0", "m2", "m1", "m3"),
        primary_ids=("m0", "m2"),
        diverted_ids=("m1", "m3"),
    )


def test_section_4_a_doubt_stays_until_the_message_is_accepted_perhaps_twice() -> None:
    state = DeliveryState()
    m0, m1, *_ = taken(state)
    state.start_attempt([m0])
    state.end_attempt([m0], may_be_stored=True)
    state.start_attempt([m0, m1])
    state.end_attempt([m0, m1], may_be_stored=False)
    assert list(state.in_doubt) == MESSAGES[:1]
    state.accept([m0, m1], route=Route.PRIMARY, queue=None, ids=ids(0, 1))
    assert state.result().duplicates_possible_ids == ("m0",)
    assert list(state.in_doubt) == []


def test_section_4_an_attempt_that_was_skipped_leaves_no_doubt() -> None:
    state = DeliveryState()
    [message] = taken(state, 1)
    state.end_attempt([message], may_be_stored=True)
    assert (message.status, state.in_doubt) == (MessageStatus.QUEUED, ())


def test_section_4_a_refused_message_is_unsent_with_its_verdict() -> None:
    state = DeliveryState()
    m0, m1, m2, m3 = taken(state)
    verdict = RejectedError("cannot be digested")
    state.refuse(m2, verdict)
    state.accept([m0, m1, m3], route=Route.PRIMARY, queue=None, ids=ids(0, 1, 3))
    assert [(each.message, each.verdict) for each in state.refused] == [(MESSAGES[2], verdict)]
    assert (len(state.unsent), len(state.in_doubt)) == (1, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["start", "lost", "rejected", "accept", "refuse"]))))
def test_section_4_every_message_is_accepted_or_unsent_and_never_both(steps: list[tuple[int, str]]) -> None:
    state = DeliveryState()
    # One object sent several times counts as several messages.
    tracked = [state.take(MESSAGES[0]) for _ in range(4)]
    doubted: set[int] = set()
    for number, step in steps:
        each = tracked[number]
        if each.status in (MessageStatus.ACCEPTED, MessageStatus.REFUSED):
            continue
        match step:
            case "start":
                state.start_attempt([each])
            case "lost" | "rejected":
                if step == "lost" and each.status is MessageStatus.IN_FLIGHT:
                    doubted.add(number)
                state.end_attempt([each], may_be_stored=step == "lost")
            case "accept":
                state.accept([each], route=Route.PRIMARY, queue=None, ids=ids(number))
            case _:
                state.refuse(each, RejectedError("x"))
    accepted = [each for each in tracked if each.status is MessageStatus.ACCEPTED]
    assert state.result().sent + len(state.unsent) == len(tracked)
    assert state.result().sent == len(accepted)
    assert set(state.result().duplicates_possible_ids) == {
        f"m{number}" for number in doubted if tracked[number].status is MessageStatus.ACCEPTED
    }
    in_flight = {n for n, each in enumerate(tracked) if each.status is MessageStatus.IN_FLIGHT}
    left = {n for n, each in enumerate(tracked) if each.status is not MessageStatus.ACCEPTED}
    assert len(state.in_doubt) == len((doubted & left) | in_flight)
