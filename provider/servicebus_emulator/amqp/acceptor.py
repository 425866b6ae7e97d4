"""The handler of a namespace's port: AMQP, AMQP over WebSocket and HTTP, each in clear and under TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from servicebus_emulator.amqp.nodes.attach import attach
from servicebus_emulator.amqp.session.connection import AmqpConnection
from servicebus_emulator.amqp.transport.newcomers import Newcomer, StreamProtocol
from servicebus_emulator.amqp.transport.port_handler import PortHandler
from servicebus_emulator.amqp.transport.protocol_detection import (
    ConnectionCounts,
    WireProtocol,
    protocol_detector,
    request_head_reader,
)

if TYPE_CHECKING:
    from servicebus_emulator.amqp.broker.broker import Broker
    from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts


def make_port_handler(
    broker: Broker,
    *,
    http: Callable[[], StreamProtocol],
    tls: Callable[[], ssl.SSLContext],
    timeouts: ClientTimeouts,
    counts: ConnectionCounts,
) -> PortHandler:
    """Return the handler of a namespace's port.

    :param broker: the namespace's broker; its faults also apply to connections without a protocol.
    :param http: makes the protocol that serves HTTP.
    :param tls: returns the TLS server context.
    :param timeouts: how long to wait for clients.
    :param counts: counts connections by outcome.
    """
    seconds = timeouts.greeting_seconds

    def amqp() -> AmqpConnection:
        return AmqpConnection(broker, attach=attach, timeouts=timeouts)

    def newcomer() -> Newcomer:
        return Newcomer(amqp())

    def websocket() -> StreamProtocol:
        # Imported by the first client that needs it: not every one has any.
        from servicebus_emulator.amqp.transport.websocket import MAX_REQUEST_BYTES, WebSocketConnection

        return request_head_reader(
            lambda: Newcomer(WebSocketConnection(amqp, counts=counts, well_known=broker.guard.well_known)),
            timeout=seconds,
            counts=counts,
            max_bytes=MAX_REQUEST_BYTES,
        )

    protocols: dict[WireProtocol, Callable[[], StreamProtocol]] = {
        WireProtocol.AMQP: newcomer,
        WireProtocol.WEBSOCKET: websocket,
        WireProtocol.HTTP: http,
    }
    return PortHandler(
        make_protocol=lambda: protocol_detector(protocols, timeout=seconds, counts=counts),
        tls=tls,
        timeout=seconds,
        counts=counts,
        observer=broker.fault_injector,
    )
