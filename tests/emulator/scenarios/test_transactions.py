"""Transactions over AMQP (part 4), by python-qpid-proton's own support for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio
from proton import Delivery, Endpoint, Message, symbol
from proton.reactor import LinkOption

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.engine import queue_of, token_of
from tests.emulator.support.transactions import TransactionalClient

TRANSACTIONAL = 0x34


@dataclass
class Pair:
    """Two queues: "a" and "b", by their unique paths, and what they hold."""

    hosted: HostedNamespace
    a: str
    b: str
    loop: asyncio.AbstractEventLoop

    def counts(self) -> tuple[int, int]:
        return self.hosted.namespace.counts(self.a).active, self.hosted.namespace.counts(self.b).active

    def release_all(self) -> None:
        """Unlock the messages of "a", as if their locks had expired."""

        async def release() -> None:
            queue = queue_of(self.hosted.namespace, self.a).main
            for message in queue.peek(0, limit=10):
                queue.release(token_of(message))

        asyncio.run_coroutine_threadsafe(release(), self.loop).result(5)

    def fill(self, client: TransactionalClient, *bodies: str) -> None:
        sender = client.sender(self.a)
        for body in bodies:
            sender.send(Message(body=body))


class Via(LinkOption):
    """A sender whose target transfers the messages elsewhere."""

    def __init__(self, destination: str) -> None:
        self.destination = destination

    def apply(self, link: object) -> None:
        link.properties = {symbol("com.microsoft:transfer-destination-address"): self.destination}


def commits(client: TransactionalClient, pair: Pair) -> None:
    pair.fill(client, "one", "two")
    _, (first, second) = client.receive(pair.a, count=2)
    sender, transaction = client.sender(pair.b), client.declare()
    assert client.accept(transaction, first) == TRANSACTIONAL
    assert client.accept(transaction, second) == TRANSACTIONAL
    assert client.send(transaction, sender.link, "three") == TRANSACTIONAL
    assert pair.counts() == (2, 0)
    assert client.discharge(transaction) == ("committed", None)
    assert pair.counts() == (0, 1)


def settles_before_the_discharge(client: TransactionalClient, pair: Pair) -> None:
    pair.fill(client, "one")
    _, (delivery,) = client.receive(pair.a)
    transaction = client.declare(settle_before_discharge=True)
    transaction.accept(delivery)
    assert client.discharge(transaction) == ("committed", None)
    assert pair.counts() == (0, 0)


def aborts(client: TransactionalClient, pair: Pair) -> None:
    pair.fill(client, "one")
    receiver, (delivery,) = client.receive(pair.a)
    sender, transaction = client.sender(pair.b), client.declare()
    client.accept(transaction, delivery)
    client.send(transaction, sender.link, "two")
    assert client.discharge(transaction, failed=True) == ("aborted", None)
    # Proton releases what it had accepted, and gets it again.
    receiver.flow(1)
    receiver.fetcher.incoming.clear()
    client.connection.wait(lambda: len(receiver.fetcher.incoming) == 1)
    assert receiver.fetcher.incoming[0][0].delivery_count == 0
    assert pair.counts() == (1, 0)


def rejects_and_abandons(client: TransactionalClient, pair: Pair) -> None:
    pair.fill(client, "one", "two")
    _, (first, second) = client.receive(pair.a, count=2)
    transaction = client.declare()
    transaction.update(first, Delivery.REJECTED)
    transaction.update(second, Delivery.MODIFIED)
    client.connection.wait(lambda: int(first.remote_state) == int(second.remote_state) == TRANSACTIONAL)
    assert client.discharge(transaction) == ("committed", None)
    counts = pair.hosted.namespace.counts(pair.a)
    assert (counts.active, counts.dead_lettered) == (1, 1)


def fails_when_a_message_is_settled_elsewhere(client: TransactionalClient, pair: Pair) -> None:
    pair.fill(client, "one")
    _, (delivery,) = client.receive(pair.a)
    sender, transaction = client.sender(pair.b), client.declare()
    client.accept(transaction, delivery)
    client.send(transaction, sender.link, "two")
    pair.release_all()
    assert client.discharge(transaction) == ("failed", "amqp:transaction:rollback")
    assert pair.counts() == (1, 0)


def ends_once(client: TransactionalClient, pair: Pair) -> None:
    sender, transaction = client.sender(pair.a), client.declare()
    assert client.discharge(transaction) == ("committed", None)
    assert client.send(transaction, sender.link, "late") == Delivery.REJECTED
    assert client.refusal == "amqp:transaction:unknown-id"
    client._recorder.outcome = None
    assert client.discharge(transaction) == ("failed", "amqp:transaction:unknown-id")
    assert pair.counts() == (0, 0)


def spans_one_entity(client: TransactionalClient, pair: Pair) -> None:
    pair.fill(client, "one")
    client.sender(pair.b).send(Message(body="two"))
    (_, (first,)), (_, (second,)) = client.receive(pair.a), client.receive(pair.b)
    transaction = client.declare()
    assert client.accept(transaction, first) == TRANSACTIONAL
    assert client.accept(transaction, second) == Delivery.REJECTED
    assert second.remote.condition.name == "amqp:not-allowed"
    assert client.discharge(transaction) == ("committed", None)
    assert pair.counts() == (0, 1)


def sends_via(client: TransactionalClient, pair: Pair) -> None:
    plain = client.connection.create_sender(pair.a, name="plain", options=Via(pair.b))
    plain.send(Message(body="one"))
    assert pair.counts() == (0, 1)
    transaction = client.declare()
    assert client.send(transaction, plain.link, "two") == TRANSACTIONAL
    assert pair.counts() == (0, 1)
    assert client.discharge(transaction) == ("committed", None)
    assert pair.counts() == (0, 2)


CASES = [
    commits,
    settles_before_the_discharge,
    aborts,
    rejects_and_abandons,
    fails_when_a_message_is_settled_elsewhere,
    ends_once,
    spans_one_entity,
    sends_via,
]


@pytest_asyncio.fixture(loop_scope="session")
async def pair(contoso: HostedNamespace, queue: str) -> Pair:
    other = contoso.namespace.create_queue(QueueDescription(f"{queue}-b")).path
    return Pair(contoso, queue, other, asyncio.get_running_loop())


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("case", CASES)
async def test_a_transaction(pair: Pair, case: Callable[[TransactionalClient, Pair], None]):
    def run() -> None:
        with TransactionalClient.connected(pair.hosted) as client:
            case(client, pair)

    await asyncio.to_thread(run)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("coordinator_only", [True, False])
async def test_what_is_not_discharged_is_rolled_back(pair: Pair, coordinator_only: bool):
    def run() -> None:
        with TransactionalClient.connected(pair.hosted) as client:
            pair.fill(client, "one")
            _, (delivery,) = client.receive(pair.a)
            sender, transaction = client.sender(pair.b), client.declare()
            client.accept(transaction, delivery)
            client.send(transaction, sender.link, "two")
            if coordinator_only:
                transaction.txn_ctrl.close()
                client.connection.wait(lambda: transaction.txn_ctrl.state & Endpoint.REMOTE_CLOSED)
                client.send(transaction, sender.link, "three")
                assert client.refusal == "amqp:transaction:unknown-id"
                # The message is still this client's to settle.
                delivery.update(Delivery.ACCEPTED)
                client.connection.wait(lambda: delivery.settled)

    await asyncio.to_thread(run)
    assert pair.counts() == (0 if coordinator_only else 1, 0)
