"""The transaction coordinator: the link on which a client declares and discharges transactions (AMQP 1.0 part 4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.amqp.codec.raw_encoding import MalformedValueError, compound_items, described_value
from servicebus_emulator.amqp.codec.sections import SectionCode, sections
from servicebus_emulator.amqp.codec.value_codec import decode
from servicebus_emulator.amqp.session.delivery_buffer import DeliveryBuffer
from servicebus_emulator.amqp.session.link_registry import LinkHandler
from servicebus_emulator.engine.model.errors import BrokerError, InvalidArgument

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.session.connection import AmqpConnection
    from servicebus_emulator.amqp.session.transactions import OpenTransaction

_CREDIT: Final = 100
_MAX_BYTES: Final = 1024
_DECLARE: Final = frozenset({0x31, "amqp:declare:list"})
_DISCHARGE: Final = frozenset({0x32, "amqp:discharge:list"})


class Coordinator(LinkHandler):
    """Executes the requests of one client, and rolls back the transactions that are open when it detaches."""

    def __init__(self, connection: AmqpConnection, link: Link) -> None:
        self._connection = connection
        self._declared: set[bytes] = set()
        handle = link._impl  # noqa: SLF001 - the C object that Proton's wrapper hides
        self._buffer = DeliveryBuffer(handle, max_bytes=lambda: _MAX_BYTES, credit=_CREDIT)

    def on_attached(self) -> None:
        """Give the client credit."""
        self._buffer.renew_credit()

    def on_delivery(self, delivery: proton.Handle) -> None:
        """Declare or discharge a transaction, and reply once the change is durable."""
        taken = self._buffer.take(delivery)
        if taken is None:
            return
        broker = self._connection.broker
        try:
            reply = self._execute(delivery, taken[0])
        except BrokerError as error:
            broker.count_refusal(error)
            reply = partial(proton.reject, delivery, error=error)
        broker.reply_when_durable(self._connection, reply)

    def on_closed(self) -> None:
        """Roll back what is not discharged."""
        for each in self._declared:
            self._connection.transactions.roll_back(each)

    def _execute(self, delivery: proton.Handle, data: bytes) -> Callable[[], None]:
        code, fields = _decode(data)
        transactions = self._connection.transactions
        if code in _DECLARE:
            declared = transactions.declare()
            self._declared.add(declared)
            return partial(proton.declare, delivery, transaction=declared)
        name, fail = fields[0] if len(fields) > 0 else None, len(fields) > 1 and fields[1] is True
        if code not in _DISCHARGE or not isinstance(name, bytes):
            raise InvalidArgument("a message to the coordinator is neither a declare nor a discharge with an id")
        self._declared.discard(name)
        transactions.discharge(name, fail=fail)
        return partial(proton.accept, delivery)


def state_in_transaction(connection: AmqpConnection, delivery: proton.Handle) -> tuple[OpenTransaction, bytes, bytes]:
    """Return the transaction of a delivery's transactional state, its id, and the encoded outcome.

    :raises InvalidArgument: when the state has no id.
    :raises TransactionUnknown: when the transaction is not open.
    """
    items = proton.delivery_state_items(delivery)
    try:
        name = decode(items[0]) if len(items) > 0 else None
    except MalformedValueError as error:
        raise InvalidArgument(f"the id of a transaction cannot be decoded: {error}") from error
    if not isinstance(name, bytes):
        raise InvalidArgument("a transactional state has no binary txn-id")
    return connection.transactions.find(name), name, items[1] if len(items) > 1 else b""


def _decode(data: bytes) -> tuple[int | str | None, list[object]]:
    try:
        for code, _, start, end in sections(data):
            if code == SectionCode.VALUE:
                descriptor, value = described_value(data[start:end])
                return descriptor, [decode(item) for item in compound_items(value)]
    except (MalformedValueError, IndexError) as error:
        raise InvalidArgument(f"a message to the coordinator cannot be decoded: {error}") from error
    raise InvalidArgument("a message to the coordinator has no value; allowed: declare and discharge")
