"""Hypothesis strategies for messages: all AMQP values in every section that the SDK can send."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import strategies as st

from servicebus_pair.core.protocol.typed_values import amqp_typed
from tests.core.support.encoding import encode

SCHEDULED = "x-opt-scheduled-enqueue-time"

# Every field set, because random messages may leave some out.
WHOLE = AmqpAnnotatedMessage(
    data_body=[b"one", b"two"],
    header={"durable": True, "priority": 9, "time_to_live": 86_400_000},
    properties={
        "message_id": 2**63,
        "correlation_id": b"bytes",
        "user_id": b"\x00user",
        "to": "gates",
        "subject": "UA",
        "reply_to": "answers",
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "creation_time": 1_357_000_000_000,
        "group_id": "N14228",
        "group_sequence": 2**32 - 1,
        "reply_to_group_id": "N14228/answers",
    },
    application_properties={
        "x-ms-path": "mine",
        "x-ms-timetolive": 5,
        "x-servicebus-pair-own:x-ms-path": "mine too",
        "wide": amqp_typed("LONG", 7),
        "unsigned": amqp_typed("UBYTE", 7),
        "when": amqp_typed("TIMESTAMP", 1_357_000_000_000),
    },
    annotations={
        "x-opt-partition-key": "N14228",
        "x-opt-mine": amqp_typed("USHORT", 7),
        SCHEDULED: datetime(2030, 1, 1, tzinfo=UTC),
    },
    footer={"sum": amqp_typed("UINT", 7)},
)


# With a time to live, the SDK sets the creation time itself.
LASTING = AmqpAnnotatedMessage(data_body=b"", properties={"creation_time": 1_357_000_000_000, "message_id": "1"})

# Of a header alone, the SDK derives a properties section.
EXPIRING = AmqpAnnotatedMessage(data_body=b"x", header={"time_to_live": 5000})

words = st.text(max_size=12)
names = st.text(min_size=1, max_size=8)
int32 = st.integers(-(2**31), 2**31 - 1)
times = st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1))  # noqa: DTZ001
decimals = st.builds(Decimal, st.integers(-(10**34) + 1, 10**34 - 1)) | st.decimals(
    -(10**6), 10**6, places=4, allow_nan=False, allow_infinity=False
)
typed_scalars = st.one_of(
    st.builds(amqp_typed, st.just("NULL"), st.none()),
    st.builds(amqp_typed, st.just("BOOL"), st.booleans()),
    st.builds(amqp_typed, st.just("UBYTE"), st.integers(0, 2**8 - 1)),
    st.builds(amqp_typed, st.just("USHORT"), st.integers(0, 2**16 - 1)),
    st.builds(amqp_typed, st.just("UINT"), st.integers(0, 2**32 - 1)),
    st.builds(amqp_typed, st.just("ULONG"), st.integers(0, 2**64 - 1)),
    st.builds(amqp_typed, st.just("BYTE"), st.integers(-(2**7), 2**7 - 1)),
    st.builds(amqp_typed, st.just("SHORT"), st.integers(-(2**15), 2**15 - 1)),
    st.builds(amqp_typed, st.just("INT"), int32),
    st.builds(amqp_typed, st.just("LONG"), st.integers(-(2**63), 2**63 - 1)),
    st.builds(amqp_typed, st.just("FLOAT"), st.floats(width=32)),
    st.builds(amqp_typed, st.just("DOUBLE"), st.floats()),
    st.builds(amqp_typed, st.just("TIMESTAMP"), times | st.integers(-(2**50), 2**50)),
    st.builds(amqp_typed, st.just("UUID"), st.uuids()),
    st.builds(amqp_typed, st.just("BINARY"), st.binary(max_size=12)),
    st.builds(amqp_typed, st.just("STRING"), words),
    st.builds(amqp_typed, st.just("SYMBOL"), st.text(st.characters(max_codepoint=127), max_size=12)),
    st.builds(amqp_typed, st.just("DECIMAL128"), decimals),
)
scalars = st.none() | st.booleans() | words | int32 | st.floats() | st.uuids() | times | decimals | typed_scalars
arrays = st.one_of(
    st.lists(words, max_size=4),
    st.lists(int32, max_size=4),
    st.lists(st.builds(amqp_typed, st.just("LONG"), st.integers(-(2**63), 2**63 - 1)), max_size=4),
).map(lambda items: amqp_typed("ARRAY", items))
descriptors = st.builds(amqp_typed, st.just("SYMBOL"), st.just("com.example:thing")) | st.builds(
    amqp_typed, st.just("ULONG"), st.integers(2**32, 2**63) | st.integers(0x20, 0x2F)
)


def compounds(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Compound values: lists, maps and described values, typed and untyped."""
    lists = st.lists(items, max_size=4)
    maps = st.dictionaries(names | int32, items, max_size=4) | st.dictionaries(
        st.binary(min_size=1, max_size=4), items, max_size=2
    )
    return st.one_of(
        lists,
        lists.map(lambda inner: amqp_typed("LIST", inner)),
        maps,
        maps.map(lambda inner: amqp_typed("MAP", inner)),
        st.tuples(descriptors, scalars | maps | lists | arrays),
        st.tuples(descriptors, st.tuples(descriptors, lists)),
    )


