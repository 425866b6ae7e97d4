"""A link on which the messages of a queue leave for a client, and on which the client settles them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from servicebus_emulator.amqp import proton
from servicebus_emulator.amqp.amending import amend, named
from servicebus_emulator.amqp.encoding import NULL, MalformedValueError, decode_text
from servicebus_emulator.amqp.outgoing import encode_delivery
from servicebus_emulator.amqp.spoiling import spoil, spoil_receive
from servicebus_emulator.engine.admission import link_obstacle
from servicebus_emulator.engine.errors import (
    BrokerError,
    EntityNotFound,
    InvalidArgument,
    MessageLockLost,
    SessionLockLost,
)
from servicebus_emulator.faults import FaultKind, Operation

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.connection import AmqpConnection
    from servicebus_emulator.engine.entities import QueueEntity, SubQueue, SubscriptionEntity
    from servicebus_emulator.engine.sessions import SessionHold
    from servicebus_emulator.faults import Armed

__all__ = ["Outlet"]

_PER_TURN: Final = 500
_BYTES_PER_TURN: Final = 4 * 1024 * 1024
_TAG_BYTES: Final = 16
_ASKED_FOR: Final = frozenset({proton.ACCEPTED, proton.MODIFIED, proton.REJECTED})
_REASON: Final = "DeadLetterReason"
_DESCRIPTION: Final = "DeadLetterErrorDescription"


class Outlet:
    """Sends messages as the client's credit allows, and carries out its settlements.

    Delivery guarantee: in peek-lock a message stays in the queue until its settlement is durable, and
    only then the client hears of it; in receive-and-delete it is removed for good before it is sent.

    :param settled: whether the client receives and deletes.
    :param hold: the session to which the link is bound.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        link: Link,
        *,
        entity: QueueEntity | SubscriptionEntity,
        part: SubQueue,
        settled: bool,
        hold: SessionHold | None,
    ) -> None:
        self.entity = entity
        self.queue = entity.part(part)
        self.hold = hold
        self._connection = connection
        self._broker = connection.broker
        self._link = link
        self._handle = link._impl  # noqa: SLF001 - the only door from Proton's wrapper to what it wraps
        self._settled = settled
        self._tags = count(1)
        self._open = True
        # Deliveries that the client is to settle. Proton may forget one as soon as it was answered, and yet tell of it
        # again if it was answered before all of it was sent; answering that would be the end of the process.
        self._unsettled: set[int] = set()
        self._broker.add_receiver(self)

    @property
    def demand(self) -> int:
        """How many messages the client is ready to take now."""
        if not self._open or self._connection.congested:
            return 0
        credit = proton.credit(self._handle)
        return credit if credit <= 1 else min(credit, _PER_TURN, self._most_per_turn())

    def give(self, limit: int) -> int:
        """Take up to `limit` messages from the queue and send them; return how many there were."""
        struck = self._broker.trouble.strike(Operation.RECEIVE, entity=self.entity.description.path)
        if struck is not None and spoil_receive(struck, connection=self._connection, link=self._link):
            return 0
        try:
            messages = self.queue.take(limit, hold=self.hold, delete=self._settled)
        except SessionLockLost as error:
            self.refuse(error)
            return 0
        for message in messages:
            tag = next(self._tags).to_bytes(_TAG_BYTES, "big") if message.lock is None else message.lock.token
            delivery = proton.send(self._handle, tag=tag, data=encode_delivery(message), settled=self._settled)
            if not self._settled:
                self._unsettled.add(proton.identity(delivery))
        if len(messages) > 0:
            self._broker.mark_dirty(self._connection)
        return len(messages)

    def _most_per_turn(self) -> int:
        """Return how many messages fit into what one turn gives: who does not read that gets no more."""
        stored = self.queue.active_count
        return _BYTES_PER_TURN if stored == 0 else 1 + _BYTES_PER_TURN * stored // (self.queue.size_in_bytes + 1)

    def finish_drain(self) -> None:
        """Answer a drain, now that what was waiting has been sent."""
        if not self._open or self._connection.congested or not proton.is_draining(self._handle):
            return
        if proton.credit(self._handle) > 0 and self.queue.waiting_count(hold=self.hold) > 0:
            # There was more than one turn gives; the next one goes on.
            return
        proton.drain(self._handle)
        self._broker.mark_dirty(self._connection)

    def opened(self) -> None:
        """Nothing: the client's credit says when to begin."""

    def flowed(self) -> None:
        """Have the link served, if it has credit or is to be drained."""
        # The Python client also says after each message that it takes no more.
        if proton.credit(self._handle) > 0 or proton.is_draining(self._handle):
            self._broker.ask(self.queue)

    def delivered(self, delivery: proton.Handle) -> None:
        """Carry out the client's settlement of a delivery, and answer it once it is durable."""
        if not proton.is_updated(delivery):
            return
        state = proton.outcome(delivery)
        if state in {0, proton.RECEIVED} and not proton.settled_by_peer(delivery):
            return
        key = proton.identity(delivery)
        if key not in self._unsettled:
            return
        self._unsettled.remove(key)
        # What a client gives back as it closes is no settlement that anybody asked for.
        asked_for = state in _ASKED_FOR
        path = self.entity.description.path
        struck = self._broker.trouble.strike(Operation.SETTLE, entity=path) if asked_for else None
        if struck is None:
            self._broker.answer(self._connection, self._settle(delivery, state=state))
        else:
            self._spoil(struck, delivery, state=state)

    def closed(self) -> None:
        """Forget the link. A session is freed; single messages stay locked until their lock expires."""
        self._open = False
        self.entity.touch()
        self._broker.remove_receiver(self)
        if self.hold is not None:
            self.queue.close_session(self.hold)

    def obstacle(self) -> BrokerError | None:
        """Return why the link cannot go on."""
        if self.entity.deleted:
            return EntityNotFound(
                f"the messaging entity {self.entity.description.path!r} could not be found: it was deleted"
            )
        return link_obstacle(self.entity.description, sub_queue=self.queue is not self.entity.main)

    def refuse(self, error: BrokerError) -> None:
        """Detach the link with an error."""
        self._connection.detach(self._link, error=error)

    def _settle(self, delivery: proton.Handle, *, state: int) -> partial[None]:
        try:
            return self._carry_out(delivery, state=state)
        except BrokerError as error:
            self._broker.note_refusal(error)
            return partial(proton.reject, delivery, error=error)

    def _spoil(self, struck: Armed, delivery: proton.Handle, *, state: int) -> None:
        if struck.fault.kind is FaultKind.NO_DISPOSITION:
            # Lost on its way: the message stays locked, and the client may settle it through management.
            return
        carry_out = partial(self._settle, delivery, state=state)
        if struck.fault.kind in {FaultKind.LOCK_LOST, FaultKind.DUPLICATE}:
            # The message comes again, as after a lock that expired.
            with suppress(MessageLockLost):
                self.queue.abandon(proton.delivery_tag(delivery))
            carry_out = partial(partial, proton.settle, delivery, state=state)
        spoil(
            struck,
            connection=self._connection,
            link=self._link,
            carry_out=carry_out,
            refuse=lambda error: partial(proton.reject, delivery, error=error),
            is_open=lambda: self._open,
        )

    def _carry_out(self, delivery: proton.Handle, *, state: int) -> partial[None]:
        token = proton.delivery_tag(delivery)
        if state == proton.ACCEPTED:
            self.queue.complete(token)
        elif state == proton.MODIFIED:
            return self._modify(delivery, token=token)
        elif state == proton.REJECTED:
            wanted = _properties_of(delivery)
            reason, description = (_text(wanted.pop(name, NULL)) for name in (_REASON, _DESCRIPTION))
            amend(self.queue, token, wanted=wanted)
            self.queue.dead_letter(token, reason=reason, description=description)
        else:
            # Released, or settled without any state: given back as if never delivered.
            self.queue.release(token)
        return partial(proton.settle, delivery, state=None if proton.settled_by_peer(delivery) else state)

    def _modify(self, delivery: proton.Handle, *, token: bytes) -> partial[None]:
        failed, undeliverable = proton.how_modified(delivery)
        amend(self.queue, token, wanted=_properties_of(delivery))
        if undeliverable:
            self.queue.defer(token)
        else:
            # Abandoned, whether or not the delivery is said to have failed: the JavaScript client does not say so.
            self.queue.abandon(token)
        return partial(proton.settle_modified, delivery, failed=failed, undeliverable=undeliverable)


def _properties_of(delivery: proton.Handle) -> dict[str, bytes]:
    """Return the properties that the client changes with its settlement, encoded.

    :raises InvalidArgument: when they are no map, or a name is not UTF-8.
    """
    try:
        return named(proton.changed_properties(delivery))
    except MalformedValueError as error:
        raise InvalidArgument(f"the properties to modify cannot be read: {error}") from error


def _text(value: bytes) -> str | None:
    """Return an encoded text; None for any other type.

    :raises InvalidArgument: when it is not UTF-8.
    """
    try:
        return decode_text(value)
    except MalformedValueError as error:
        raise InvalidArgument(f"a reason for dead-lettering cannot be read: {error}") from error
