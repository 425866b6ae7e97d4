"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from math import inf

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values(
        "sdk",
        mutable={"_Attachment", "_Run"},
        by_identity={"_Attachment", "_Run"},
        hidden={"_CachedToken.token"},
        keyword_only={"ClientSecret", "DefaultIdentity", "Identity", "ManagedIdentity"},
    )


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "sdk",
        {
            "FrameReader._read.wait": True,
            "Peekable.peek.from_sequence_number": 1,
            "MessageBrowser.__init__.attempts": 1,
            "MessageBrowser.page.from_sequence_number": 1,
            "MessageBrowser.readable_pages.from_sequence_number": 1,
            "NamespaceClient.__init__.max_idle_connections": 100,
            "ReceiveLink.peek.from_sequence_number": 1,
            "SendSlot.still_wanted": True,
            "SendSlot.wait_seconds": inf,
            "SessionBrowser.__init__.attempts": 1,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "sdk",
        {
            "decode_limits.MAX_ELEMENTS_WITHOUT_BYTES": 16,
            "decode_limits._MAX_MESSAGE_BYTES": 134_217_728,
            "decode_limits._MAX_CREDIT": 5_000,
            "decode_limits._SMALL_MESSAGE_BYTES": 1_048_576,
            "decode_limits._MAX_VALUES": 1_000_000,
            "decode_limits._PAYLOAD": 11,
            "frame_checks._MAX_FRAME_BYTES": 16_777_216,
            "frame_checks._FRAME_HEADER_BYTES": 8,
            "frame_reader._ATTACHED": 3,
            "frame_reader._CHUNK_BYTES": 262_144,
            "frame_reader._FRAME_HEADER_BYTES": 8,
            "frame_reader._MAX_PROCESSING": 0.05,
            "link_patches._MAX_RESPONSES": 50,
            "link_patches._NO_RESPONSE_SECONDS": 0.15,
            "message_encoding._LAST_EXPIRY": 253_402_243_199_000,
            "message_encoding._NARROW_LIMIT": 256,
            "namespace_client._PUBLIC_SESSION_PREFETCH": 100,
            "namespace_client._MAX_SESSIONS_BYTES": 134_217_728,
            "namespace_client._BYTES_PER_SESSION": 100,
            "namespace_client._RELAY_FRAME_BYTES": 65_536,
            "peeking._OK": 200,
            "raw_receiver._MORE": 5,
            "raw_receiver._LISTEN": 0.2,
            "raw_receiver._PAUSE": 0.05,
            "raw_receiver._PAUSES_OF_SILENCE": 2,
            "raw_receiver._FIRST_CREDIT": 100,
            "raw_receiver._MAX_COLLECTING": 5.0,
            "raw_sender._FRAME_OVERHEAD": 64,
            "raw_sender._LISTEN": 0.2,
            "receiver_patches._MORE": 5,
            "receiver_patches._PAYLOAD": 11,
            "sender_patches._FIELDS": 6,
            "sender_patches._FIRST": 1,
            "sender_patches._LAST": 2,
            "sender_patches._TAG_BYTES": 4,
            "sender_patches._FRAME_HEADER_BYTES": 8,
            "sender_patches._FRAME_OVERHEAD": 256,
            "data_plane._CALL_TIMEOUT": 30.0,
            "data_plane._MAX_TIME_SPAN_DAYS": 10_675_199,
            "data_plane._MAX_COUNT": 9_007_199_254_740_992,
            "entity_lookup._LOOKUP_TIMEOUT": 2.0,
            "entity_lookup._CACHE_TTL": 30.0,
            "error_mapping._MAX_CHARACTERS": 300,
            "error_mapping._MAX_SCRUBBED": 10_000,
            "idle_links._SOON_SECONDS": 10.0,
            "link._OUTER_GRACE": 0.4,
            "link._MIN_TIMEOUT": 0.1,
            "link.CLOSE_TIMEOUT": 2.0,
            "link._IDLE_SECONDS": 200.0,
            "message_batch._ENVELOPE_BYTES": 80,
            "message_batch._NO_LIMIT": 9_223_372_036_854_775_808,
            "message_browser._FIRST_SEQUENCE_NUMBER": 1,
            "message_browser._BEYOND_ALL": 4_611_686_018_427_387_904,
            "message_browser._RETRY_DELAY": 1.0,
            "guarded_transport._MAX_BYTES": 8_388_608,
            "guarded_transport._MAX_ENTRIES": 1000,
            "guarded_transport._MAX_MARKS": 100_000,
            "guarded_transport._MAX_CALL_BYTES": 67_108_864,
            "guarded_transport._ANY_HEADER": 47,
            "message_browser._LINEAR_PROBES": 64,
            "receive_link._MAX_CONCURRENT_SETTLEMENTS": 32,
            "receive_link._WAIT_WITH_BUFFERED_MESSAGES": 0.2,
            "receive_link._PUBLIC_WAIT": 0.25,
            "receive_link._LARGEST": 9_223_372_036_854_775_807,
            "deferred_messages._RECEIVE_AND_DELETE": 0,
            "encoding._NO_LIMIT": 9_223_372_036_854_775_808,
            "send_link.STANDARD_BATCH_BYTES": 262_144,
            "send_link._PREMIUM_BATCH_BYTES": 1_048_576,
            "send_link._MAX_MESSAGE_BYTES": 104_857_600,
            "session_browser._ACCEPT_WAIT": 1.0,
            "session_browser._RETRY_DELAY": 1.0,
            "token_cache._REFRESH_RETRY_SECONDS": 30,
            "token_cache._MAX_EXPIRY": 253_402_300_799,
            "token_cache._MIN_REMAINING_SECONDS": 10,
            "deferred_messages._SUCCESS": (200, 202, 204),
            "raw_sender._Delivery.sent": True,
            "data_plane._MANAGE_REQUIRED": (401, 403),
            "receive.RelayReceiveLink.max_bytes": 16_777_216,
            "send_link.SendLink._max_batch_bytes": 0,
            "send_link.SendLink._max_message_bytes": 0,
            "send_link.SendLink.accepts_mixed_sessions": True,
        },
    )
