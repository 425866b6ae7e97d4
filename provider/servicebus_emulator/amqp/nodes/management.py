"""The management node of an entity, ``<entity>/$management``.

Operations and field names are those of Microsoft's "AMQP 1.0 in Azure Service Bus: request/response-based
operations".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from servicebus_emulator.amqp.codec.delivery_encoder import encode_delivery
from servicebus_emulator.amqp.codec.message_checks import check_messages
from servicebus_emulator.amqp.codec.raw_encoding import MalformedValueError
from servicebus_emulator.amqp.codec.section_rewrite import by_name, set_application_properties
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.amqp.codec.value_codec import Array, Int, Symbol, Timestamp, Value, encode
from servicebus_emulator.amqp.nodes.receiver_link import new_message_id
from servicebus_emulator.amqp.nodes.request_response import Request, Response
from servicebus_emulator.amqp.nodes.rule_codec import decode_rule, encode_rule
from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import (
    BrokerError,
    InvalidArgument,
    OperationNotAllowed,
    OperationNotSupported,
)
from servicebus_emulator.engine.model.message import Content, Message
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.queue.limits import check_encoded_size, receive_error

if TYPE_CHECKING:
    from servicebus_emulator.engine.namespace.entity_registry import AnyEntity
    from servicebus_emulator.engine.queue.queue import MessageQueue

T = TypeVar("T")

_PREFIX: Final = "com.microsoft:"
_MAX_PEEKED_MESSAGES: Final = 1000
_MAX_PEEKED_BYTES: Final = 1024 * 1024
_RECEIVE_AND_DELETE: Final = 0
_NO_CONTENT: Final = 204
# The last millisecond of the year 9999; a client that names a later time asks for sessions of any time.
_END_OF_CALENDAR: Final = 253_402_300_799_999


LISTEN: Final = frozenset({AccessRight.LISTEN})
SEND: Final = frozenset({AccessRight.SEND})
_SENDING: Final = frozenset({f"{_PREFIX}schedule-message", f"{_PREFIX}cancel-scheduled-message"})

MANAGEMENT_RIGHTS: Final = LISTEN | SEND
"""The rights of which a client needs one to attach to the node."""


def rights_for(request: Request) -> frozenset[AccessRight]:
    """Return the rights of which a request needs one.

    Scheduling and cancelling require Send; everything else requires Listen, including the rules of a subscription: "the
    rule manager requires only Listen claims" (Microsoft's reference of ``ServiceBusRuleManager``).
    """
    return SEND if request.properties.get("operation") in _SENDING else LISTEN


class ManagementNode:
    """Executes the requests to one entity or sub-queue."""

    def __init__(self, entity: AnyEntity, *, sub_queue: SubQueue) -> None:
        self._entity = entity
        self._sub_queue = sub_queue
        self._operations: dict[str, Callable[[_RequestFields], Response]] = {
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

    def execute(self, request: Request) -> Response:
        """Execute a request.

        :raises BrokerError: when it is refused.
        """
        name = request.properties.get("operation")
        operation = self._operations.get(name.removeprefix(_PREFIX)) if isinstance(name, str) else None
        if operation is None:
            known = ", ".join(_PREFIX + each for each in self._operations)
            raise OperationNotSupported(f"operation is {name!r}; allowed: {known}")
        if not isinstance(request.body, dict):
            raise InvalidArgument(f"the body of {name!r} is not a map")
        self._entity.touch()
        return operation(_RequestFields(request.body))

    # Messages

    def _peek(self, fields: _RequestFields) -> Response:
        limit = min(fields.count("message-count"), _MAX_PEEKED_MESSAGES)
        messages = self._receivable_queue().peek(
            fields.number("from-sequence-number"), limit=limit, session_id=fields.text_or_none("session-id")
        )
        entries: list[Value] = []
        remaining = _MAX_PEEKED_BYTES
        for message in messages:
            encoded = encode_delivery(message)
            remaining -= len(encoded)
            if remaining < 0 and len(entries) > 0:
                break
            entries.append({"message": encoded})
        return _ok_unless_empty(entries, {"messages": entries})

    def _receive(self, fields: _RequestFields) -> Response:
        messages = self._receivable_queue().receive_deferred(
            fields.numbers("sequence-numbers"),
            session_id=fields.text_or_none("session-id"),
            delete=fields.number("receiver-settle-mode") == _RECEIVE_AND_DELETE,
        )
        return _ok_unless_empty(messages, {"messages": [_message_entry(message) for message in messages]})

    def _schedule(self, fields: _RequestFields) -> Response:
        if isinstance(self._entity, SubscriptionEntity) or self._sub_queue is not SubQueue.MAIN:
            raise OperationNotAllowed(
                f"messages are sent to queues and topics, not to {self._entity.description.path!r}"
            )
        description = self._entity.description
        contents: list[Content] = []
        for position, entry in enumerate(fields.items("messages")):
            encoded = entry.get("message") if isinstance(entry, dict) else None
            if not isinstance(encoded, bytes):
                raise InvalidArgument(f"messages[{position}] has no encoded message; allowed: binary under 'message'")
            check_encoded_size(len(encoded), messages=1, description=description)
            contents.append(_decode_message(encoded, position=position))
        check_messages(contents)
        return _ok({"sequence-numbers": Array(tuple(self._entity.schedule(contents)))})

    def _cancel(self, fields: _RequestFields) -> Response:
        if isinstance(self._entity, SubscriptionEntity):
            raise OperationNotAllowed("a subscription has no scheduled messages; cancel them at its topic")
        self._entity.cancel(fields.numbers("sequence-numbers"))
        return _ok({})

    # Locks

    def _renew_lock(self, fields: _RequestFields) -> Response:
        queue = self._require_queue()
        return _ok({"expirations": Array(tuple(Timestamp(queue.renew_lock(token)) for token in fields.tokens()))})

    def _settle(self, fields: _RequestFields) -> Response:
        queue, status = self._require_queue(), fields.text("disposition-status")
        reason, description = fields.text_or_none("deadletter-reason"), fields.text_or_none("deadletter-description")
        settlements: dict[str, Callable[[bytes], None]] = {
            "completed": queue.complete,
            "abandoned": queue.abandon,
            "defered": queue.defer,
            "suspended": partial(queue.dead_letter, reason=reason, description=description),
        }
        settle = settlements.get(status)
        if settle is None:
            raise InvalidArgument(f"disposition-status is {status!r}; allowed: {', '.join(map(repr, settlements))}")
        properties = by_name([encode(each) for each in fields.pairs("properties-to-modify")])
        for token in fields.tokens():
            set_application_properties(queue, token, properties=properties)
            settle(token)
        return _ok({})

    # Sessions

    def _renew_session_lock(self, fields: _RequestFields) -> Response:
        return _ok({"expiration": Timestamp(self._require_queue().renew_session_lock(fields.text("session-id")))})

    def _session_state(self, fields: _RequestFields) -> Response:
        return _ok({"session-state": self._require_queue().session_state(fields.text("session-id"))})

    def _set_session_state(self, fields: _RequestFields) -> Response:
        self._require_queue().set_session_state(fields.text("session-id"), fields.binary_or_none("session-state"))
        return _ok({})

    # Rules

    def _add_rule(self, fields: _RequestFields) -> Response:
        subscription = self._require_subscription()
        rule = decode_rule(fields.text("rule-name"), fields.value("rule-description"))
        try:
            subscription.add_rule(rule)
        except DescriptionError as error:
            raise InvalidArgument(str(error)) from error
        return _ok({})

    def _remove_rule(self, fields: _RequestFields) -> Response:
        self._require_subscription().remove_rule(fields.text("rule-name"))
        return _ok({})

    def _list_rules(self, fields: _RequestFields) -> Response:
        skip, top = max(0, fields.number("skip")), max(0, fields.number("top"))
        page = self._require_subscription().description.rules[skip : skip + top]
        return _ok_unless_empty(page, {"rules": [encode_rule(rule) for rule in page]})

    def _list_sessions(self, fields: _RequestFields) -> Response:
        after, skip, top = fields.number("last-updated-time"), fields.count("skip"), fields.count("top")
        session_ids = self._receivable_queue().session_ids(state_after=None if after > _END_OF_CALENDAR else after)
        page = session_ids[skip : skip + top]
        return _ok_unless_empty(page, {"skip": Int(skip), "sessions-ids": Array(tuple(page))})

    # Helpers

    def _require_subscription(self) -> SubscriptionEntity:
        if not isinstance(self._entity, SubscriptionEntity):
            raise OperationNotAllowed(f"{self._entity.description.path!r} has no rules; allowed: a subscription")
        return self._entity

    def _require_queue(self) -> MessageQueue:
        if isinstance(self._entity, TopicEntity):
            path = self._entity.description.path
            raise OperationNotAllowed(f"{path!r} is a topic; its messages are in its subscriptions")
        return self._entity.sub_queue(self._sub_queue)

    def _receivable_queue(self) -> MessageQueue:
        """Return the queue, if the status of its entity permits receiving and peeking.

        Messages received before the status changed can still be settled and their locks renewed.
        """
        queue = self._require_queue()
        if not isinstance(self._entity, TopicEntity):
            obstacle = receive_error(self._entity.description)
            if obstacle is not None:
                raise obstacle
        return queue


def error_response(error: BrokerError, description: str) -> Response:
    """Return the response to a refused request. Clients choose their exception by the condition."""
    return Response(
        properties={
            "statusCode": Int(error.status),
            "statusDescription": description,
            "errorCondition": Symbol(error.condition),
        },
        body={},
    )


class _RequestFields:
    """The fields of a request, validated on access."""

    def __init__(self, fields: dict[Value, Value]) -> None:
        self._fields = fields

    def value(self, name: str) -> Value:
        return self._fields.get(name)

    def number(self, name: str) -> int:
        return self._typed(name, kind=int, allowed="an integer")

    def count(self, name: str) -> int:
        number = self.number(name)
        if number < 0:
            raise InvalidArgument(f"{name} is {number}; allowed: 0 and more")
        return number

    def text(self, name: str) -> str:
        return self._typed(name, kind=str, allowed="a string")

    def text_or_none(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def binary_or_none(self, name: str) -> bytes | None:
        value = self._fields.get(name)
        if value is not None and not isinstance(value, bytes):
            raise InvalidArgument(f"{name} is not binary; allowed: binary or null")
        return value

    def pairs(self, name: str) -> list[Value]:
        """Return the alternating names and values of a map; empty when it is missing."""
        value = self._fields.get(name)
        if value is not None and not isinstance(value, dict):
            raise InvalidArgument(f"{name} is {value!r}; allowed: a map")
        return [] if value is None else [each for pair in value.items() for each in pair]

    def items(self, name: str) -> list[Value]:
        value = self._fields.get(name)
        if not isinstance(value, list):
            raise InvalidArgument(f"{name} is not a list or array")
        return value

    def numbers(self, name: str) -> list[int]:
        return self._typed_items(name, kind=int, allowed="integers")

    def tokens(self) -> list[bytes]:
        return [uuid.bytes_le for uuid in self._typed_items("lock-tokens", kind=UUID, allowed="UUIDs")]

    def _typed(self, name: str, *, kind: type[T], allowed: str) -> T:
        value = self._fields.get(name)
        if not isinstance(value, kind):
            raise InvalidArgument(f"{name} is {value!r}; allowed: {allowed}")
        return value

    def _typed_items(self, name: str, *, kind: type[T], allowed: str) -> list[T]:
        items = self.items(name)
        typed = [item for item in items if isinstance(item, kind)]
        if len(typed) != len(items):
            raise InvalidArgument(f"{name} holds other values than {allowed}")
        return typed


def _ok(body: Value) -> Response:
    return Response(properties={"statusCode": Int(200), "statusDescription": "OK"}, body=body)


def _ok_unless_empty(items: Sequence[object], body: Value) -> Response:
    if len(items) > 0:
        return _ok(body)
    return Response(properties={"statusCode": Int(_NO_CONTENT), "statusDescription": "No Content"}, body={})


def _message_entry(message: Message) -> Value:
    entry: dict[Value, Value] = {"message": encode_delivery(message)}
    if message.lock is not None:
        entry["lock-token"] = UUID(bytes_le=message.lock.token)
    return entry


def _decode_message(encoded: bytes, *, position: int) -> Content:
    try:
        return decode_message(encoded, new_id=new_message_id)
    except MalformedValueError as error:
        raise InvalidArgument(f"messages[{position}] is not an AMQP message: {error}") from error
