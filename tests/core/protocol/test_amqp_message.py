"""The digest of a body (SPEC section 9), and its size."""

from __future__ import annotations

import pytest

from servicebus_pair.core.protocol.amqp_message import AmqpMessage, BodyType, body_digest, body_size

DIGEST = body_digest(AmqpMessage([b"hello"]))


@pytest.mark.parametrize("body", [[b"hel", b"lo"], [b"", b"hello"], ["hello"], [memoryview(b"hello")]])
def test_digest_does_not_depend_on_how_a_data_body_is_cut(body: list[bytes]) -> None:
    assert body_digest(AmqpMessage(body)) == DIGEST


@pytest.mark.parametrize("body", [[b"hello!"], [], [b"HELLO"]])
def test_another_body_has_another_digest(body: list[bytes]) -> None:
    assert body_digest(AmqpMessage(body)) != DIGEST


@pytest.mark.parametrize("kind", [BodyType.VALUE, BodyType.SEQUENCE])
def test_body_with_several_encodings_has_none(kind: BodyType) -> None:
    assert body_digest(AmqpMessage([b"hello"], kind)) is None


@pytest.mark.parametrize(
    ("body", "kind", "size"),
    [
        ([bytes(5), memoryview(bytes(4))], BodyType.DATA, 9),
        (bytes(9), BodyType.VALUE, 9),
        ("ä", BodyType.VALUE, 2),
        (12345, BodyType.VALUE, 5),
    ],
)
def test_the_size_of_a_body_is_that_of_its_bytes(body: object, kind: BodyType, size: int) -> None:
    assert body_size(AmqpMessage(body, kind)) == size
