"""Autoforwarding: messages that a queue or subscription passes on to another queue or topic.

See Microsoft's "Chaining Service Bus entities with autoforwarding": a message is forwarded at most four times. After
that, or when the target refuses it, it moves to the transfer dead-letter queue of the forwarding entity. Forwarding is
part of the operation that delivered the message and becomes durable with it.

Subscriptions that forward to their own topic multiply a message with each hop, twelve of them to 250,000 copies. The
service takes its time for that; here nothing else happens meanwhile, so what one message becomes is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from servicebus_emulator.engine.model.descriptions import Description, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.model.entity_names import entity_path_of
from servicebus_emulator.engine.model.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    InvalidArgument,
    QuotaExceeded,
)
from servicebus_emulator.engine.model.message import Content, DeadLetterInfo, ForwardingHistory, Message
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity

if TYPE_CHECKING:
    from servicebus_emulator.engine.model.clock import Clock

_MAX_HOPS: Final = 4
_MAX_COPIES: Final = 10_000
_TOO_MANY_HOPS: Final = DeadLetterInfo(
    "MaxTransferHopCountExceeded", f"The message was forwarded {_MAX_HOPS} times, which is the maximum."
)
_TOO_MANY_COPIES: Final = DeadLetterInfo(
    "QuotaExceededException", f"Forwarding made more than {_MAX_COPIES} copies of one message, which is the maximum."
)
_REASONS: Final[dict[type[BrokerError], str]] = {
    EntityDisabled: "MessagingEntityDisabledException",
    EntityNotFound: "MessagingEntityNotFoundException",
    QuotaExceeded: "QuotaExceededException",
}
_OTHER_REASON: Final = "InvalidOperationException"
_FIELDS: Final = ("forward_to", "forward_dead_lettered_messages_to")


class Forwarder:
    """Forwards messages between the entities of one namespace.

    :param find: returns the entity at a path; raises EntityNotFound.
    :param clock: used to compute the remaining time to live.
    """

    def __init__(self, find: Callable[[str], QueueEntity | TopicEntity | SubscriptionEntity], *, clock: Clock) -> None:
        self._find = find
        self._clock = clock
        # What was sent and led to the message that is forwarded: its entity and sequence number there.
        self._origin: tuple[str, int] | None = None
        self._copies = 0
        self._depth = 0

    def check(self, description: Description, *, before: Description | None) -> None:
        """Check that the forwarding targets of an entity exist.

        :param before: the entity's previous description. Its targets are not checked, since they may have been deleted
            meanwhile; their messages go to the transfer dead-letter queue.
        :raises InvalidArgument: when a target does not exist.
        """
        known = () if before is None else tuple(_targets_of(before))
        for name, path in _targets_of(description):
            if (name, path) in known:
                continue
            try:
                self._find_target(path)
            except EntityNotFound as error:
                raise InvalidArgument(
                    f"{name} is {path!r}; allowed: the path of a queue or topic that exists; create it first"
                ) from error

    def connect(self, entity: QueueEntity | SubscriptionEntity) -> None:
        """Make an entity forward its messages, current ones included, as its description says."""
        description = entity.description
        entity.main.set_forwarder(self._forwarder(entity, address=description.forward_to, dead_letter_source=None))
        entity.sub_queue(SubQueue.DEAD_LETTER).set_forwarder(
            self._forwarder(
                entity, address=description.forward_dead_lettered_messages_to, dead_letter_source=description.path
            )
        )

    def transfer(self, contents: Iterable[Content], *, via: QueueEntity | SubscriptionEntity, target: str) -> None:
        """Send messages that an entity accepted to another one, or dead-letter them if that refuses them."""
        for content in contents:
            try:
                self._find_target(target).send([content])
            except BrokerError as error:
                via.main.counters.dead_lettered += 1
                via.sub_queue(SubQueue.TRANSFER_DEAD_LETTER).add(
                    content, number=via.sequence.next(), time_to_live=None, dead_letter=_reason_of(error)
                )

    def _forwarder(
        self, entity: QueueEntity | SubscriptionEntity, *, address: str | None, dead_letter_source: str | None
    ) -> Callable[[Message], bool] | None:
        if address is None:
            return None
        target = entity_path_of(address)
        return partial(self._forward, entity=entity, target=target, dead_letter_source=dead_letter_source)

    def _forward(
        self,
        message: Message,
        *,
        entity: QueueEntity | SubscriptionEntity,
        target: str,
        dead_letter_source: str | None,
    ) -> bool:
        """Return whether the target accepted the message; otherwise it is in the transfer dead-letter queue."""
        entity.touch()
        info = _TOO_MANY_HOPS
        self._note_origin(message, entity)
        if self._copies >= _MAX_COPIES:
            info = _TOO_MANY_COPIES
        elif message.hops < _MAX_HOPS:
            source = message.dead_letter_source if dead_letter_source is None else dead_letter_source
            forwarding = ForwardingHistory(
                hops=message.hops + 1, dead_letter=message.dead_letter, dead_letter_source=source
            )
            content = self._with_remaining_lifetime(message)
            self._depth += 1
            try:
                found = self._find_target(target)
                self._copies += len(found.subscriptions) if isinstance(found, TopicEntity) else 1
                found.accept_forwarded(content, forwarding=forwarding)
            except BrokerError as error:
                info = _reason_of(error)
            else:
                return True
            finally:
                self._depth -= 1
        message.dead_letter = info
        entity.main.counters.dead_lettered += 1
        entity.sub_queue(SubQueue.TRANSFER_DEAD_LETTER).add_dead_letter(message)
        return False

    def _note_origin(self, message: Message, entity: QueueEntity | SubscriptionEntity) -> None:
        """Count the copies from the start, unless the message is a copy of the last one, or descends from it."""
        if self._depth > 0:
            return
        # A topic gives the copies for its subscriptions one number.
        number = message.enqueued_sequence_number or message.sequence_number
        origin = (_top_level(entity.description), number)
        if message.hops > 0 or origin != self._origin:
            self._origin, self._copies = origin, 0

    def _find_target(self, path: str) -> QueueEntity | TopicEntity:
        found = self._find(path)
        if isinstance(found, SubscriptionEntity):
            raise EntityNotFound(f"{path!r} is a subscription; messages are forwarded to queues and topics")
        return found

    def _with_remaining_lifetime(self, message: Message) -> Content:
        """Return the content with the remaining time to live. A dead letter does not expire."""
        expires_at = message.expires_at
        remaining = None if expires_at is None else max(0, expires_at - self._clock.now())
        return message.content._replace(time_to_live=remaining)


def creation_order(descriptions: Iterable[Description]) -> list[Description]:
    """Return the descriptions sorted so that topics and forwarding targets come before the entities that need them.

    Entities with circular dependencies come last; their creation fails.
    """
    pending = list(descriptions)
    paths = {each.path.casefold() for each in pending}
    missing = [_dependencies_of(each) & paths for each in pending]
    needed_by: dict[str, list[int]] = {}
    for number, names in enumerate(missing):
        for name in names:
            needed_by.setdefault(name, []).append(number)
    ready = [number for number, names in enumerate(missing) if len(names) == 0]
    # It grows while it is read.
    for number in ready:
        path = pending[number].path.casefold()
        for other in needed_by.get(path, ()):
            missing[other].discard(path)
            if len(missing[other]) == 0:
                ready.append(other)
    created = set(ready)
    return [pending[each] for each in ready] + [each for at, each in enumerate(pending) if at not in created]


def _dependencies_of(description: Description) -> set[str]:
    paths = {path.casefold() for _, path in _targets_of(description)}
    if isinstance(description, SubscriptionDescription):
        paths.add(description.topic_path.casefold())
    return paths


def _targets_of(description: Description) -> Iterator[tuple[str, str]]:
    """Yield the forwarding targets of an entity as pairs of field name and path."""
    if isinstance(description, TopicDescription):
        return
    for name in _FIELDS:
        address = getattr(description, name)
        if address is not None:
            yield name, entity_path_of(address)


def _top_level(description: Description) -> str:
    return description.topic_path if isinstance(description, SubscriptionDescription) else description.path


def _reason_of(error: BrokerError) -> DeadLetterInfo:
    return DeadLetterInfo(_REASONS.get(type(error), _OTHER_REASON), str(error))
