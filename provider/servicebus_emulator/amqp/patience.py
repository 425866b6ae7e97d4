"""How long clients are waited for."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Patience"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Times after which a client is given up, each in seconds; None = never.

    The idle times of links and of connections without links are those of the service ("AMQP errors in Azure
    Service Bus", Microsoft Learn); the other times are our own.

    :param greeting_seconds: to begin to speak, and to complete a TLS handshake.
    :param opening_seconds: to get from the first byte of AMQP to an open connection.
    :param link_idle_seconds: without any sign of life on a link; it is detached with ``amqp:link:detach-forced``.
    :param unlinked_seconds: without any link to an entity; the connection is closed with ``amqp:connection:forced``.
    :param silence_seconds: without a single byte; announced to the client, which is dropped after it.
    :raises ValueError: when a time is not positive.
    """

    greeting_seconds: float = 20
    opening_seconds: float | None = 60
    link_idle_seconds: float | None = 600
    unlinked_seconds: float | None = 300
    silence_seconds: float | None = 240

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ValueError(f"{field.name} is {value}; allowed: a number of seconds above 0")
