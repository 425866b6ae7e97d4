"""A client with transactions: python-qpid-proton's own, which declares, sends, settles and discharges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from proton import Delivery, Message
from proton.handlers import TransactionHandler
from proton.reactor import Transaction
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from servicebus_emulator import HostedNamespace

_SECONDS = 8


class _Recorder(TransactionHandler):
    def __init__(self) -> None:
        super().__init__()
        self.transaction: Transaction | None = None
        self.outcome: str | None = None
        self.condition: str | None = None

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction

    def on_transaction_committed(self, event: object) -> None:  # noqa: ARG002
        self.outcome = "committed"

    def on_transaction_aborted(self, event: object) -> None:  # noqa: ARG002
        self.outcome = "aborted"

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.outcome, self.condition = "failed", event.delivery.remote.condition.name

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.outcome, self.condition = "refused", event.delivery.remote.condition.name


class TransactionalClient:
    """One connection with a sender and a receiver of each queue, and one transaction at a time."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection
        self._recorder = _Recorder()

    @classmethod
    @contextmanager
    def connected(cls, hosted: HostedNamespace) -> Iterator[TransactionalClient]:
        connection = BlockingConnection(
            f"127.0.0.1:{hosted.amqp_port}",
            timeout=_SECONDS,
            user="RootManageSharedAccessKey",
            password="SAS_KEY_VALUE",
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        )
        try:
            yield cls(connection)
        finally:
            connection.close()

    def declare(self, *, settle_before_discharge: bool = False) -> Transaction:
        self._recorder = recorder = _Recorder()
        connection: Any = self.connection.conn
        self.connection.container.declare_transaction(
            connection, handler=recorder, settle_before_discharge=settle_before_discharge
        )
        self.connection.wait(lambda: recorder.transaction is not None or recorder.outcome is not None)
        assert recorder.transaction is not None, recorder.condition
        return recorder.transaction

    def sender(self, path: str) -> BlockingSender:
        return self.connection.create_sender(path)

    def receive(self, path: str, *, count: int = 1) -> tuple[BlockingReceiver, list[Delivery]]:
        """Receive messages without settling them."""
        receiver = self.connection.create_receiver(path, credit=count)
        fetcher: Any = receiver.fetcher
        self.connection.wait(lambda: len(fetcher.incoming) == count)
        return receiver, [delivery for _, delivery in fetcher.incoming]

    def send(self, transaction: Transaction, link: Any, body: str) -> int:
        """Send a message and return the state in which the service leaves it."""
        delivery = transaction.send(link, Message(body=body))
        self.connection.wait(lambda: delivery.settled)
        state = int(delivery.remote_state)
        self.refusal = None if delivery.remote.condition is None else delivery.remote.condition.name
        delivery.settle()
        return state

    def accept(self, transaction: Transaction, delivery: Delivery) -> int:
        """Accept a message and return the state in which the service leaves it."""
        transaction.accept(delivery)
        self.connection.wait(lambda: int(delivery.remote_state) != 0)
        return int(delivery.remote_state)

    def discharge(self, transaction: Transaction, *, failed: bool = False) -> tuple[str | None, str | None]:
        """Commit or abort; return what became of it, and the condition."""
        recorder = self._recorder
        transaction.discharge(failed)
        self.connection.wait(lambda: recorder.outcome is not None)
        return recorder.outcome, recorder.condition
