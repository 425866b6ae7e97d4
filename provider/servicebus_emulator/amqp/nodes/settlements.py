"""What an outcome that a client chooses for a message means for its queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.amqp.codec.raw_encoding import (
    NULL,
    MalformedValueError,
    compound_items,
    decode_text,
    described_value,
)
from servicebus_emulator.amqp.codec.section_rewrite import (
    by_name,
    set_application_properties,
    with_application_properties,
)
from servicebus_emulator.amqp.codec.value_codec import decode
from servicebus_emulator.engine.model.errors import InvalidArgument

if TYPE_CHECKING:
    from servicebus_emulator.engine.queue.queue import MessageQueue

_REASON: Final = "DeadLetterReason"
_DESCRIPTION: Final = "DeadLetterErrorDescription"
_CODES: Final[Mapping[int | str | None, int]] = {
    "amqp:accepted:list": proton.ACCEPTED,
    "amqp:rejected:list": proton.REJECTED,
    "amqp:released:list": proton.RELEASED,
    "amqp:modified:list": proton.MODIFIED,
}
_INFO: Final = 2
_UNDELIVERABLE, _ANNOTATIONS = 1, 2


def reject(queue: MessageQueue, token: bytes, *, properties: Mapping[str, bytes]) -> None:
    """Dead-letter a message.

    :param properties: the info of the client's error: reason, description and properties to modify, encoded.
    """
    remaining, reason, description = _without_reason(properties)
    set_application_properties(queue, token, properties=remaining)
    queue.dead_letter(token, reason=reason, description=description)


def modify(queue: MessageQueue, token: bytes, *, undeliverable: bool, properties: Mapping[str, bytes]) -> None:
    """Defer or abandon a message."""
    set_application_properties(queue, token, properties=properties)
    if undeliverable:
        queue.defer(token)
    else:
        # Abandon regardless of delivery-failed, which the JavaScript client does not set.
        queue.abandon(token)


def outcome_code(outcome: bytes) -> int:
    """Return the code of an encoded outcome; an empty one is *accepted*.

    :raises InvalidArgument: when it is no outcome.
    """
    return proton.ACCEPTED if outcome in {b"", NULL} else _decoded(outcome)[0]


def prepared(queue: MessageQueue, token: bytes, *, outcome: bytes) -> Callable[[], None]:
    """Return what settles a locked message, which cannot fail while the message is locked.

    :param outcome: the encoded outcome.
    :raises InvalidArgument: when the outcome cannot be decoded or applied.
    :raises OperationNotAllowed: when the queue has no dead-letter queue and the outcome requires one.
    :raises MessageLockLost: when the message is not locked.
    """
    code = outcome_code(outcome)
    if code == proton.ACCEPTED:
        return partial(queue.complete, token)
    if code == proton.RELEASED:
        return partial(queue.release, token)
    fields = _decoded(outcome)[1]
    content = queue.locked_content(token)
    if code == proton.REJECTED:
        queue.require_dead_letters()
        properties = _error_info(fields)
        with_application_properties(content, properties=_without_reason(properties)[0])
        return partial(reject, queue, token, properties=properties)
    properties = _map(fields[_ANNOTATIONS]) if len(fields) > _ANNOTATIONS else {}
    with_application_properties(content, properties=properties)
    undeliverable = len(fields) > _UNDELIVERABLE and decode(fields[_UNDELIVERABLE]) is True
    return partial(modify, queue, token, undeliverable=undeliverable, properties=properties)


def _decoded(outcome: bytes) -> tuple[int, list[bytes]]:
    try:
        code, value = described_value(outcome)
        known = _CODES.get(code, code)
        if isinstance(known, int) and known in _CODES.values():
            return known, compound_items(value)
    except (MalformedValueError, IndexError) as error:
        raise InvalidArgument(f"an outcome cannot be decoded: {error}") from error
    raise InvalidArgument(f"an outcome has the descriptor {code!r}; allowed: {', '.join(map(str, _CODES))}")


def _error_info(fields: list[bytes]) -> dict[str, bytes]:
    if len(fields) == 0 or fields[0] == NULL:
        return {}
    try:
        error = compound_items(described_value(fields[0])[1])
    except (MalformedValueError, IndexError) as cause:
        raise InvalidArgument(f"the error of an outcome cannot be decoded: {cause}") from cause
    return _map(error[_INFO]) if len(error) > _INFO else {}


def _map(value: bytes) -> dict[str, bytes]:
    try:
        return {} if value == NULL else by_name(compound_items(value))
    except MalformedValueError as error:
        raise InvalidArgument(f"the properties to modify cannot be read: {error}") from error


def _without_reason(properties: Mapping[str, bytes]) -> tuple[dict[str, bytes], str | None, str | None]:
    remaining = dict(properties)
    reason, description = (_text(remaining.pop(name, NULL)) for name in (_REASON, _DESCRIPTION))
    return remaining, reason, description


def _text(value: bytes) -> str | None:
    """Decode a text; None for any other type.

    :raises InvalidArgument: when it is not UTF-8.
    """
    try:
        return decode_text(value)
    except MalformedValueError as error:
        raise InvalidArgument(f"a reason for dead-lettering cannot be read: {error}") from error
