"""Local transactions: operations of one client that take effect together or not at all.

An operation is checked when it arrives, and kept. The commit checks all of them once more, keeps their locks from
expiring meanwhile, and only then applies them, which cannot fail any longer. Until then nothing of them is visible.

See Microsoft's "Overview of Service Bus transaction processing": all operations concern one queue or topic. Messages
for other entities are transferred through it: they are accepted by the commit and moved afterwards, so that an entity
that refuses them does not undo the transaction; they go to the transfer dead-letter queue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from servicebus_emulator.engine.model.descriptions import SubscriptionDescription
from servicebus_emulator.engine.model.errors import (
    BrokerError,
    MessageLockLost,
    OperationNotAllowed,
    QuotaExceeded,
    TransactionRolledBack,
    TransactionUnknown,
)
from servicebus_emulator.engine.model.message import total_size
from servicebus_emulator.engine.namespace.entity_registry import deleted_error
from servicebus_emulator.engine.namespace.topics import TopicEntity
from servicebus_emulator.engine.queue.queue import LOCK_LOST

if TYPE_CHECKING:
    from servicebus_emulator.engine.model.message import Content
    from servicebus_emulator.engine.namespace.entities import QueueEntity
    from servicebus_emulator.engine.namespace.entity_registry import AnyEntity
    from servicebus_emulator.engine.namespace.namespace import Namespace
    from servicebus_emulator.engine.namespace.topics import SubscriptionEntity
    from servicebus_emulator.engine.queue.queue import MessageQueue

TIMEOUT: Final = 120_000
"""How long a transaction lasts from its first operation, in milliseconds."""

_MAX_MESSAGES: Final = 100
_SEVERAL_ENTITIES: Final = "Local transactions cannot span multiple top-level entities such as queue or topic."


@dataclass(slots=True, kw_only=True)
class _Operations:
    """What was asked for, in order of arrival.

    :ivar sent: the messages for each entity that stores them itself.
    :ivar locks: the queues and lock tokens of the messages to settle.
    :ivar size: the number of bytes of the messages.
    """

    apply: list[Callable[[], None]] = field(default_factory=list)
    sent: dict[QueueEntity | TopicEntity, list[Content]] = field(default_factory=dict)
    locks: dict[bytes, MessageQueue] = field(default_factory=dict)
    messages: int = 0
    size: int = 0


class Transaction:
    """One transaction.

    :param name: its id, for error messages.
    """

    def __init__(self, name: str, *, namespace: Namespace) -> None:
        self._name = name
        self._namespace = namespace
        self._operations: _Operations | None = _Operations()
        self._began: int | None = None
        self._entity: AnyEntity | None = None
        self._session: Hashable = None
        self._failure: BrokerError | None = None

    @property
    def size(self) -> int:
        """The number of bytes of the messages that it holds."""
        return 0 if self.has_ended or self._operations is None else self._operations.size

    @property
    def has_ended(self) -> bool:
        """Whether it was committed or rolled back, or has taken too long."""
        if self._began is not None and self._namespace.now() - self._began >= TIMEOUT:
            self._operations = None
        return self._operations is None

    def send(
        self,
        entity: QueueEntity | TopicEntity,
        contents: Sequence[Content],
        *,
        session: Hashable,
        via: QueueEntity | TopicEntity | None = None,
    ) -> None:
        """Send messages, if the transaction is committed.

        :param session: the AMQP session of the sender. Messages for another entity than that of the first operation are
            transferred through that one if they come in the same session.
        :param via: the entity that is to transfer the messages to `entity`. A topic, which has no transfer dead-letter
            queue, transfers nothing: `entity` itself takes the messages with the commit.
        :raises OperationNotAllowed: when it has ended, or concerns another entity in another session.
        :raises QuotaExceeded: when it has too many messages.
        """
        operations = self._require_open()
        if operations.messages + len(contents) > _MAX_MESSAGES:
            raise QuotaExceeded(f"Cannot send more than {_MAX_MESSAGES} messages in a single transaction.")
        transferring: AnyEntity | None = via
        if self._entity is not None and _top_level(entity if via is None else via) != _top_level(self._entity):
            if session != self._session or via is not None:
                raise OperationNotAllowed(_SEVERAL_ENTITIES)
            transferring = self._entity
        if transferring is None or isinstance(transferring, TopicEntity):
            pending = operations.sent.get(entity, [])
            entity.check([*pending, *contents])
            operations.sent[entity] = [*pending, *contents]
            operations.apply.append(lambda: entity.send(contents, checked=True))
        else:
            source = transferring
            path = entity.description.path
            operations.apply.append(lambda: self._namespace.transfer(contents, via=source, target=path))
        operations.messages += len(contents)
        operations.size += total_size(contents)
        self._begin(entity if via is None else via, session=session)

    def settle(
        self,
        entity: QueueEntity | SubscriptionEntity,
        queue: MessageQueue,
        token: bytes,
        *,
        settlement: Callable[[], None],
        session: Hashable,
    ) -> None:
        """Settle a locked message, if the transaction is committed.

        :param queue: the queue of the entity that holds the message.
        :param settlement: settles the message. It must be possible while the message is locked.
        :raises OperationNotAllowed: when it has ended, or concerns another entity.
        :raises MessageLockLost: when the message is not locked, or is settled by this transaction already.
        """
        operations = self._require_open()
        if self._entity is not None and _top_level(entity) != _top_level(self._entity):
            raise OperationNotAllowed(_SEVERAL_ENTITIES)
        queue.locked_content(token)
        if token in operations.locks:
            raise MessageLockLost(LOCK_LOST)
        operations.locks[token] = queue
        operations.apply.append(settlement)
        self._begin(entity, session=session)

    def fail(self, error: BrokerError) -> None:
        """Refuse to be committed: an operation failed of which the client does not learn."""
        self._failure = error

    def roll_back(self) -> None:
        """Forget all operations. Messages stay locked."""
        self._operations = None

    def commit(self) -> None:
        """Apply all operations, or none.

        :raises TransactionUnknown: when it has ended.
        :raises TransactionRolledBack: when an operation is no longer possible.
        """
        if self.has_ended or self._operations is None:
            raise TransactionUnknown("Transaction is not declared")
        operations, self._operations = self._operations, None
        held: list[tuple[MessageQueue, bytes]] = []
        try:
            if self._failure is not None:
                raise self._failure
            for token, queue in operations.locks.items():
                queue.hold(token)
                held.append((queue, token))
            for entity, contents in operations.sent.items():
                deleted = deleted_error(entity)
                if deleted is not None:
                    raise deleted
                entity.check(contents)
        except BrokerError as error:
            raise TransactionRolledBack(f"the transaction was rolled back: {error}") from error
        else:
            for apply in operations.apply:
                apply()
        finally:
            for queue, token in held:
                queue.stop_holding(token)

    def _require_open(self) -> _Operations:
        if self.has_ended or self._operations is None:
            raise OperationNotAllowed(
                f"No active Transaction was found for ID '{self._name}'. The Transaction may have timed out or "
                "attempted to span multiple top-level entities such as Queue or Topic. The server Transaction timeout "
                "is: 00:02:00."
            )
        return self._operations

    def _begin(self, entity: AnyEntity, *, session: Hashable) -> None:
        if self._began is None:
            self._began = self._namespace.now()
            self._entity = entity
            self._session = session


def _top_level(entity: AnyEntity) -> str:
    description = entity.description
    return (description.topic_path if isinstance(description, SubscriptionDescription) else description.path).casefold()
