"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from datetime import timedelta

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values(
        "protocol",
        keyword_only={"QueueSettings"},
        mutable={"AmqpMessage", "Header", "Properties"},
        by_identity={"AmqpMessage"},
        hidden={"AmqpMessage.application_properties", "AmqpMessage.body", "AmqpMessage.origin"},
    )


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "protocol",
        {
            "text.constructor": 161,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "protocol",
        {
            "amqp_message.MAX_TIME_TO_LIVE": 4_294_967_295,
            "amqp_message.DIGEST_BYTES": 8,
            "amqp_message.MAX_PROPERTY_BYTES": 32_768,
            "amqp_message.MAX_PROPERTIES_BYTES": 65_536,
            "amqp_message._MAX_BYTES_PER_CHARACTER": 4,
            "amqp_message._SCALAR_BYTES": 17,
            "amqp_message._SHORT_LENGTH": 2,
            "amqp_message._LONG_LENGTH": 5,
            "amqp_message._LONGEST_SHORT": 255,
            "amqp_message._SECTION_BYTES": 12,
            "amqp_sections._DESCRIBED": 0,
            "amqp_sections._NARROW_LIMIT": 256,
            "backlog_properties._MAX_PATH_CHARACTERS": 260,
            "backlog_properties._TICKS_PER_MILLISECOND": 10_000,
            "backlog_properties.MAX_TIME_SPAN_MILLISECONDS": 922_337_203_685_477,
            "backlog_queues._MAX_INT32": 2_147_483_647,
            "backlog_queues._MAX_SESSION_ID": 128,
            "batching.MAX_MESSAGES_PER_BATCH": 4500,
            "batching._MAX_OPEN_BATCHES": 64,
            "batching._SHORT_SECTION_BYTES": 5,
            "batching._LONG_SECTION_BYTES": 8,
            "batching._SHORT_LIMIT": 256,
            "byte_window._DECAY": 0.75,
            "relay_batch._SINGLE": 0,
            "relay_batch._SHORT_LIMIT": 256,
            "relayed_message._LAST_EXPIRY": 253_402_243_199_000,
            "relayed_message._PRIORITY": 1,
            "relayed_message._HEADER_FIELDS": 5,
            "relayed_message._FIRST_FIELD": 3,
            "message_outline._TEXT": (0xA1, 0xB1, 0xA3, 0xB3),
            "message_outline._DATA": (0xA0, 0xB0),
            "message_outline._BEFORE_BODY": (0x70, 0x72, 0x73, 0x74),
            "message_outline._CONTENT_TYPE": 6,
            "message_outline._FIRST_FIELD": 3,
            "message_outline._STATES": range(3),
            "message_outline._MAX_REMEMBERED": 1024,
            "message_outline._MAX_REMEMBERED_BYTES": 512,
            "relayed_message._MAX_REMEMBERED": 1024,
            "relayed_message._MAX_REMEMBERED_BYTES": 512,
            "amqp_message.TIMESTAMPS": range(-62_135_596_800_000, 253_402_300_800_000),
            "amqp_message._MILLISECOND": timedelta(milliseconds=1),
            "backlog_properties._MILLISECOND": timedelta(milliseconds=1),
            "encoded_message.MESSAGE_ID": 0,
            "encoded_message.GROUP_ID": 10,
            "encoded_message.PROPERTY_FIELDS": 13,
            "relayed_message._MILLISECOND": timedelta(milliseconds=1),
            "relayed_message._EXPIRY": 8,
            "relayed_message._CREATION": 9,
            "relayed_message._TEXT": (0xA1, 0xB1),
            "typed_values._INT32": range(-2_147_483_648, 2_147_483_648),
            "typed_values._INT64": range(-9_223_372_036_854_775_808, 9_223_372_036_854_775_808),
        },
    )
