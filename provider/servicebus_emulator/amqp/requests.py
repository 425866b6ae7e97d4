"""Request and answer over a pair of links: a client sends to a node and receives from the same node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from servicebus_emulator.amqp import proton
from servicebus_emulator.amqp.assembly import Assembly
from servicebus_emulator.amqp.encoding import NULL, MalformedValueError, compound_items, decode_text, encode_compound
from servicebus_emulator.amqp.sections import Code, sections
from servicebus_emulator.amqp.spoiling import spoil
from servicebus_emulator.amqp.values import Value, decode, encode
from servicebus_emulator.engine.errors import BrokerError, InvalidArgument, MessageTooLarge

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.connection import AmqpConnection
    from servicebus_emulator.amqp.ends import AnsweringEnd
    from servicebus_emulator.faults import Operation

__all__ = ["Answer", "AnswerEnd", "Request", "RequestEnd", "read_request"]

_CREDIT: Final = 100
_MOST_OF_A_REQUEST: Final = 2 * 1024 * 1024
_LIST: Final = 0xC0
_MESSAGE_ID: Final = 0
_REPLY_TO: Final = 4
_PROPERTIES: Final = b"\x00\x53\x73"
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"
_VALUE: Final = b"\x00\x53\x77"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of a client.

    :ivar message_id: still encoded, so that the answer's correlation id has the same type.
    :ivar properties: the application properties.
    :ivar body: never shown: it may hold a token.
    """

    message_id: bytes
    reply_to: str | None
    properties: dict[Value, Value]
    body: Value = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer to a request."""

    properties: dict[Value, Value]
    body: Value = None

    def encode(self, *, correlation_id: bytes) -> bytes:
        """Encode the answer as a message; `correlation_id` is the request's encoded message id."""
        fields = NULL * 5 + correlation_id
        return b"".join(
            (
                _PROPERTIES,
                encode_compound(_LIST, body=fields, count=6),
                _APPLICATION_PROPERTIES,
                encode(self.properties),
                _VALUE,
                encode(self.body),
            )
        )


def read_request(data: bytes) -> Request:
    """Read an encoded request.

    :raises InvalidArgument: when it is no request.
    """
    fields: list[bytes] = []
    properties: Value = {}
    body: Value = None
    try:
        for code, _, start, end in sections(data):
            value = data[start:end]
            if code == Code.PROPERTIES:
                fields = compound_items(value)
            elif code == Code.APPLICATION_PROPERTIES:
                properties = decode(value)
            elif code == Code.VALUE:
                body = decode(value)
        reply_to = decode_text(fields[_REPLY_TO]) if len(fields) > _REPLY_TO else None
    except MalformedValueError as error:
        raise InvalidArgument(f"a request of {len(data)} bytes cannot be read: {error}") from error
    if not isinstance(properties, dict):
        raise InvalidArgument("the application properties of a request are no map")
    return Request(
        message_id=fields[_MESSAGE_ID] if len(fields) > _MESSAGE_ID else NULL,
        reply_to=reply_to,
        properties=properties,
        body=body,
    )


class AnswerEnd:
    """The link on which a client receives answers."""

    def __init__(self, connection: AmqpConnection, link: Link, *, node: str) -> None:
        self.node = node
        self.address = link.remote_target.address
        self._connection = connection
        self._handle = link._impl  # noqa: SLF001 - the only door from Proton's wrapper to what it wraps
        connection.answer_ends.append(self)

    def send(self, data: bytes) -> None:
        """Send an answer; Proton keeps it until the client has credit for it."""
        proton.send(self._handle, tag=uuid4().bytes, data=data, settled=True)

    def opened(self) -> None:
        """Nothing: answers follow requests."""

    def flowed(self) -> None:
        """Nothing: Proton sends what waits for credit."""

    def delivered(self, delivery: proton.Handle) -> None:
        """Nothing: answers are sent settled."""

    def closed(self) -> None:
        """Forget the link."""
        self._connection.answer_ends.remove(self)


class RequestEnd:
    """The link on which a client sends requests.

    :param node: the node's address; answers go to the client's links from the same node.
    :param kind: what requests are to faults: the operation, and the path of the entity they are about.
    :param carry_out: carries out a request; what it raises becomes an answer by `refusal`.
    :param limit: how large a request may be, in bytes.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        link: Link,
        *,
        node: str,
        kind: tuple[Operation, str | None],
        carry_out: Callable[[Request], Answer],
        refusal: Callable[[BrokerError], Answer],
        limit: int = _MOST_OF_A_REQUEST,
    ) -> None:
        self._connection = connection
        self._node = node
        self._link = link
        self._kind = kind
        self._open = True
        self._carry_out = carry_out
        self._refusal = refusal
        self._handle = link._impl  # noqa: SLF001 - the only door from Proton's wrapper to what it wraps
        self._assembly = Assembly(self._handle, limit=limit)

    def opened(self) -> None:
        """Let the client send."""
        proton.add_credit(self._handle, _CREDIT)

    def flowed(self) -> None:
        """Nothing: a sender's flow asks for nothing."""

    def closed(self) -> None:
        """Note that nobody can be answered any more."""
        self._open = False

    def delivered(self, delivery: proton.Handle) -> None:
        """Carry out a request; answer it once what it did is durable."""
        broker = self._connection.broker
        taken = self._assembly.take(delivery)
        if taken is None:
            return
        data, size = taken
        try:
            request = self._read(data, size=size)
        except BrokerError as error:
            broker.answer(self._connection, partial(proton.reject, delivery, error=error))
            return
        operation, entity = self._kind
        struck = broker.trouble.strike(operation, entity=entity)
        if struck is None:
            broker.answer(self._connection, self._carried_out(delivery, request))
            return
        spoil(
            struck,
            connection=self._connection,
            link=self._link,
            carry_out=partial(self._carried_out, delivery, request),
            refuse=lambda error: self._replying(delivery, request, self._refusal(error)),
            is_open=lambda: self._open,
        )

    def _read(self, data: bytes, *, size: int) -> Request:
        limit = self._assembly.limit
        if size > limit:
            raise MessageTooLarge(f"a request of {size} bytes was sent to {self._node!r}; allowed: {limit} bytes")
        return read_request(data)

    def _carried_out(self, delivery: proton.Handle, request: Request) -> Callable[[], None]:
        try:
            answer = self._carry_out(request)
        except BrokerError as error:
            self._connection.broker.note_refusal(error)
            answer = self._refusal(error)
        return self._replying(delivery, request, answer)

    def _replying(self, delivery: proton.Handle, request: Request, answer: Answer) -> Callable[[], None]:
        encoded = answer.encode(correlation_id=request.message_id)
        return partial(self._reply, delivery, request.reply_to, encoded)

    def _reply(self, delivery: proton.Handle, reply_to: str | None, encoded: bytes) -> None:
        proton.accept(delivery)
        end = self._end_for(reply_to)
        if end is not None:
            end.send(encoded)

    def _end_for(self, reply_to: str | None) -> AnsweringEnd | None:
        of_node = [end for end in self._connection.answer_ends if end.node == self._node]
        addressed = [end for end in of_node if end.address == reply_to]
        # The newest one: a client that reconnected its links may have left an older one behind.
        return next(reversed(addressed or of_node), None)
