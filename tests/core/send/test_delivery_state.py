"""Each message of a send is accepted, in doubt or unsent, by its own number (SPEC section 4)."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.model.events import MessageRef, Route
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.send.delivery_state import DeliveryState

MESSAGES: list[AmqpAnnotatedMessage] = [ServiceBusMessage("x", message_id=f"m{n}").raw_amqp_message for n in range(4)]


def refs(*numbers: int) -> list[MessageRef]:
    return [MessageRef(f"m{number}", 10) for number in numbers]


def test_section_4_accepted_messages_are_neither_pending_nor_in_doubt() -> None:
    state = DeliveryState()
    state.start_batch(MESSAGES)
    assert (list(state.pending), state.in_doubt, state.result()) == ([0, 1, 2, 3], (), SendResult())
    state.mark_in_doubt([0, 2, 3])
    state.mark_accepted([0, 2], route=Route.PRIMARY, queue=None, refs=refs(0, 2))
    assert (state.pending, state.in_doubt) == ({1: MESSAGES[1], 3: MESSAGES[3]}, (MESSAGES[3],))
    state.mark_accepted([1], route=Route.BACKLOG, queue="q1", refs=refs(1))
    state.mark_accepted([3], route=Route.BACKLOG, queue="q0", refs=refs(3))
    assert (state.pending, state.in_doubt) == ({}, ())
    assert state.result() == SendResult(
        primary=2,
        diverted=2,
        backlog_queues=("q1", "q0"),
        message_ids=("m0", "m2", "m1", "m3"),
        primary_ids=("m0", "m2"),
        diverted_ids=("m1", "m3"),
    )


def test_section_4_a_refused_attempt_leaves_only_earlier_doubts() -> None:
    state = DeliveryState()
    state.start_batch(MESSAGES)
    state.mark_in_doubt([3, 1])
    before = state.in_doubt_numbers
    state.mark_in_doubt([0])
    assert state.in_doubt == (MESSAGES[0], MESSAGES[1], MESSAGES[3])
    state.restore_in_doubt(before)
    assert (before, state.in_doubt) == ({1, 3}, (MESSAGES[1], MESSAGES[3]))
    state.start_batch(MESSAGES[:1])
    assert (list(state.pending), state.in_doubt) == ([0], ())


def test_section_4_what_is_pending_cannot_be_changed_from_outside() -> None:
    state = DeliveryState()
    state.start_batch(MESSAGES)
    state.pending.clear()
    assert len(state.pending) == 4
