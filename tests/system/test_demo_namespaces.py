"""A namespace of the demo keeps its messages through a kill, on the same ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.system.demo.namespaces import PRIMARY, SECONDARY, Namespace
from tests.system.demo.peek import peek_everything, queue_names
from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Processes of a demo in a scratch folder, stopped at the end whatever happens."""
    started = Processes(record=tmp_path / "processes.json", logs=tmp_path)
    yield started
    started.stop()


def send(namespace: Namespace, entity: str, *, count: int) -> None:
    """Send messages to a queue or topic with the Azure SDK."""
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        sender = client.get_queue_sender(entity) if entity == "flights" else client.get_topic_sender(entity)
        with sender:
            sender.send_messages([ServiceBusMessage(b"x", message_id=f"{entity}-{n}") for n in range(count)])


def test_accepted_messages_are_there_after_a_kill(processes: Processes, tmp_path: Path):
    primary = Namespace.on_free_ports(PRIMARY, home=tmp_path, ports=PortReservation())
    primary.start(processes)
    send(primary, "flights", count=300)
    send(primary, "delays", count=20)
    processes.kill(primary.process)
    primary.start(processes)
    found = {item.key for item in peek_everything(primary.connection_string, ["flights", "delays/Subscriptions/all"])}
    sent = {("flights", f"flights-{n}") for n in range(300)} | {("delays", f"delays-{n}") for n in range(20)}
    assert found == sent


def test_the_secondary_begins_without_a_queue(processes: Processes, tmp_path: Path):
    secondary = Namespace.on_free_ports(SECONDARY, home=tmp_path, ports=PortReservation())
    secondary.start(processes)
    assert queue_names(secondary.administration) == []


def test_two_demos_never_choose_the_same_ports():
    one, other = PortReservation(), PortReservation()
    chosen = [one.next_free(25672), other.next_free(25672), one.next_free(25672)]
    assert len(set(chosen)) == 3
