"""The emulator's sender: a link on which a client receives the messages of a queue, and settles them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress, count
from typing import TYPE_CHECKING, Final

from proton import Link

from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.amqp.codec.delivery_encoder import encode_delivery
from servicebus_emulator.amqp.codec.raw_encoding import MalformedValueError
from servicebus_emulator.amqp.codec.section_rewrite import by_name
from servicebus_emulator.amqp.nodes.coordinator import state_in_transaction
from servicebus_emulator.amqp.nodes.operation_faults import apply_delivery_fault, apply_fault
from servicebus_emulator.amqp.nodes.settlements import modify, outcome_code, prepared, reject
from servicebus_emulator.amqp.session.link_registry import LinkHandler
from servicebus_emulator.engine.model.errors import BrokerError, InvalidArgument, MessageLockLost, SessionLockLost
from servicebus_emulator.engine.namespace.entity_registry import deleted_error
from servicebus_emulator.engine.queue.limits import receiver_attach_error
from servicebus_emulator.engine.queue.queue import LOCK_LOST
from servicebus_emulator.faults import FaultKind, Operation

if TYPE_CHECKING:
    from servicebus_emulator.amqp.session.connection import AmqpConnection
    from servicebus_emulator.engine.model.session_locks import SessionLock
    from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
    from servicebus_emulator.engine.namespace.topics import SubscriptionEntity
    from servicebus_emulator.faults import Armed

# Limits what one link sends per cycle of the broker, so that other clients are served in between.
_MAX_TRANSFERS_PER_CYCLE: Final = 500
_MAX_BYTES_PER_CYCLE: Final = 4 * 1024 * 1024
_TAG_BYTES: Final = 16
_CLIENT_OUTCOMES: Final = frozenset({proton.ACCEPTED, proton.MODIFIED, proton.REJECTED, proton.TRANSACTIONAL})


class SenderLink(LinkHandler):
    """Sends messages as the client's credit permits, and applies the client's dispositions.

    Delivery guarantee: in peek-lock mode a message stays in the queue until its settlement is durable, and only then
    is the settlement confirmed; in receive-and-delete mode it is removed durably before it is sent.

    :param session_lock: the lock of the session that the link is bound to.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        link: Link,
        *,
        entity: QueueEntity | SubscriptionEntity,
        sub_queue: SubQueue,
        session_lock: SessionLock | None,
    ) -> None:
        self.entity = entity
        self.queue = entity.sub_queue(sub_queue)
        self.session_lock = session_lock
        self._connection = connection
        self._broker = connection.broker
        self._link = link
        self._handle = link._impl  # noqa: SLF001 - the C object that Proton's wrapper hides
        self._receive_and_delete = link.remote_snd_settle_mode == Link.SND_SETTLED
        self._numbers = count(1)
        self._open = True
        # Proton may free a delivery once it is settled, yet report it again if it was settled before all of it was
        # sent. Settling it a second time would crash the process. So these are the lock tokens of unsettled deliveries.
        self._tokens: dict[proton.Handle, bytes] = {}
        self._broker.add_outgoing(self)

    @property
    def demand(self) -> int:
        """The number of messages that can be sent now."""
        if not self._open or self._connection.congested:
            return 0
        credit = proton.credit(self._handle)
        return credit if credit <= 1 else min(credit, _MAX_TRANSFERS_PER_CYCLE, self._max_by_size())

    def deliver(self, limit: int) -> int:
        """Take up to `limit` messages from the queue and send them; return their number."""
        struck = self._broker.fault_injector.strike(Operation.RECEIVE, entity=self.entity.description.path)
        if struck is not None and apply_delivery_fault(struck, connection=self._connection, link=self._link):
            return 0
        try:
            messages = self.queue.receive(limit, session_lock=self.session_lock, delete=self._receive_and_delete)
        except SessionLockLost as error:
            self.close_with_error(error)
            return 0
        for message in messages:
            tag = next(self._numbers).to_bytes(_TAG_BYTES, "big") if message.lock is None else message.lock.token
            delivery = proton.send(
                self._handle, tag=tag, data=encode_delivery(message), settled=self._receive_and_delete
            )
            if not self._receive_and_delete:
                self._tokens[delivery] = tag
        if len(messages) > 0:
            self._broker.mark_dirty(self._connection)
        return len(messages)

    def _max_by_size(self) -> int:
        """Return how many messages of average size one cycle may send, so that little is buffered for slow readers."""
        stored = self.queue.active_count
        return (
            _MAX_BYTES_PER_CYCLE if stored == 0 else 1 + _MAX_BYTES_PER_CYCLE * stored // (self.queue.size_in_bytes + 1)
        )

    def complete_drain(self) -> None:
        """Give back unused credit if the client requested a drain and no message is left for it."""
        if not self._open or self._connection.congested or not proton.is_draining(self._handle):
            return
        if proton.credit(self._handle) > 0 and self.queue.ready_count(self.session_lock) > 0:
            # More messages than one cycle may send: the next one continues.
            return
        proton.drain(self._handle)
        self._broker.mark_dirty(self._connection)

    def on_flow(self) -> None:
        """Request messages if the client gave credit or requested a drain."""
        # The Python client also sends a flow with zero credit after each message.
        if proton.credit(self._handle) > 0 or proton.is_draining(self._handle):
            self._broker.request_delivery(self.queue)

    def on_delivery(self, delivery: proton.Handle) -> None:
        """Apply the client's disposition of a delivery, and confirm it once it is durable."""
        token = self._tokens.get(delivery)
        if token is None or not proton.is_updated(delivery):
            return
        if proton.remote_state(delivery) != proton.ACCEPTED or self._broker.fault_injector.may_strike(Operation.SETTLE):
            self.on_dispositions((delivery,))
            return
        # The usual case, in half the time of a list of deliveries.
        del self._tokens[delivery]
        try:
            self.queue.complete(token)
        except MessageLockLost as error:
            reply = self._refuse(delivery, error=error)
        else:
            state = None if proton.is_remotely_settled(delivery) else proton.ACCEPTED
            reply = partial(proton.settle, delivery, state=state)
        self._broker.reply_when_durable(self._connection, reply)

    def on_dispositions(self, deliveries: Sequence[proton.Handle]) -> None:
        """Apply one disposition by the client of one or several deliveries, and confirm it once it is durable."""
        unsettled = [each for each in deliveries if each in self._tokens]
        if len(unsettled) == 0:
            return
        # A disposition has the same state for all its deliveries.
        state = proton.remote_state(unsettled[0])
        if state in {0, proton.RECEIVED} and not proton.is_remotely_settled(unsettled[0]):
            return
        tokens = [self._tokens.pop(each) for each in unsettled]
        # Faults strike only settlements that the application requested, not messages that a closing client releases.
        if state in _CLIENT_OUTCOMES and self._broker.fault_injector.may_strike(Operation.SETTLE):
            spared = [not self._is_struck(each, state=state) for each in unsettled]
            unsettled, tokens = list(compress(unsettled, spared)), list(compress(tokens, spared))
        if len(unsettled) == 0:
            return
        if state == proton.ACCEPTED:
            replies = self._complete(unsettled, tokens=tokens)
        else:
            replies = [self._settle(each, state=state) for each in unsettled]
        reply = replies[0] if len(replies) == 1 else partial(_call_all, replies)
        self._broker.reply_when_durable(self._connection, reply)

    def on_closed(self) -> None:
        """Forget the link and unlock its session. Messages stay locked until their locks expire."""
        self._open = False
        self.entity.touch()
        self._broker.remove_outgoing(self)
        if self.session_lock is not None:
            self.queue.close_session(self.session_lock)

    def closing_error(self) -> BrokerError | None:
        """Return why the link must close, if its entity was deleted or its status changed."""
        return deleted_error(self.entity) or receiver_attach_error(
            self.entity.description, is_sub_queue=self.queue is not self.entity.main
        )

    def close_with_error(self, error: BrokerError) -> None:
        """Detach the link with an error."""
        self._connection.detach(self._link, error=error)

    def _complete(self, deliveries: Sequence[proton.Handle], *, tokens: Sequence[bytes]) -> list[partial[None]]:
        """Remove the messages of accepted deliveries from the queue; return the replies."""
        lost = self.queue.complete_all(tokens)
        completed = [each for each, token in zip(deliveries, tokens, strict=True) if token not in lost]
        refused = [each for each, token in zip(deliveries, tokens, strict=True) if token in lost]
        state = None if proton.is_remotely_settled(deliveries[0]) else proton.ACCEPTED
        return [
            partial(proton.settle_all, completed, state=state),
            *(self._refuse(each, error=MessageLockLost(LOCK_LOST)) for each in refused),
        ]

    def _settle(self, delivery: proton.Handle, *, state: int) -> partial[None]:
        try:
            return self._execute(delivery, state=state)
        except BrokerError as error:
            return self._refuse(delivery, error=error)

    def _refuse(self, delivery: proton.Handle, *, error: BrokerError) -> partial[None]:
        self._broker.count_refusal(error)
        return partial(proton.reject, delivery, error=error)

    def _is_struck(self, delivery: proton.Handle, *, state: int) -> bool:
        """Apply the fault that strikes a settlement, if any."""
        struck = self._broker.fault_injector.strike(Operation.SETTLE, entity=self.entity.description.path)
        if struck is not None:
            self._apply_fault(struck, delivery, state=state)
        return struck is not None

    def _apply_fault(self, struck: Armed, delivery: proton.Handle, *, state: int) -> None:
        if struck.fault.kind is FaultKind.NO_DISPOSITION:
            # As if lost on the way: the message stays locked and can still be settled through $management.
            return
        execute = partial(self._settle, delivery, state=state)
        if struck.fault.kind in {FaultKind.LOCK_LOST, FaultKind.DUPLICATE}:
            # The message is delivered again, as after an expired lock.
            with suppress(MessageLockLost):
                self.queue.abandon(proton.delivery_tag(delivery))
            outcome = proton.ACCEPTED if state == proton.TRANSACTIONAL else state
            execute = partial(partial, proton.settle, delivery, state=outcome)
        apply_fault(
            struck,
            connection=self._connection,
            link=self._link,
            execute=execute,
            refuse=lambda error: partial(proton.reject, delivery, error=error),
            is_open=lambda: self._open,
        )

    def _execute(self, delivery: proton.Handle, *, state: int) -> partial[None]:
        token = proton.delivery_tag(delivery)
        if state == proton.TRANSACTIONAL:
            return self._enlist(delivery, token=token)
        if state == proton.MODIFIED:
            failed, undeliverable = proton.modified_flags(delivery)
            modify(self.queue, token, undeliverable=undeliverable, properties=_properties_of(delivery))
            return partial(proton.settle_modified, delivery, failed=failed, undeliverable=undeliverable)
        if state == proton.ACCEPTED:
            self.queue.complete(token)
        elif state == proton.REJECTED:
            reject(self.queue, token, properties=_properties_of(delivery))
        else:
            # Released, or settled without an outcome: as if never delivered.
            self.queue.release(token)
        return partial(proton.settle, delivery, state=None if proton.is_remotely_settled(delivery) else state)

    def _enlist(self, delivery: proton.Handle, *, token: bytes) -> partial[None]:
        """Settle a delivery by the transaction that its state names."""
        transaction, _, outcome = state_in_transaction(self._connection, delivery)
        transaction.settle(
            self.entity,
            self.queue,
            token,
            settlement=prepared(self.queue, token, outcome=outcome),
            session=proton.session_of(self._handle),
        )
        transaction.on_end(partial(self._end_transaction, delivery, token, outcome_code(outcome)))
        # The delivery stays unsettled: if the transaction is rolled back, the client can choose another outcome.
        return partial(self._echo, delivery)

    def _echo(self, delivery: proton.Handle) -> None:
        if self._open and not proton.is_remotely_settled(delivery):
            proton.echo_state(delivery)

    def _end_transaction(self, delivery: proton.Handle, token: bytes, state: int, committed: bool) -> None:  # noqa: FBT001
        if not self._open:
            return
        if proton.is_remotely_settled(delivery):
            self._broker.reply_when_durable(self._connection, partial(proton.settle, delivery, state=None))
        elif committed:
            self._broker.reply_when_durable(self._connection, partial(proton.settle, delivery, state=state))
        else:
            self._tokens[delivery] = token


def _call_all(replies: Iterable[Callable[[], None]]) -> None:
    for reply in replies:
        reply()


def _properties_of(delivery: proton.Handle) -> dict[str, bytes]:
    """Return the encoded properties that the client's disposition modifies.

    :raises InvalidArgument: when they are no map, or a name is not UTF-8.
    """
    try:
        return by_name(proton.outcome_properties(delivery))
    except MalformedValueError as error:
        raise InvalidArgument(f"the properties to modify cannot be read: {error}") from error
