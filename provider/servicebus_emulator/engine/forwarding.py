"""Messages that a queue or subscription does not keep, but passes on to another queue or topic.

Microsoft's "Chaining Service Bus entities with autoforwarding": a message may be passed on four times; one
that has come further, or whose target does not take it, waits in the transfer dead-letter queue of the
entity that could not pass it on. Passing on is part of what brought the message, and as durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from servicebus_emulator.engine.descriptions import (
    Description,
    SubscriptionDescription,
    TopicDescription,
    entity_path_of,
)
from servicebus_emulator.engine.entities import QueueEntity, SubQueue, SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    InvalidArgument,
    QuotaExceeded,
)
from servicebus_emulator.engine.message import Content, DeadLetterMark, Journey, Message

if TYPE_CHECKING:
    from servicebus_emulator.engine.clock import Clock

__all__ = ["Forwarder", "in_order_of_creation"]

_MOST_HOPS: Final = 4
_TOO_FAR: Final = DeadLetterMark(
    "MaxTransferHopCountExceeded",
    f"The message was forwarded {_MOST_HOPS} times, which is the most that is allowed.",
)
_REASONS: Final[dict[type[BrokerError], str]] = {
    EntityDisabled: "MessagingEntityDisabledException",
    EntityNotFound: "MessagingEntityNotFoundException",
    QuotaExceeded: "QuotaExceededException",
}
_OTHER_REASON: Final = "InvalidOperationException"
_FIELDS: Final = ("forward_to", "forward_dead_lettered_messages_to")


class Forwarder:
    """Connects the entities of one namespace.

    :param find: returns what has a path; raises EntityNotFound when nothing has it.
    :param clock: tells how much of a message's time to live is left.
    """

    def __init__(self, find: Callable[[str], QueueEntity | TopicEntity | SubscriptionEntity], *, clock: Clock) -> None:
        self._find = find
        self._clock = clock

    def check(self, description: Description, *, before: Description | None) -> None:
        """Check that there is what an entity is to forward to.

        :param before: the description that the entity had; a target that it named already may be gone
            since, and its messages are dead-lettered then.
        :raises InvalidArgument: when a target does not exist.
        """
        known = () if before is None else tuple(_targets_of(before))
        for name, path in _targets_of(description):
            if (name, path) in known:
                continue
            try:
                self._receiving(path)
            except EntityNotFound as error:
                raise InvalidArgument(
                    f"{name} is {path!r}; allowed: the path of a queue or topic that exists; create it first"
                ) from error

    def connect(self, entity: QueueEntity | SubscriptionEntity) -> None:
        """Have an entity pass on messages as its description says, those that wait already included."""
        description = entity.description
        dead = entity.part(SubQueue.DEAD_LETTER)
        entity.main.connect(self._road(entity, address=description.forward_to, died_in=None))
        dead.connect(
            self._road(entity, address=description.forward_dead_lettered_messages_to, died_in=description.path)
        )

    def _road(
        self, entity: QueueEntity | SubscriptionEntity, *, address: str | None, died_in: str | None
    ) -> Callable[[Message], bool] | None:
        if address is None:
            return None
        return partial(self._pass_on, entity=entity, target=entity_path_of(address), died_in=died_in)

    def _pass_on(
        self, message: Message, *, entity: QueueEntity | SubscriptionEntity, target: str, died_in: str | None
    ) -> bool:
        """Return whether the message is at its target now; if not, it is in the transfer dead-letter queue."""
        entity.touch()
        mark = _TOO_FAR
        if message.hops < _MOST_HOPS:
            source = message.died_in if died_in is None else died_in
            journey = Journey(hops=message.hops + 1, dead_letter=message.dead_letter, died_in=source)
            try:
                self._receiving(target).take_over(self._remaining(message), journey=journey)
            except BrokerError as error:
                mark = DeadLetterMark(_REASONS.get(type(error), _OTHER_REASON), str(error))
            else:
                return True
        message.dead_letter = mark
        entity.main.tally.dead_lettered += 1
        entity.part(SubQueue.TRANSFER_DEAD_LETTER).receive_dead(message)
        return False

    def _receiving(self, target: str) -> QueueEntity | TopicEntity:
        found = self._find(target)
        if isinstance(found, SubscriptionEntity):
            raise EntityNotFound(f"{target!r} is a subscription; messages are forwarded to queues and topics")
        return found

    def _remaining(self, message: Message) -> Content:
        """Return the message with the time to live that is left. A dead letter does not expire."""
        expires_at = message.expires_at
        left = None if expires_at is None else max(0, expires_at - self._clock.now())
        return message.content._replace(time_to_live=left)


def in_order_of_creation(descriptions: Iterable[Description]) -> list[Description]:
    """Return descriptions such that what an entity needs comes before it: its targets and its topic.

    Those that need each other in a circle come last; they are refused when they are created.
    """
    pending = list(descriptions)
    ordered: list[Description] = []
    while len(pending) > 0:
        missing = {each.path.casefold() for each in pending}
        ready = [each for each in pending if missing.isdisjoint(_needs_of(each))]
        if len(ready) == 0:
            return ordered + pending
        ordered += ready
        pending = [each for each in pending if each not in ready]
    return ordered


def _needs_of(description: Description) -> set[str]:
    needs = {path.casefold() for _, path in _targets_of(description)}
    if isinstance(description, SubscriptionDescription):
        needs.add(description.topic_path.casefold())
    return needs


def _targets_of(description: Description) -> Iterator[tuple[str, str]]:
    """Yield what an entity forwards to: pairs of field and path."""
    if isinstance(description, TopicDescription):
        return
    for name in _FIELDS:
        address = getattr(description, name)
        if address is not None:
            yield name, entity_path_of(address)
