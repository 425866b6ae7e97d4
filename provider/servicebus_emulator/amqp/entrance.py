"""The way into a namespace: who connects is let in by what they speak."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from servicebus_emulator.amqp.arrival import ArrivalCounts, Door
from servicebus_emulator.amqp.attach import attach
from servicebus_emulator.amqp.connection import AmqpConnection
from servicebus_emulator.amqp.first_request import FirstRequest
from servicebus_emulator.amqp.greeting import Greeting, Speech
from servicebus_emulator.amqp.websocket import MOST_OF_A_REQUEST, WebSocketConnection

if TYPE_CHECKING:
    from servicebus_emulator.amqp.broker import Broker
    from servicebus_emulator.amqp.patience import Patience

__all__ = ["entrance"]


def entrance(
    broker: Broker,
    *,
    http: Callable[[], asyncio.Protocol],
    tls: Callable[[], ssl.SSLContext],
    patience: Patience,
    counts: ArrivalCounts,
) -> Door:
    """Return the door of a port on which AMQP, AMQP over WebSocket and HTTP are spoken, in clear and under TLS.

    :param broker: the namespace at work, whose faults strike here too.
    :param http: makes what serves HTTP.
    :param tls: returns what a TLS server is made of.
    :param patience: how long clients are waited for.
    :param counts: where it is counted what became of them.
    """
    seconds = patience.greeting_seconds

    def amqp() -> AmqpConnection:
        return AmqpConnection(broker, attach=attach, patience=patience)

    def websocket() -> WebSocketConnection:
        return WebSocketConnection(amqp, counts=counts)

    hosts: dict[Speech, Callable[[], asyncio.Protocol]] = {
        Speech.AMQP: amqp,
        Speech.WEBSOCKET: lambda: FirstRequest(websocket, seconds=seconds, counts=counts, most=MOST_OF_A_REQUEST),
        Speech.HTTP: http,
    }
    return Door(
        make=lambda: Greeting(hosts, seconds=seconds, counts=counts),
        tls=tls,
        seconds=seconds,
        counts=counts,
        watch=broker.trouble,
    )
