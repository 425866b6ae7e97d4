"""Requests about an entity: the node ``<entity>/$management``.

Operations and field names are those of Microsoft's "AMQP 1.0 in Azure Service Bus: request/response-based
operations".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from servicebus_emulator.amqp.amending import amend, named
from servicebus_emulator.amqp.encoding import MalformedValueError
from servicebus_emulator.amqp.incoming import read_message
from servicebus_emulator.amqp.intake import new_message_id
from servicebus_emulator.amqp.outgoing import encode_delivery
from servicebus_emulator.amqp.requests import Answer, Request
from servicebus_emulator.amqp.rules import describe_rule, read_rule
from servicebus_emulator.amqp.values import Array, Int, Symbol, Timestamp, Value, encode
from servicebus_emulator.engine.admission import check_size, receive_obstacle
from servicebus_emulator.engine.descriptions import AccessRight, DescriptionError
from servicebus_emulator.engine.entities import SubQueue, SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.errors import (
    BrokerError,
    InvalidArgument,
    OperationNotAllowed,
    OperationNotSupported,
)
from servicebus_emulator.engine.message import Content, Message

if TYPE_CHECKING:
    from servicebus_emulator.engine.directory import AnyEntity
    from servicebus_emulator.engine.queue import MessageQueue

__all__ = ["LISTEN", "MANAGEMENT_RIGHTS", "SEND", "Management", "refuse_request", "rights_for"]

_PREFIX: Final = "com.microsoft:"
_PEEK_LIMIT: Final = 1000
_PEEK_BYTES: Final = 1024 * 1024
_RECEIVE_AND_DELETE: Final = 0
_NO_CONTENT: Final = 204
# The last millisecond of the year 9999; a client that names a later time asks for sessions of any time.
_END_OF_CALENDAR: Final = 253_402_300_799_999


LISTEN: Final = frozenset({AccessRight.LISTEN})
SEND: Final = frozenset({AccessRight.SEND})
_SENDING: Final = frozenset({f"{_PREFIX}schedule-message", f"{_PREFIX}cancel-scheduled-message"})

MANAGEMENT_RIGHTS: Final = LISTEN | SEND
"""The rights of which one is needed to make requests at all."""


def rights_for(request: Request) -> frozenset[AccessRight]:
    """Return the rights of which a request needs one.

    Scheduling and cancelling is sending; all else is listening, the rules of a subscription included: "the rule
    manager requires only Listen claims" (Microsoft's reference of ``ServiceBusRuleManager``).
    """
    return SEND if request.properties.get("operation") in _SENDING else LISTEN


class Management:
    """Carries out the requests about one entity or sub-queue."""

    def __init__(self, entity: AnyEntity, *, part: SubQueue) -> None:
        self._entity = entity
        self._part = part
        self._operations: dict[str, Callable[[_Fields], Answer]] = {
            "renew-lock": self._renew_lock,
            "peek-message": self._peek,
            "schedule-message": self._schedule,
            "cancel-scheduled-message": self._cancel,
            "receive-by-sequence-number": self._receive,
            "update-disposition": self._settle,
            "renew-session-lock": self._renew_session_lock,
            "get-session-state": self._session_state,
            "set-session-state": self._set_session_state,
            "add-rule": self._add_rule,
            "remove-rule": self._remove_rule,
            "enumerate-rules": self._list_rules,
            "get-message-sessions": self._list_sessions,
        }

    def carry_out(self, request: Request) -> Answer:
        """Carry out one request.

        :raises BrokerError: when it is refused.
        """
        name = request.properties.get("operation")
        operation = self._operations.get(name.removeprefix(_PREFIX)) if isinstance(name, str) else None
        if operation is None:
            known = ", ".join(_PREFIX + each for each in self._operations)
            raise OperationNotSupported(f"operation is {name!r}; allowed: {known}")
        if not isinstance(request.body, dict):
            raise InvalidArgument(f"the body of {name!r} is no map")
        self._entity.touch()
        return operation(_Fields(request.body))

    # Messages

    def _peek(self, fields: _Fields) -> Answer:
        limit = min(fields.number("message-count"), _PEEK_LIMIT)
        messages = self._open_queue().peek(
            fields.number("from-sequence-number"), limit=limit, session_id=fields.text_or_none("session-id")
        )
        entries: list[Value] = []
        room = _PEEK_BYTES
        for message in messages:
            encoded = encode_delivery(message)
            room -= len(encoded)
            if room < 0 and len(entries) > 0:
                break
            entries.append({"message": encoded})
        return _done({"messages": entries}) if len(entries) > 0 else _nothing()

    def _receive(self, fields: _Fields) -> Answer:
        messages = self._open_queue().take_deferred(
            fields.numbers("sequence-numbers"),
            session_id=fields.text_or_none("session-id"),
            delete=fields.number("receiver-settle-mode") == _RECEIVE_AND_DELETE,
        )
        return _done({"messages": [_received(message) for message in messages]}) if len(messages) > 0 else _nothing()

    def _schedule(self, fields: _Fields) -> Answer:
        if isinstance(self._entity, SubscriptionEntity) or self._part is not SubQueue.MAIN:
            raise OperationNotAllowed(
                f"messages are sent to queues and topics, not to {self._entity.description.path!r}"
            )
        description = self._entity.description
        contents: list[Content] = []
        for position, entry in enumerate(fields.items("messages")):
            encoded = entry.get("message") if isinstance(entry, dict) else None
            if not isinstance(encoded, bytes):
                raise InvalidArgument(f"messages[{position}] has no encoded message; allowed: binary under 'message'")
            check_size(len(encoded), messages=1, description=description)
            contents.append(_read(encoded, position=position))
        return _done({"sequence-numbers": Array(tuple(self._entity.schedule(contents)))})

    def _cancel(self, fields: _Fields) -> Answer:
        if isinstance(self._entity, SubscriptionEntity):
            raise OperationNotAllowed("a subscription has no scheduled messages; cancel them at its topic")
        self._entity.cancel(fields.numbers("sequence-numbers"))
        return _done({})

    # Locks

    def _renew_lock(self, fields: _Fields) -> Answer:
        queue = self._queue()
        return _done({"expirations": Array(tuple(Timestamp(queue.renew(token)) for token in fields.tokens()))})

    def _settle(self, fields: _Fields) -> Answer:
        queue, status = self._queue(), fields.text("disposition-status")
        settle: Callable[[bytes], None]
        if status == "completed":
            settle = queue.complete
        elif status == "abandoned":
            settle = queue.abandon
        elif status == "defered":
            settle = queue.defer
        elif status == "suspended":
            reason = fields.text_or_none("deadletter-reason")
            description = fields.text_or_none("deadletter-description")

            def settle(token: bytes) -> None:
                queue.dead_letter(token, reason=reason, description=description)
        else:
            raise InvalidArgument(
                f"disposition-status is {status!r}; allowed: 'completed', 'abandoned', 'defered', 'suspended'"
            )
        wanted = named([encode(each) for each in fields.pairs("properties-to-modify")])
        for token in fields.tokens():
            amend(queue, token, wanted=wanted)
            settle(token)
        return _done({})

    # Sessions

    def _renew_session_lock(self, fields: _Fields) -> Answer:
        return _done({"expiration": Timestamp(self._queue().renew_session(fields.text("session-id")))})

    def _session_state(self, fields: _Fields) -> Answer:
        return _done({"session-state": self._queue().session_state(fields.text("session-id"))})

    def _set_session_state(self, fields: _Fields) -> Answer:
        self._queue().set_session_state(fields.text("session-id"), fields.binary_or_none("session-state"))
        return _done({})

    # Rules

    def _add_rule(self, fields: _Fields) -> Answer:
        subscription = self._subscription()
        rule = read_rule(fields.text("rule-name"), fields.value("rule-description"))
        try:
            subscription.add_rule(rule)
        except DescriptionError as error:
            raise InvalidArgument(str(error)) from error
        return _done({})

    def _remove_rule(self, fields: _Fields) -> Answer:
        self._subscription().remove_rule(fields.text("rule-name"))
        return _done({})

    def _list_rules(self, fields: _Fields) -> Answer:
        skip, top = max(0, fields.number("skip")), max(0, fields.number("top"))
        page = self._subscription().description.rules[skip : skip + top]
        return _done({"rules": [describe_rule(rule) for rule in page]}) if len(page) > 0 else _nothing()

    def _list_sessions(self, fields: _Fields) -> Answer:
        after, skip, top = fields.number("last-updated-time"), fields.number("skip"), fields.number("top")
        if skip < 0 or top < 0:
            raise InvalidArgument(f"skip is {skip} and top is {top}; allowed: 0 and more")
        session_ids = self._open_queue().session_ids(state_after=None if after > _END_OF_CALENDAR else after)
        page = session_ids[skip : skip + top]
        return _done({"skip": Int(skip), "sessions-ids": Array(tuple(page))}) if len(page) > 0 else _nothing()

    # Steps

    def _subscription(self) -> SubscriptionEntity:
        if not isinstance(self._entity, SubscriptionEntity):
            raise OperationNotAllowed(f"{self._entity.description.path!r} has no rules; allowed: a subscription")
        return self._entity

    def _queue(self) -> MessageQueue:
        if isinstance(self._entity, TopicEntity):
            path = self._entity.description.path
            raise OperationNotAllowed(f"{path!r} is a topic; its messages are in its subscriptions")
        return self._entity.part(self._part)

    def _open_queue(self) -> MessageQueue:
        """Return the queue, if its entity's status lets messages be received or browsed.

        What was received before a change of status may still be settled and renewed.
        """
        queue = self._queue()
        if not isinstance(self._entity, TopicEntity):
            obstacle = receive_obstacle(self._entity.description)
            if obstacle is not None:
                raise obstacle
        return queue


def refuse_request(error: BrokerError) -> Answer:
    """Answer with a refusal. Clients choose their exception by the condition."""
    return Answer(
        properties={
            "statusCode": Int(error.status),
            "statusDescription": str(error),
            "errorCondition": Symbol(error.condition),
        },
        body={},
    )


class _Fields:
    """The fields of a request, each checked when it is read."""

    def __init__(self, fields: dict[Value, Value]) -> None:
        self._fields = fields

    def value(self, name: str) -> Value:
        return self._fields.get(name)

    def number(self, name: str) -> int:
        value = self._fields.get(name)
        if not isinstance(value, int):
            raise InvalidArgument(f"{name} is {value!r}; allowed: an integer")
        return value

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise InvalidArgument(f"{name} is {value!r}; allowed: a string")
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def binary_or_none(self, name: str) -> bytes | None:
        value = self._fields.get(name)
        if value is not None and not isinstance(value, bytes):
            raise InvalidArgument(f"{name} is no binary; allowed: binary or null")
        return value

    def pairs(self, name: str) -> list[Value]:
        """Return the names and values of a map in turn; none when it is missing."""
        value = self._fields.get(name)
        if value is not None and not isinstance(value, dict):
            raise InvalidArgument(f"{name} is {value!r}; allowed: a map")
        return [] if value is None else [each for pair in value.items() for each in pair]

    def items(self, name: str) -> list[Value]:
        value = self._fields.get(name)
        if not isinstance(value, list):
            raise InvalidArgument(f"{name} is no list or array")
        return value

    def numbers(self, name: str) -> list[int]:
        numbers = [item for item in self.items(name) if isinstance(item, int)]
        if len(numbers) != len(self.items(name)):
            raise InvalidArgument(f"{name} holds other values than integers")
        return numbers

    def tokens(self) -> list[bytes]:
        uuids = [item for item in self.items("lock-tokens") if isinstance(item, UUID)]
        if len(uuids) != len(self.items("lock-tokens")):
            raise InvalidArgument("lock-tokens holds other values than UUIDs")
        return [uuid.bytes_le for uuid in uuids]


def _done(body: Value) -> Answer:
    return Answer(properties={"statusCode": Int(200), "statusDescription": "OK"}, body=body)


def _nothing() -> Answer:
    return Answer(properties={"statusCode": Int(_NO_CONTENT), "statusDescription": "No Content"}, body={})


def _received(message: Message) -> Value:
    entry: dict[Value, Value] = {"message": encode_delivery(message)}
    if message.lock is not None:
        entry["lock-token"] = UUID(bytes_le=message.lock.token)
    return entry


def _read(encoded: bytes, *, position: int) -> Content:
    try:
        return read_message(encoded, new_id=new_message_id)
    except MalformedValueError as error:
        raise InvalidArgument(f"messages[{position}] is no AMQP message: {error}") from error
