"""A link on which a client sends messages to an entity."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from servicebus_emulator.amqp import proton
from servicebus_emulator.amqp.encoding import MalformedValueError
from servicebus_emulator.amqp.incoming import read_transfer
from servicebus_emulator.amqp.spoiling import spoil
from servicebus_emulator.engine.admission import check_size, message_limit
from servicebus_emulator.engine.errors import BrokerError, EntityNotFound, InvalidArgument
from servicebus_emulator.faults import FaultKind, Operation

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.connection import AmqpConnection
    from servicebus_emulator.engine.entities import QueueEntity, TopicEntity
    from servicebus_emulator.faults import Armed

__all__ = ["Intake", "new_message_id"]

_CREDIT: Final = 1000
_READ_AHEAD: Final = 64 * 1024


def new_message_id() -> str:
    """Return an id for a message that came without one."""
    return uuid4().hex


class Intake:
    """Takes in messages and batches; each is answered once it is durable.

    Delivery guarantee: a delivery answered with ``accepted`` is stored as a whole; one answered with
    ``rejected`` is not stored at all.
    """

    def __init__(self, connection: AmqpConnection, link: Link, *, entity: QueueEntity | TopicEntity) -> None:
        self.entity = entity
        self._connection = connection
        self._broker = connection.broker
        self._link = link
        self._handle = link._impl  # noqa: SLF001 - the only door from Proton's wrapper to what it wraps
        self._credit = 0
        self._discarded = 0
        self._open = True
        self._broker.add(self)

    def opened(self) -> None:
        """Let the client send."""
        self._replenish()

    def delivered(self, delivery: proton.Handle) -> None:
        """Take in what has arrived of a delivery."""
        if proton.is_aborted(delivery):
            self._give_up(delivery)
            return
        if not proton.is_complete(delivery):
            self._drop_oversize(delivery)
            return
        data = proton.read(self._handle, delivery)
        size = self._discarded + len(data)
        self._discarded = 0
        proton.advance(self._handle)
        self._credit -= 1
        self._replenish()
        struck = self._broker.trouble.strike(Operation.SEND, entity=self.entity.description.path)
        if struck is None:
            self._broker.answer(self._connection, self._take_in(delivery, data, size=size))
        else:
            self._spoil(struck, delivery, data, size=size)

    def flowed(self) -> None:
        """Nothing: a sender's flow asks for nothing."""

    def closed(self) -> None:
        """Forget the link."""
        self._open = False
        self._broker.remove(self)

    def obstacle(self) -> BrokerError | None:
        """Return why the link cannot go on. A disabled entity refuses each message instead."""
        if self.entity.deleted:
            return EntityNotFound(
                f"the messaging entity {self.entity.description.path!r} could not be found: it was deleted"
            )
        return None

    def refuse(self, error: BrokerError) -> None:
        """Detach the link with an error."""
        self._connection.detach(self._link, error=error)

    def _take_in(self, delivery: proton.Handle, data: bytes, *, size: int) -> Callable[[], None]:
        try:
            self._store(data, size=size)
        except BrokerError as error:
            self._broker.note_refusal(error)
            return partial(proton.reject, delivery, error=error)
        return partial(proton.accept, delivery)

    def _spoil(self, struck: Armed, delivery: proton.Handle, data: bytes, *, size: int) -> None:
        kind = struck.fault.kind
        if kind is FaultKind.RELEASED:
            self._broker.answer(self._connection, partial(proton.settle, delivery, state=proton.RELEASED))
            return
        if kind is FaultKind.MODIFIED:
            answer = partial(proton.settle_modified, delivery, failed=True, undeliverable=False)
            self._broker.answer(self._connection, answer)
            return
        if kind is FaultKind.DUPLICATE:
            self._take_in(delivery, data, size=size)
        spoil(
            struck,
            connection=self._connection,
            link=self._link,
            carry_out=partial(self._take_in, delivery, data, size=size),
            refuse=lambda error: partial(proton.reject, delivery, error=error),
            is_open=lambda: self._open,
        )

    def _store(self, data: bytes, *, size: int) -> None:
        # Before it is read: what is too large may have been dropped in part.
        check_size(size, messages=1, description=self.entity.description)
        if self.entity.deleted:
            raise EntityNotFound(
                f"the messaging entity {self.entity.description.path!r} could not be found: it was deleted"
            )
        try:
            contents = read_transfer(data, new_id=new_message_id)
        except MalformedValueError as error:
            raise InvalidArgument(f"a delivery of {len(data)} bytes is no AMQP message: {error}") from error
        check_size(size, messages=len(contents), description=self.entity.description)
        self.entity.send(contents)

    def _give_up(self, delivery: proton.Handle) -> None:
        self._discarded = 0
        proton.settle(delivery, state=None)
        self._credit -= 1
        self._replenish()

    def _drop_oversize(self, delivery: proton.Handle) -> None:
        # What is too large already is not kept while the rest arrives.
        pending = proton.pending_bytes(delivery)
        if pending > 0 and self._discarded + pending > message_limit(self.entity.description) + _READ_AHEAD:
            self._discarded += len(proton.read(self._handle, delivery))

    def _replenish(self) -> None:
        if self._credit <= _CREDIT // 2:
            proton.add_credit(self._handle, _CREDIT - self._credit)
            self._credit = _CREDIT
            self._broker.mark_dirty(self._connection)
