"""Whoever may send to the backlog, or to a queue that a DAG reads, stops no process that looks into it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servicebus_emulator.amqp.codec.sections import SectionCode
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_pair.core.sdk._private import capabilities
from servicebus_pair.core.sdk._private.capabilities import PATH_VARIABLE, fast_path
from servicebus_pair.core.sdk._private.decode_limits import limit_arrays
from tests.core.support.local_pair import BACKLOG, open_local_pair
from tests.emulator.support.encoded_messages import listed, mapped, section
from tests.emulator.support.proton_client import encoded_message

# 4 KB that the SDK decodes to 150 MB: a message of 1 MB would be 40 GB.
NULLS = [b"\xf0\x00\x00\x00\x05\x00\x01\x00\x00\x40"] * 300
NAMED = [each for nulls in NULLS for each in (b"\xa1\x01a", nulls)]
PATH = section(SectionCode.APPLICATION_PROPERTIES, mapped(b"\xa1\x09x-ms-path", b"\xa1\x07flights"))
BOMBS = (
    PATH + section(SectionCode.VALUE, listed(*NULLS)),
    section(SectionCode.MESSAGE_ANNOTATIONS, mapped(*NAMED)) + PATH + encoded_message(),
    section(SectionCode.APPLICATION_PROPERTIES, mapped(b"\xa1\x09x-ms-path", b"\xa1\x07flights", *NAMED)),
)


async def test_arrays_without_bytes_are_not_decoded_by_those_who_peek() -> None:
    async with open_local_pair("flights") as local:
        backlog = local.secondary.namespace.find(BACKLOG)
        assert isinstance(backlog, QueueEntity)
        backlog.send([decode_message(each, new_id=lambda: "bomb") for each in BOMBS])
        survey = await local.pair.syphon().survey()
        drained = await local.pair.syphon().drain()
        left = local.secondary.namespace.counts(BACKLOG)

    # They lie in a row, which a survey counts once; a drain relays the bytes, and the primary judges them.
    assert (survey.unreadable, survey.destinations) == (1, {})
    assert (drained.moved, left.active) == ({"flights": 3}, 0)


@pytest.fixture
def decide_again() -> Iterator[None]:
    for each in (fast_path, limit_arrays):
        each.cache_clear()
    yield
    for each in (fast_path, limit_arrays):
        each.cache_clear()


@pytest.mark.usefixtures("decide_again")
@pytest.mark.parametrize("path", ["public", "another version"])
def test_arrays_are_limited_where_nothing_else_of_the_sdk_s_inside_is_used(monkeypatch: pytest.MonkeyPatch, path: str):
    from azure.servicebus._pyamqp import _decode

    decoders = list(_decode._DECODE_BY_CONSTRUCTOR)
    decoders[0xE0], decoders[0xF0] = _decode._decode_array_small, _decode._decode_array_large
    monkeypatch.setattr(_decode, "_DECODE_BY_CONSTRUCTOR", decoders)
    if path == "public":
        monkeypatch.setenv(PATH_VARIABLE, "public")
    else:
        monkeypatch.setattr(capabilities, "__version__", "7.99.0")

    assert not fast_path()
    with pytest.raises(ValueError, match="65536 elements"):
        _decode.decode_payload(memoryview(b"\x00\x53\x77" + NULLS[0]))
