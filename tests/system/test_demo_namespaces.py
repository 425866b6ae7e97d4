from __future__ import annotations

from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.system.demo.namespaces import PRIMARY, SECONDARY, Namespace
from tests.system.demo.peek import peek_everything, queue_names
from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes


def send(namespace: Namespace, entity: str, *, count: int) -> None:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        sender = client.get_queue_sender(entity) if entity == "flights" else client.get_topic_sender(entity)
        with sender:
            sender.send_messages([ServiceBusMessage(b"x", message_id=f"{entity}-{n}") for n in range(count)])


def test_accepted_messages_survive_a_kill_of_the_namespace(processes: Processes, tmp_path: Path):
    primary = Namespace.on_free_ports(PRIMARY, home=tmp_path, ports=PortReservation())
    primary.start(processes)
    send(primary, "flights", count=300)
    send(primary, "delays", count=20)
    processes.kill(primary.process)
    primary.start(processes)
    found = {item.key for item in peek_everything(primary.connection_string, ["flights", "delays/Subscriptions/all"])}
    sent = {("flights", f"flights-{n}") for n in range(300)} | {("delays", f"delays-{n}") for n in range(20)}
    assert found == sent


def test_secondary_starts_without_queues(processes: Processes, tmp_path: Path):
    secondary = Namespace.on_free_ports(SECONDARY, home=tmp_path, ports=PortReservation())
    secondary.start(processes)
    assert queue_names(secondary.administration) == []


def test_two_demos_reserve_different_ports():
    one, other = PortReservation(), PortReservation()
    chosen = [one.next_free(25672), other.next_free(25672), one.next_free(25672)]
    assert len(set(chosen)) == 3