values = st.recursive(scalars | st.binary(max_size=12) | arrays, compounds, max_leaves=6)
own_names = st.one_of(
    names,
    st.sampled_from(["x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc"]),
    st.sampled_from(["x-servicebus-pair-types", "x-servicebus-pair-own:x", "x-servicebus-pair-own:x-ms-path"]),
)
ids = st.none() | words | st.binary(max_size=12) | st.uuids() | st.integers(0, 2**64 - 1)
headers = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "durable": st.booleans(),
        "priority": st.integers(0, 255),
        "time_to_live": st.none() | st.just(0) | st.integers(1, 2**32 - 1),
    },
)
property_sections = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "message_id": ids,
        "correlation_id": ids,
        "user_id": st.binary(max_size=12),
        "to": words,
        "subject": words,
        "reply_to": words,
        "content_type": words,
        "content_encoding": words,
        "creation_time": st.integers(1, 2**40),
        "group_id": words,
        "group_sequence": st.integers(0, 2**32 - 1),
        "reply_to_group_id": words,
    },
)


def is_no_bytes(value: Any) -> bool:
    return not isinstance(value, bytes)


# The SDK decodes bytes properties as text, so other bytes can only be sent typed.
properties_of_its_own = st.dictionaries(
    own_names, values.filter(is_no_bytes) | st.text(max_size=4).map(str.encode), max_size=4
)


def encodable(body: Any) -> bool:
    """Return whether the SDK can encode a body; it sends a typed value as a map and cannot encode every integer."""
    try:
        encode(AmqpAnnotatedMessage(value_body=body))
    except ValueError:
        return False
    return True


@st.composite
def messages(draw: st.DrawFn) -> AmqpAnnotatedMessage:
    """Any message that the SDK agrees to send."""
    annotations = draw(st.dictionaries(names.map("x-opt-a-{}".format), values, max_size=3))
    if draw(st.booleans()):
        annotations["x-opt-partition-key"] = draw(words)
    if draw(st.booleans()):
        annotations[SCHEDULED] = draw(times)
    body: dict[str, Any] = draw(
        st.one_of(
            st.fixed_dictionaries({"data_body": st.lists(st.binary(max_size=12), max_size=3)}),
            st.fixed_dictionaries({"value_body": values.filter(encodable)}),
            st.fixed_dictionaries({"sequence_body": st.lists(st.lists(values, max_size=3), max_size=3)}),
        )
    )
    return AmqpAnnotatedMessage(
        header=draw(headers),
        properties=draw(property_sections),
        application_properties=draw(st.none() | properties_of_its_own),
        annotations=annotations,
        footer=draw(st.none() | st.dictionaries(names, values, max_size=2)),
        **body,
    )
