"""azure-servicebus for Python, any version from 7.4 on: what its synchronous client can do with queues and topics."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

sys.path.insert(0, os.environ["MATRIX_PROJECT"])

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from tests.conformance.clients.steps import CONNECTION, KEY, POLICY, redirect, step

try:
    from azure.servicebus import ServiceBusReceiveMode

    RECEIVE_AND_DELETE: Any = ServiceBusReceiveMode.RECEIVE_AND_DELETE
except (ImportError, AttributeError):
    RECEIVE_AND_DELETE = "receiveanddelete"

# uamqp resolves names by itself, and takes the port from the protocol.
UAMQP = "uamqp" in sys.argv
WAIT = 5


def connect() -> ServiceBusClient:
    if not UAMQP:
        return ServiceBusClient.from_connection_string(CONNECTION)
    text = f"Endpoint=sb://127.0.0.1/;SharedAccessKeyName={POLICY};SharedAccessKey={KEY}"
    return ServiceBusClient.from_connection_string(text)


def bodies(messages: Any) -> list[str]:
    return [str(message) for message in messages]


def queue_steps(client: ServiceBusClient) -> None:
    with client.get_queue_sender("q") as sender, client.get_queue_receiver("q", max_wait_time=WAIT) as receiver:
        with step("send and receive"):
            sender.send_messages(ServiceBusMessage("one", application_properties={"minutes": 90}, message_id="m1"))
            (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
            assert (str(message), message.message_id) == ("one", "m1")
            assert dict(message.application_properties) in ({"minutes": 90}, {b"minutes": 90})
            receiver.complete_message(message)
        with step("send a list and a batch"):
            sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
            batch = sender.create_message_batch()
            batch.add_message(ServiceBusMessage("c"))
            sender.send_messages(batch)
        with step("peek"):
            assert bodies(receiver.peek_messages(max_message_count=10)) == ["a", "b", "c"]
        with step("abandon and receive again"):
            (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
            receiver.abandon_message(message)
            (again,) = receiver.receive_messages(1, max_wait_time=WAIT)
            assert (str(again), again.delivery_count) == ("a", 1)
            receiver.complete_message(again)
        with step("defer and receive by number"):
            (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
            receiver.defer_message(message)
            (deferred,) = receiver.receive_deferred_messages([message.sequence_number])
            receiver.complete_message(deferred)
        with step("dead-letter"):
            (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
            receiver.dead_letter_message(message, reason="late", error_description="very")
            with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=WAIT) as dead:
                (buried,) = dead.receive_messages(1, max_wait_time=WAIT)
                assert buried.dead_letter_reason == "late"
                dead.complete_message(buried)
        with step("schedule and cancel"):
            later = datetime.now(UTC) + timedelta(hours=1)
            (number,) = sender.schedule_messages(ServiceBusMessage("later"), later)
            sender.cancel_scheduled_messages(number)
        with step("renew a lock"):
            sender.send_messages(ServiceBusMessage("long"))
            (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
            before = message.locked_until_utc
            receiver.renew_message_lock(message)
            assert message.locked_until_utc >= before
            receiver.complete_message(message)
        with step("a message of 200 KB"):
            sender.send_messages(ServiceBusMessage(b"x" * 200_000))
            (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
            assert len(b"".join(message.body)) == 200_000
            receiver.complete_message(message)


def other_steps(client: ServiceBusClient) -> None:
    with step("receive and delete"):
        with client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("once"))
        with client.get_queue_receiver("q", receive_mode=RECEIVE_AND_DELETE, max_wait_time=WAIT) as receiver:
            assert bodies(receiver.receive_messages(1, max_wait_time=WAIT)) == ["once"]
            assert bodies(receiver.peek_messages()) == []
    with step("sessions, their state and lock"):
        with client.get_queue_sender("sessions") as sender:
            sender.send_messages([ServiceBusMessage(each, session_id="s") for each in ("one", "two")])
        with client.get_queue_receiver("sessions", session_id="s", max_wait_time=WAIT) as receiver:
            receiver.session.set_state("half")
            assert receiver.session.get_state() in (b"half", "half")
            receiver.session.renew_lock()
            for expected in ("one", "two"):
                (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
                assert str(message) == expected
                receiver.complete_message(message)
    with step("topic and subscription"):
        with client.get_topic_sender("t") as sender:
            sender.send_messages(ServiceBusMessage("news"))
        with client.get_subscription_receiver("t", "s", max_wait_time=WAIT) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
            assert str(message) == "news"
            receiver.complete_message(message)
    with step("a missing queue raises"):
        raised = None
        try:
            with client.get_queue_sender("missing") as sender:
                sender.send_messages(ServiceBusMessage("lost"))
        except Exception as error:  # noqa: BLE001 - each version has its own
            raised = error
        assert raised is not None


redirect()
with step("connect"):
    opened = connect()
with opened as connected:
    queue_steps(connected)
    other_steps(connected)
