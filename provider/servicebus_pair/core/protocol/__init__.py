"""The wire format of backlog messages and the layout of backlog queues. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.protocol.amqp_message import (
        AmqpMessage,
        BodyType,
        Header,
        Properties,
        body_digest,
        body_size,
        new_message,
    )
    from servicebus_pair.core.protocol.backlog_message import destination_of, unwrap
    from servicebus_pair.core.protocol.backlog_properties import PATH
    from servicebus_pair.core.protocol.backlog_queues import (
        BacklogPlan,
        backlog_prefixes,
        backlog_queue_paths,
        backlog_session_id,
        entity_of_session,
        is_session_queue,
        queues_in_use,
        unusable_queues,
    )
    from servicebus_pair.core.protocol.message_outline import OutlineReader
    from servicebus_pair.core.protocol.typed_values import amqp_typed, text_keys, to_text

__all__ = [
    "PATH",
    "AmqpMessage",
    "BacklogPlan",
    "BodyType",
    "Header",
    "OutlineReader",
    "Properties",
    "amqp_typed",
    "backlog_prefixes",
    "backlog_queue_paths",
    "backlog_session_id",
    "body_digest",
    "body_size",
    "destination_of",
    "entity_of_session",
    "is_session_queue",
    "new_message",
    "queues_in_use",
    "text_keys",
    "to_text",
    "unusable_queues",
    "unwrap",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "amqp_message": ["AmqpMessage", "BodyType", "Header", "Properties", "body_digest", "body_size", "new_message"],
        "backlog_message": ["destination_of", "unwrap"],
        "backlog_properties": ["PATH"],
        "backlog_queues": [
            "BacklogPlan",
            "backlog_prefixes",
            "backlog_queue_paths",
            "backlog_session_id",
            "entity_of_session",
            "is_session_queue",
            "queues_in_use",
            "unusable_queues",
        ],
        "message_outline": ["OutlineReader"],
        "typed_values": ["to_text", "text_keys", "amqp_typed"],
    },
)
