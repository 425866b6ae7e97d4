"""Request-response over a pair of links: a client sends to a node and receives from the same node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.amqp.codec.raw_encoding import (
    NULL,
    MalformedValueError,
    compound_items,
    decode_text,
    encode_list,
)
from servicebus_emulator.amqp.codec.sections import SectionCode, encode_section, received_sections
from servicebus_emulator.amqp.codec.value_codec import Value, decode, encode
from servicebus_emulator.amqp.nodes.operation_faults import apply_fault
from servicebus_emulator.amqp.session.delivery_buffer import DeliveryBuffer
from servicebus_emulator.amqp.session.link_registry import LinkHandler
from servicebus_emulator.engine.model.errors import (
    BrokerError,
    InvalidArgument,
    MessageTooLarge,
    OperationNotAllowed,
    OperationNotSupported,
    QuotaExceeded,
)
from servicebus_emulator.engine.model.tracking import tracked

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.session.connection import AmqpConnection
    from servicebus_emulator.amqp.session.link_registry import ReplyLink
    from servicebus_emulator.faults import Operation

_CREDIT: Final = 100
_MAX_REQUEST_BYTES: Final = 2 * 1024 * 1024
# Positions among the properties.
_MESSAGE_ID, _REPLY_TO, _CORRELATION_ID = 0, 4, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A client's request.

    :ivar message_id: encoded, so that the correlation id of the response has the same type.
    :ivar properties: the application properties.
    :ivar body: excluded from the representation, as it may be a token.
    """

    message_id: bytes
    reply_to: str | None
    properties: dict[Value, Value]
    body: Value = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The response to a request."""

    properties: dict[Value, Value]
    body: Value = None

    def encode(self, *, correlation_id: bytes) -> bytes:
        """Encode the response as a message.

        :param correlation_id: the encoded message id of the request.
        """
        return (
            encode_section(SectionCode.PROPERTIES, encode_list([*[NULL] * _CORRELATION_ID, correlation_id]))
            + encode_section(SectionCode.APPLICATION_PROPERTIES, encode(self.properties))
            + encode_section(SectionCode.VALUE, encode(self.body))
        )


def decode_request(data: bytes) -> Request:
    """Decode a request.

    :raises InvalidArgument: when the bytes are no request.
    :raises MessageTooLarge: when its application properties exceed 64 KB.
    """
    fields: list[bytes] = []
    properties: Value = {}
    body: Value = None
    try:
        for code, _, start, end in received_sections(data):
            value = data[start:end]
            if code == SectionCode.PROPERTIES:
                fields = compound_items(value)
            elif code == SectionCode.APPLICATION_PROPERTIES:
                properties = decode(value)
            elif code == SectionCode.VALUE:
                body = decode(value)
        reply_to = decode_text(fields[_REPLY_TO]) if len(fields) > _REPLY_TO else None
    except MalformedValueError as error:
        raise InvalidArgument(f"a request of {len(data)} bytes cannot be decoded: {error}") from error
    if not isinstance(properties, dict):
        raise InvalidArgument("the application properties of a request are no map")
    return Request(
        message_id=fields[_MESSAGE_ID] if len(fields) > _MESSAGE_ID else NULL,
        reply_to=reply_to,
        properties=properties,
        body=body,
    )


class ResponseLink(LinkHandler):
    """The emulator's sender of a node's responses to a client."""

    def __init__(self, connection: AmqpConnection, link: Link, *, node: str) -> None:
        self.node = node
        self.address = link.remote_target.address
        self._connection = connection
        self._handle = link._impl  # noqa: SLF001 - the C object that Proton's wrapper hides
        connection.reply_links.append(self)

    def on_delivery(self, delivery: proton.Handle) -> None:  # noqa: ARG002 - whatever it is
        """Refuse what the client sends where it receives; Proton would keep it, and responses are sent settled.

        :raises OperationNotAllowed: always.
        """
        raise OperationNotAllowed("a transfer arrived on a link on which the client receives; allowed: none")

    @property
    def waiting(self) -> int:
        """How many responses the client has not taken."""
        return proton.queued(self._handle)

    def send(self, data: bytes) -> None:
        """Send a response; Proton buffers it until the client gives credit."""
        proton.send(self._handle, tag=uuid4().bytes, data=data, settled=True)

    def on_closed(self) -> None:
        """Forget the link."""
        self._connection.reply_links.remove(self)


class RequestLink(LinkHandler):
    """The emulator's receiver of a client's requests to a node.

    :param node: the node; responses go to the client's links from the same node.
    :param operation: the operation that faults can strike, and the path of the entity, if any.
    :param execute: executes a request.
    :param error_response: returns the response to a request that `execute` refused, with a description.
    :param max_bytes: the maximum size of a request.
    :param max_waiting: how many responses of the node may wait for a client that does not take them; None = any number.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        link: Link,
        *,
        node: str,
        operation: tuple[Operation, str | None],
        execute: Callable[[Request], Response],
        error_response: Callable[[BrokerError, str], Response],
        max_bytes: int = _MAX_REQUEST_BYTES,
        max_waiting: int | None = None,
    ) -> None:
        self._connection = connection
        self.node: Final = node
        self._link = link
        self._operation, self._entity = operation
        self._open = True
        self._execute = execute
        self._error_response = error_response
        self._max_bytes = max_bytes
        self._max_waiting = max_waiting
        handle = link._impl  # noqa: SLF001 - the C object that Proton's wrapper hides
        self._buffer = DeliveryBuffer(handle, max_bytes=lambda: max_bytes, credit=_CREDIT)

    def on_attached(self) -> None:
        """Give the client credit."""
        self._buffer.renew_credit()

    def on_closed(self) -> None:
        """Send no late replies: the link is closed."""
        self._open = False

    def on_delivery(self, delivery: proton.Handle) -> None:
        """Execute a request, and respond once the change is durable.

        :raises QuotaExceeded: when the client sends requests and does not take the responses.
        """
        broker = self._connection.broker
        taken = self._buffer.take(delivery)
        if taken is None:
            return
        if self._max_waiting is not None:
            waiting = sum(link.waiting for link in self._connection.reply_links if link.node == self.node)
            if waiting >= self._max_waiting:
                raise QuotaExceeded(f"{waiting} responses of {self.node} wait for credit; allowed: {self._max_waiting}")
        data, size, _ = taken
        try:
            request = self._decode(delivery, data, size=size)
        except BrokerError as error:
            broker.reply_when_durable(self._connection, partial(proton.reject, delivery, error=error))
            return
        struck = broker.fault_injector.strike(self._operation, entity=self._entity)
        if struck is None:
            broker.reply_when_durable(self._connection, self._execute_request(delivery, request))
            return
        apply_fault(
            struck,
            connection=self._connection,
            link=self._link,
            execute=partial(self._execute_request, delivery, request),
            refuse=lambda error: self._reply_with(delivery, request, self._refusal(error)),
            is_open=lambda: self._open,
        )

    def _decode(self, delivery: proton.Handle, data: bytes, *, size: int) -> Request:
        if proton.remote_state(delivery) == proton.TRANSACTIONAL:
            raise OperationNotSupported("requests cannot be part of a transaction; send and settle over links")
        if size > self._max_bytes:
            raise MessageTooLarge(
                f"a request of {size} bytes was sent to {self.node!r}; allowed: {self._max_bytes} bytes"
            )
        return decode_request(data)

    def _execute_request(self, delivery: proton.Handle, request: Request) -> Callable[[], None]:
        try:
            response = self._execute(request)
        except BrokerError as error:
            self._connection.broker.count_refusal(error)
            response = self._refusal(error)
        return self._reply_with(delivery, request, response)

    def _refusal(self, error: BrokerError) -> Response:
        system = f"{self._connection.container}:{self.node.partition(' ')[0]}"
        return self._error_response(error, tracked(str(error), system=system))

    def _reply_with(self, delivery: proton.Handle, request: Request, response: Response) -> Callable[[], None]:
        encoded = response.encode(correlation_id=request.message_id)
        return partial(self._reply, delivery, request.reply_to, encoded)

    def _reply(self, delivery: proton.Handle, reply_to: str | None, encoded: bytes) -> None:
        proton.accept(delivery)
        link = self._reply_link(reply_to)
        if link is not None:
            link.send(encoded)

    def _reply_link(self, reply_to: str | None) -> ReplyLink | None:
        of_node = [link for link in self._connection.reply_links if link.node == self.node]
        addressed = [link for link in of_node if link.address == reply_to]
        # The newest one: a client that reattached its links may have left an older one open.
        return next(reversed(addressed or of_node), None)
