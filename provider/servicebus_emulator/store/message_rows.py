"""Conversion between messages and rows of the ``message`` table."""

from __future__ import annotations

from typing import Any, Final

from servicebus_emulator.engine.model.message import Content, DeadLetterInfo, Message, MessageState

QueuedMessage = tuple[int, Message]
"""A message with its queue's key."""

_COLUMNS: Final = (
    "id, queue, number, origin, state, delivery_count, enqueued_at, expires_at, due, dead, reason, reason_description,"
    " hops, died_in, header, annotations, annotation_count, sections, time_to_live, scheduled_for, session_id"
)
SELECT: Final = f"SELECT {_COLUMNS} FROM message ORDER BY queue, number"  # noqa: S608 - constants
INSERT: Final = f"INSERT INTO message ({_COLUMNS}) VALUES ({', '.join('?' * 21)})"  # noqa: S608 - constants
# For messages without any state of their own, which are almost all: binding a value costs as much as storing it.
INSERT_NEW: Final = (
    "INSERT INTO message (id, queue, number, origin, state, delivery_count, enqueued_at, expires_at, dead, header,"
    " annotations, annotation_count, sections, time_to_live, session_id)"
    " VALUES (?, ?, ?, ?, 0, 0, ?, ?, 0, ?, ?, ?, ?, ?, ?)"
)
UPDATE: Final = (
    "UPDATE message SET queue = ?, number = ?, state = ?, delivery_count = ?, enqueued_at = ?, expires_at = ?, due = ?,"
    " dead = ?, reason = ?, reason_description = ? WHERE id = ?"
)


def is_new(message: Message) -> bool:
    """Return whether a message still has the state in which sent messages arrive, so that INSERT_NEW suffices."""
    return (
        message.state is MessageState.ACTIVE
        and message.delivery_count == 0
        and message.dead_letter is None
        and message.hops == 0
        and message.content.scheduled_for is None
        and message.due is None
        and message.dead_letter_source is None
    )


def to_new_values(queued: QueuedMessage) -> tuple[int | str | bytes | None, ...]:
    """Return the values of INSERT_NEW."""
    queue, message = queued
    header, annotations, annotation_count, sections, time_to_live, _, session_id, _ = message.content
    return (
        message.row_id,
        queue,
        message.sequence_number,
        message.enqueued_sequence_number,
        message.enqueued_at,
        message.expires_at,
        header,
        annotations,
        annotation_count,
        sections,
        time_to_live,
        session_id,
    )


def to_insert_values(queued: QueuedMessage) -> tuple[int | str | bytes | None, ...]:
    """Return the values of INSERT."""
    queue, message = queued
    content = message.content
    return (
        message.row_id,
        queue,
        message.sequence_number,
        message.enqueued_sequence_number,
        int(message.state),
        message.delivery_count,
        message.enqueued_at,
        message.expires_at,
        message.due,
        *_dead_letter_values(message),
        message.hops,
        message.dead_letter_source,
        content.header,
        content.annotations,
        content.annotation_count,
        content.sections,
        content.time_to_live,
        content.scheduled_for,
        content.session_id,
    )


def to_update_values(queued: QueuedMessage) -> tuple[int | str | None, ...]:
    """Return the values of UPDATE."""
    queue, message = queued
    return (
        queue,
        message.sequence_number,
        int(message.state),
        message.delivery_count,
        message.enqueued_at,
        message.expires_at,
        message.due,
        *_dead_letter_values(message),
        message.row_id,
    )


def from_row(row: tuple[Any, ...]) -> QueuedMessage:
    """Return the message of a row of SELECT."""
    row_id, queue, number, origin, state, delivery_count, enqueued_at, expires_at, due, *rest = row
    dead, reason, description, hops, died_in, *content = rest
    header, annotations, annotation_count, sections, time_to_live, scheduled_for, session_id = content
    message = Message(
        row_id=row_id,
        sequence_number=number,
        content=Content(
            header=header,
            annotations=annotations,
            annotation_count=annotation_count,
            sections=sections,
            time_to_live=time_to_live,
            scheduled_for=scheduled_for,
            session_id=session_id,
            ping=False,
        ),
        enqueued_at=enqueued_at,
        expires_at=expires_at,
        due=due,
        enqueued_sequence_number=origin,
        state=MessageState(state),
        delivery_count=delivery_count,
        dead_letter=DeadLetterInfo(reason, description) if dead == 1 else None,
        hops=hops,
        dead_letter_source=died_in,
    )
    return queue, message


def _dead_letter_values(message: Message) -> tuple[int, str | None, str | None]:
    info = message.dead_letter
    return (0, None, None) if info is None else (1, info.reason, info.description)
