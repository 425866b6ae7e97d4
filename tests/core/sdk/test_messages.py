"""Messages of applications are converted without loss, and handed back as they were given (SPEC section 4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given

from servicebus_pair.core.model.errors import InvalidMessageError
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, BodyType, Properties, new_message
from servicebus_pair.core.sdk.messages import from_sdk, to_amqp_message, to_application, to_sdk
from tests.core.support.encoding import encode
from tests.core.support.message_strategies import WHOLE, messages
from tests.examples import examples


@examples(150)
@given(message=messages())
def test_a_converted_message_is_encoded_as_the_original(message: AmqpAnnotatedMessage) -> None:
    assert encode(to_sdk(from_sdk(message))) == encode(message)


def test_a_converted_message_shares_its_maps_and_body_parts() -> None:
    ours = from_sdk(WHOLE)
    assert ours.application_properties is WHOLE.application_properties
    assert ours.annotations is WHOLE.annotations
    assert all(one is other for one, other in zip(ours.body, WHOLE.body, strict=True))


@pytest.mark.parametrize("given_properties", [None, {"subject": "s"}])
def test_section_4_a_message_without_an_id_gets_one_in_the_applications_object_too(given_properties: Any) -> None:
    given_message = AmqpAnnotatedMessage(data_body=b"x", properties=given_properties)
    ours = to_amqp_message(given_message)
    assert ours.properties is not None
    assert given_message.properties is not None
    assert ours.properties.message_id == given_message.properties.message_id is not None
    assert to_amqp_message(given_message).properties == ours.properties
    own = AmqpMessage([b"x"])
    assert to_amqp_message(own) is own
    assert own.properties is not None
    given_id = own.properties.message_id
    assert given_id
    assert to_amqp_message(own).properties == own.properties == Properties(message_id=given_id)
    kept = Properties(subject="UA")
    to_amqp_message(AmqpMessage([b"x"], properties=kept))
    assert (kept.subject, bool(kept.message_id)) == ("UA", True)


@pytest.mark.parametrize("given_message", [ServiceBusMessage("x"), AmqpAnnotatedMessage(data_body=b"x")])
def test_section_4_an_unsent_message_is_the_applications_own_object(given_message: Any) -> None:
    ours = to_amqp_message(given_message)
    assert to_application(ours) is given_message
    assert to_application(given_message) is given_message
    scheduled = replace(ours, annotations={"x-opt-scheduled-enqueue-time": datetime(2030, 1, 1, tzinfo=UTC)})
    assert to_application(scheduled) is given_message
    own = AmqpMessage([b"x"])
    assert to_application(to_amqp_message(own)) is own


def test_another_type_is_refused_by_name() -> None:
    with pytest.raises(InvalidMessageError, match="a message is dict: allowed are ServiceBusMessage and"):
        to_amqp_message({})


def test_the_sdk_finds_the_partition_key_of_a_batch() -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message(to_sdk(new_message("x", message_id="m", partition_key="k")))
    assert batch._message[2] == {b"x-opt-partition-key": "k"}


def test_a_new_message_equals_one_of_the_sdk() -> None:
    texts = {
        name: f"{name} é"
        for name in ("message_id", "content_type", "correlation_id", "subject", "to", "reply_to", "reply_to_session_id")
    }
    common: dict[str, Any] = {**texts, "session_id": "s", "partition_key": "s", "time_to_live": timedelta(minutes=1)}
    at = datetime(2030, 1, 1, tzinfo=UTC)
    with patch("azure.servicebus._common.message.time.mktime", return_value=1.0):
        theirs = ServiceBusMessage(
            "body é", **common, scheduled_enqueue_time_utc=at, application_properties={"a": 1, "b": "c"}
        )
    ours = new_message("body é", **common, scheduled_enqueue_time=at, application_properties={"a": 1, "b": "c"})
    assert encode(ours) == encode(theirs)
    assert (ours.body, ours.body_type) == (["body é".encode()], BodyType.DATA)
