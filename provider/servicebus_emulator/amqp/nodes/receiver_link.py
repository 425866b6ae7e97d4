"""The emulator's receiver: a link on which a client sends messages to an entity."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.amqp.codec.message_checks import check_messages
from servicebus_emulator.amqp.codec.raw_encoding import MalformedValueError
from servicebus_emulator.amqp.codec.transfer_decoder import decode_transfer
from servicebus_emulator.amqp.nodes.coordinator import state_in_transaction
from servicebus_emulator.amqp.nodes.operation_faults import apply_fault
from servicebus_emulator.amqp.session.delivery_buffer import DeliveryBuffer
from servicebus_emulator.amqp.session.link_registry import LinkHandler
from servicebus_emulator.engine.model.errors import BrokerError, InvalidArgument
from servicebus_emulator.engine.namespace.entity_registry import deleted_error
from servicebus_emulator.engine.namespace.topics import TopicEntity
from servicebus_emulator.engine.queue.limits import check_encoded_size, max_message_bytes
from servicebus_emulator.faults import FaultKind, Operation

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.session.connection import AmqpConnection
    from servicebus_emulator.amqp.session.transactions import OpenTransaction
    from servicebus_emulator.engine.namespace.entities import QueueEntity
    from servicebus_emulator.faults import Armed

_CREDIT: Final = 1000
# Only deliveries that exceed the limit by more are discarded while they arrive; others are refused when complete.
_DISCARD_MARGIN: Final = 64 * 1024


def new_message_id() -> str:
    """Return an id for a message that has none."""
    return uuid4().hex


class ReceiverLink(LinkHandler):
    """Receives messages and batches, and sends each disposition once the change is durable.

    Delivery guarantee: a delivery with the outcome ``accepted`` is stored completely; one with ``rejected`` is not
    stored at all.

    :param via: the entity that transfers the messages to `entity`.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        link: Link,
        *,
        entity: QueueEntity | TopicEntity,
        via: QueueEntity | TopicEntity | None = None,
    ) -> None:
        self.entity = entity
        self._via = via
        self._connection = connection
        self._broker = connection.broker
        self._link = link
        handle = self._handle = link._impl  # noqa: SLF001 - the C object that Proton's wrapper hides
        self._buffer = DeliveryBuffer(
            handle, max_bytes=lambda: max_message_bytes(entity.description) + _DISCARD_MARGIN, credit=_CREDIT
        )
        self._open = True
        self._broker.add_link(self)

    def on_attached(self) -> None:
        """Give the client credit."""
        self._buffer.renew_credit()

    def on_delivery(self, delivery: proton.Handle) -> None:
        """Store the messages of a complete delivery."""
        taken = self._buffer.take(delivery, batch=self._connection.receives_batch)
        if taken is None:
            return
        data, size, batch = taken
        struck = self._broker.fault_injector.strike(Operation.SEND, entity=self.entity.description.path)
        if struck is None:
            self._broker.reply_when_durable(self._connection, self._execute(delivery, data, size=size, batch=batch))
        else:
            self._apply_fault(struck, delivery, data, size=size, batch=batch)

    def on_closed(self) -> None:
        """Forget the link."""
        self._open = False
        self._broker.remove_link(self)

    def closing_error(self) -> BrokerError | None:
        """Return why the link must close. A disabled entity refuses each message instead."""
        return deleted_error(self.entity)

    def close_with_error(self, error: BrokerError) -> None:
        """Detach the link with an error."""
        self._connection.detach(self._link, error=error)

    def _execute(self, delivery: proton.Handle, data: bytes, *, size: int, batch: bool) -> Callable[[], None]:
        transaction: OpenTransaction | None = None
        name = b""
        try:
            if proton.remote_state(delivery) == proton.TRANSACTIONAL:
                transaction, name, _ = state_in_transaction(self._connection, delivery)
            self._store(data, size=size, batch=batch, transaction=transaction)
        except BrokerError as error:
            self._broker.count_refusal(error)
            if transaction is not None and proton.is_remotely_settled(delivery):
                transaction.fail(error)
            return partial(proton.reject, delivery, error=error)
        if transaction is None:
            return partial(proton.accept, delivery)
        return partial(proton.accept_in_transaction, delivery, transaction=name)

    def _store(self, data: bytes, *, size: int, batch: bool, transaction: OpenTransaction | None) -> None:
        # Before decoding: of a delivery that is too large, some bytes may be missing.
        check_encoded_size(size, messages=1, description=self.entity.description)
        error = deleted_error(self.entity)
        if error is not None:
            raise error
        try:
            contents = decode_transfer(data, batch=batch, new_id=new_message_id)
        except MalformedValueError as error:
            raise InvalidArgument(f"a delivery of {len(data)} bytes is not an AMQP message: {error}") from error
        check_encoded_size(size, messages=len(contents), description=self.entity.description)
        check_messages(contents)
        throttle = self._broker.namespace.throttle
        if throttle is not None:
            throttle.check(len(contents), size=size)
        if transaction is not None:
            self._connection.transactions.check_size()
            transaction.send(self.entity, contents, session=proton.session_of(self._handle), via=self._via)
        elif self._via is None or isinstance(self._via, TopicEntity):
            self.entity.send(contents)
        else:
            self._broker.namespace.transfer(contents, via=self._via, target=self.entity.description.path)

    def _apply_fault(self, struck: Armed, delivery: proton.Handle, data: bytes, *, size: int, batch: bool) -> None:
        kind = struck.fault.kind
        if kind is FaultKind.RELEASED:
            self._broker.reply_when_durable(self._connection, partial(proton.settle, delivery, state=proton.RELEASED))
            return
        if kind is FaultKind.MODIFIED:
            reply = partial(proton.settle_modified, delivery, failed=True, undeliverable=False)
            self._broker.reply_when_durable(self._connection, reply)
            return
        if kind is FaultKind.DUPLICATE:
            self._execute(delivery, data, size=size, batch=batch)
        apply_fault(
            struck,
            connection=self._connection,
            link=self._link,
            execute=partial(self._execute, delivery, data, size=size, batch=batch),
            refuse=lambda error: partial(proton.reject, delivery, error=error),
            is_open=lambda: self._open,
        )
