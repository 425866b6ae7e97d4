"""A process takes the options of the command line from Python and is controlled over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import MessageLockLostError

from servicebus_emulator import EmulatorProcess, Fault, FaultKind, Operation
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.rule_descriptions import RuleDescription, SqlFilter
from servicebus_emulator.testing.remote_namespace import RefusedError
from tests.emulator.support.sdk_client import bodies

pytestmark = pytest.mark.usefixtures("leaks_collected")


@pytest.fixture(scope="module")
def contoso() -> Iterator[EmulatorProcess]:
    with EmulatorProcess(["contoso"], allow_time_shift=True) as process:
        yield process


def send(sender: ServiceBusSender, text: str) -> None:
    sender.send_messages(ServiceBusMessage(text), timeout=3)


def test_entities_are_created_with_fields_and_deleted(contoso: EmulatorProcess):
    served = contoso["contoso"]
    assert served.create_queue("in/box", lock_duration=timedelta(seconds=30), requires_session=True) == "in/box"
    served.create_topic("news")
    served.create_subscription("news", "all", max_delivery_count=3)
    late = RuleDescription("late", filter=SqlFilter(expression="minutes > 60"))
    served.create_subscription("news", "late only", rules=(late,))
    assert served.health()["subscriptions"] == 2
    with ServiceBusClient.from_connection_string(served.connection_string) as client:
        with client.get_topic_sender("news") as sender:
            send(sender, "x")
        with client.get_subscription_receiver("news", "all", max_wait_time=5) as receiver:
            assert bodies(receiver.receive_messages(1)) == ["x"]
        with client.get_subscription_receiver("news", "late only", max_wait_time=1) as receiver:
            assert receiver.receive_messages(1) == []
        with client.get_queue_receiver("in/box", session_id="a") as receiver:
            until = receiver.session.locked_until_utc
            assert until is not None
            assert until - datetime.now(tz=UTC) < timedelta(seconds=31)
    for path in ("news", "in/box"):
        served.delete(path)
    assert (served.health()["queues"], served.health()["topics"]) == (0, 0)


def test_an_invalid_entity_is_refused_with_the_reason(contoso: EmulatorProcess):
    served = contoso["contoso"]
    with pytest.raises(RefusedError, match=r"status 404: SubCode=40400. Not Found. the messaging entity") as refused:
        served.create_subscription("nowhere", "s")
    assert refused.value.status == 404
    with pytest.raises(DescriptionError, match="lock_duration"):
        served.create_queue("q", lock_duration=timedelta(hours=1))


def test_time_is_shifted(contoso: EmulatorProcess):
    served = contoso["contoso"]
    served.create_queue("locks")
    with ServiceBusClient.from_connection_string(served.connection_string) as client:
        with client.get_queue_sender("locks") as sender:
            send(sender, "x")
        with client.get_queue_receiver("locks", max_wait_time=5) as receiver:
            (message,) = receiver.receive_messages(1)
            served.shift_time(timedelta(minutes=2))
            with pytest.raises(MessageLockLostError):
                receiver.complete_message(message)
    with pytest.raises(RefusedError, match="forward only"):
        served.shift_time(timedelta(seconds=-1))


def test_initial_faults_are_set_at_each_start_and_ports_are_kept(tmp_path: Path):
    busy = Fault(kind=FaultKind.SERVER_BUSY, entity="a,b=c", count=3, on=(Operation.SEND, Operation.MANAGE))
    options = ["--fault", "latency,delay=0.01"]
    process = EmulatorProcess(
        ["contoso"], data=tmp_path, faults=[busy], fault_seed=7, log_format="json", options=options
    )
    with process:
        first = process["contoso"]
        assert [(each.get("entity"), each["on"], each.get("count")) for each in first.faults] == [
            ("a,b=c", ["send", "manage"], 3),
            (None, ["anything"], None),
        ]
        first.create_queue("flights")
        process.kill()
        with pytest.raises(RuntimeError, match="does not run"):
            _ = process.pid
        with pytest.raises(OSError, match="refused"):
            first.health()
        process.start()
        assert process["contoso"] == first
        assert (len(first.faults), first.health()["queues"]) == (2, 1)
        with pytest.raises(RefusedError, match="allow-time-shift"):
            first.shift_time(timedelta(seconds=1))


def test_ports_can_be_chosen(contoso: EmulatorProcess):
    with EmulatorProcess(["contoso"]) as other:
        chosen = other["contoso"]
    with EmulatorProcess(["contoso"], amqp_port=chosen.amqp_port, admin_port=chosen.admin_port) as process:
        served = process["contoso"]
        assert (served.amqp_port, served.admin_port) == (chosen.amqp_port, chosen.admin_port)
    assert contoso["contoso"].health()["status"] == "ok"


def test_a_frozen_process_can_be_resumed_and_stopped():
    process = EmulatorProcess(["contoso"])
    with process:
        served = process["contoso"]
        served.create_queue("flights")
        process.freeze()
        process.thaw()
        assert served.health()["queues"] == 1
        process.freeze()
    with pytest.raises(OSError, match="refused"):
        served.health()
