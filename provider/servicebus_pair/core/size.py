"""How many bytes a message takes, and how many more its copy for the backlog takes (SPEC section 4, size)."""

from __future__ import annotations

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.envelope import wrap
from servicebus_pair.core.wire import encoded_size

__all__ = ["growth", "is_large"]

# A copy can grow to several times its message, when that has many short properties of rare types, but
# not to ten times: only what takes a tenth of the limit can be too large as a copy.
_LARGE_SHARE = 10


def growth(message: AmqpAnnotatedMessage, *, entity: str) -> int:
    """Answer the bytes that the backlog copy of ``message`` takes beyond those of the message: exact.

    :param entity: path of the queue or topic on the primary, which travels in the copy.
    :raises InvalidMessageError: as :func:`wrap`, or a value without an AMQP encoding.
    """
    return encoded_size(wrap(message, entity=entity)) - encoded_size(message)


def is_large(size_bytes: int, *, limit: int) -> bool:
    """Answer whether a message of this size could be too large for the backlog, so that it is worth measuring."""
    return size_bytes * _LARGE_SHARE > limit
