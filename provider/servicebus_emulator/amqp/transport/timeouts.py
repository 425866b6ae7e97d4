"""Timeouts for clients."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTimeouts:
    """Timeouts after which a client is disconnected, in seconds; None = never.

    The defaults of `link_idle_seconds` and `unlinked_seconds` are those of the service ("AMQP errors in Azure Service
    Bus", Microsoft Learn), as is that of `silence_seconds`, by its clients' logs; the others are the emulator's own.

    :param greeting_seconds: until the first bytes, and for the TLS handshake.
    :param opening_seconds: from the first byte of AMQP until the connection is open.
    :param link_idle_seconds: without activity on a link, which is then detached with ``amqp:link:detach-forced``.
    :param unlinked_seconds: without a link to an entity; the connection is closed with ``amqp:connection:forced``.
    :param silence_seconds: without any frame; announced to the client as the idle timeout of the connection, which is
        then closed with ``amqp:connection:forced``.
    :raises ValueError: when a timeout is not positive.
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
