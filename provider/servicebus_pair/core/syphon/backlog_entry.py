"""A received backlog message and what it becomes on the primary: destination, time to live, schedule. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from servicebus_pair.core.model.checks import entity_path
from servicebus_pair.core.model.errors import InvalidMessageError, UndeliverableError
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.backlog_message import unreadable, unwrap
from servicebus_pair.core.protocol.relayed_message import BacklogRewriter, RelayedMessage, UnusualMessageError
from servicebus_pair.core.protocol.typed_values import text_keys, to_text
from servicebus_pair.core.sdk.received_message import ReceivedMessage
from servicebus_pair.core.sdk.relay.delivery import RelayDelivery
from servicebus_pair.core.sdk.relay.encoding import encode_message

_SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"
# Share of the lock's time for sending; the rest is for settling.
SENDING_SHARE: Final = 0.6
# Assumed if the lock appears to have ended, because the service's clock and ours disagree by more than the lock.
_DEFAULT_LOCK_SECONDS: Final = 30.0
_MILLISECOND: Final = timedelta(milliseconds=1)


class TimeToLive(StrEnum):
    """How time spent in the backlog counts towards a message's time to live (SPEC section 6)."""

    RESTART = "restart"
    ELAPSE = "elapse"


@dataclass(frozen=True, slots=True)
class Selection:
    """The destinations that a syphon serves.

    :param entities: case-folded paths; ``None`` for all.
    """

    entities: frozenset[str] | None = None

    @classmethod
    def of(cls, entities: Iterable[str] | None) -> Selection:
        """Return the selection of ``entities``, compared case-insensitively."""
        return (
            cls() if entities is None else cls(frozenset(entity_path("entity", each).casefold() for each in entities))
        )

    def matches(self, entity: str) -> bool:
        """Return whether ``entity`` is served."""
        return self.entities is None or entity.casefold() in self.entities


@dataclass(frozen=True, slots=True)
class BacklogEntry:
    """A received message and the message to be sent to the primary.

    :param send_before: until when (pair's clock, seconds) it may be sent and still be settled within its lock.
    :param lock_seconds: how long it was locked when it was read.
    """

    entity: str
    received: ReceivedMessage
    message: AmqpMessage | RelayedMessage
    send_before: float = 0.0
    lock_seconds: float = 60.0

    @property
    def session(self) -> tuple[str, str] | None:
        """The entity and session id that the message has on the primary; ``None`` without a session id."""
        if isinstance(self.message, RelayedMessage):
            session = self.message.session_id
        else:
            properties = self.message.properties
            session = None if properties is None else properties.group_id
        return None if session is None else (self.entity.casefold(), to_text(session))


def session_of(received: ReceivedMessage) -> tuple[str, str] | None:
    """Return the :attr:`BacklogEntry.session` of a peeked message; ``None`` for one that can never be delivered."""
    try:
        restored = unwrap(received.amqp)
    except UndeliverableError:
        return None
    return BacklogEntry(restored.entity, received, restored.message).session


def read_entry(
    received: ReceivedMessage, *, policy: TimeToLive, now: float, rewriter: BacklogRewriter | None = None
) -> BacklogEntry:
    """Restore the original of a message received from a backlog queue.

    :param now: seconds since the Unix epoch.
    :param rewriter: restores messages that were received encoded, unless they are unusual.
    :raises UndeliverableError: it can never be delivered, or its time to live has ended (reason ``Expired``). Nothing
        else is raised: one message must not stop a drain.
    """
    try:
        if isinstance(received, RelayDelivery):
            return _read_encoded_entry(received, policy, now, rewriter)
        return _read_entry(received, policy, now)
    except UndeliverableError:
        raise
    except Exception as error:
        raise unreadable(error) from error


def _read_encoded_entry(
    received: RelayDelivery, policy: TimeToLive, now: float, rewriter: BacklogRewriter | None
) -> BacklogEntry:
    if rewriter is not None:
        try:
            entity, message = rewriter.restore(received.encoded, now=now)
        except UnusualMessageError:
            pass
        else:
            return _locked_entry(entity, received, message, until=received.lock_ends, now=now)
    entry = _read_entry(received, policy, now)
    try:
        return replace(entry, message=encode_message(entry.message))
    except InvalidMessageError as error:
        raise UndeliverableError("InvalidMessage", str(error)) from error


def _read_entry(received: ReceivedMessage, policy: TimeToLive, now: float) -> BacklogEntry:
    reason = received.decode_error
    if reason is not None:
        raise UndeliverableError("Unreadable", f"the SDK cannot decode the message: {reason}")
    restored = unwrap(received.amqp)
    scheduled = _remove_past_schedule(restored.message, now)
    if policy is TimeToLive.ELAPSE:
        _reduce_time_to_live(restored.message, received, scheduled, now)
    until = None if received.locked_until is None else received.locked_until.timestamp()
    return _locked_entry(restored.entity, received, restored.message, until=until, now=now)


def _locked_entry(
    entity: str, received: ReceivedMessage, message: AmqpMessage | RelayedMessage, *, until: float | None, now: float
) -> BacklogEntry:
    lock = lock_seconds(until, now)
    return BacklogEntry(entity, received, message, now + SENDING_SHARE * lock, lock)


def _remove_past_schedule(message: AmqpMessage, now: float) -> float | None:
    """Return the scheduled time in seconds, and remove it from the message if it has passed."""
    others = dict(text_keys(message.annotations))
    value: Any = others.pop(_SCHEDULED_TIME, None)
    if value is None:
        return None
    seconds = float(value["VALUE"] if isinstance(value, dict) else value) / 1000
    if seconds <= now:
        message.annotations = others or None
    return seconds


def _reduce_time_to_live(message: AmqpMessage, received: ReceivedMessage, scheduled: float | None, now: float) -> None:
    header, enqueued = message.header, received.enqueued_time
    if header is None or header.time_to_live is None or enqueued is None:
        return
    # The service counts the time to live of a scheduled message from its scheduled time.
    start = enqueued.timestamp() if scheduled is None else max(enqueued.timestamp(), scheduled)
    remaining = header.time_to_live - max(0, int((now - start) * 1000))
    if remaining <= 0:
        life = header.time_to_live * _MILLISECOND
        raise UndeliverableError("Expired", f"its time to live of {life} ended while it waited in the backlog")
    header.time_to_live = remaining


def lock_seconds(until: float | None, now: float) -> float:
    """Return how long a lock lasts that ends at ``until`` by the service's clock."""
    remaining = 0.0 if until is None else until - now
    return remaining if remaining > 0 else _DEFAULT_LOCK_SECONDS
