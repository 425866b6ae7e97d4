"""The few calls of Qpid Proton's engine that run once per message, without its Python wrappers.

Everything that runs once per link or connection goes through Proton's own Python API.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import cproton
from cproton import ffi, lib
from proton import Condition, Delivery, symbol

from servicebus_emulator.amqp.encoding import NULL, compound_items
from servicebus_emulator.engine.errors import BrokerError

__all__ = [
    "ACCEPTED",
    "MODIFIED",
    "RECEIVED",
    "REJECTED",
    "RELEASED",
    "Handle",
    "accept",
    "add_credit",
    "advance",
    "changed_properties",
    "condition_of",
    "credit",
    "delivery_tag",
    "drain",
    "how_modified",
    "identity",
    "is_aborted",
    "is_complete",
    "is_draining",
    "is_updated",
    "outcome",
    "pending_bytes",
    "read",
    "reject",
    "send",
    "settle",
    "settle_modified",
    "settled_by_peer",
]

Handle: TypeAlias = Any
"""A pointer to one of Proton's objects."""

ACCEPTED: int = lib.PN_ACCEPTED
RECEIVED: int = lib.PN_RECEIVED
REJECTED: int = lib.PN_REJECTED
RELEASED: int = lib.PN_RELEASED
MODIFIED: int = lib.PN_MODIFIED

_ADDRESS = ffi.typeof("uintptr_t")


def identity(handle: Handle) -> int:
    """Return a key for a handle: its address, unique while the object lives."""
    return int(ffi.cast(_ADDRESS, handle))


# A delivery that comes in


def is_complete(delivery: Handle) -> bool:
    """Tell whether all of a delivery has arrived and not been read."""
    return bool(lib.pn_delivery_readable(delivery)) and not lib.pn_delivery_partial(delivery)


def is_aborted(delivery: Handle) -> bool:
    """Tell whether the peer gave a delivery up half way, and that was not noted yet by settling it."""
    return bool(lib.pn_delivery_aborted(delivery)) and bool(lib.pn_delivery_readable(delivery))


def pending_bytes(delivery: Handle) -> int:
    """Return how many bytes of a delivery have arrived and not been read."""
    return int(lib.pn_delivery_pending(delivery))


def read(link: Handle, delivery: Handle) -> bytes:
    """Read what has arrived of the link's current delivery."""
    size = lib.pn_delivery_pending(delivery)
    buffer = ffi.new("char[]", size)
    lib.pn_link_recv(link, buffer, size)
    return bytes(ffi.buffer(buffer, size))


def advance(link: Handle) -> None:
    """Go on to the link's next delivery; the current one can still be answered."""
    lib.pn_link_advance(link)


def accept(delivery: Handle) -> None:
    """Answer that a delivery is taken."""
    lib.pn_delivery_update(delivery, ACCEPTED)
    lib.pn_delivery_settle(delivery)


def reject(delivery: Handle, *, error: BrokerError) -> None:
    """Answer that a delivery is refused, and why."""
    wrapped = _wrap(delivery)
    wrapped.local.condition = condition_of(error)
    wrapped.update(Delivery.REJECTED)
    wrapped.settle()


def add_credit(link: Handle, count: int) -> None:
    """Let the peer send `count` more deliveries."""
    lib.pn_link_flow(link, count)


# A delivery that goes out


def credit(link: Handle) -> int:
    """Return how many deliveries the peer is ready to take."""
    return int(lib.pn_link_credit(link))


def send(link: Handle, *, tag: bytes, data: bytes, settled: bool) -> Handle:
    """Send one delivery, and return it."""
    delivery = cproton.pn_delivery(link, tag)
    lib.pn_link_send(link, ffi.from_buffer(data), len(data))
    lib.pn_link_advance(link)
    if settled:
        lib.pn_delivery_settle(delivery)
    return delivery


def is_draining(link: Handle) -> bool:
    """Tell whether the peer wants to hear when there is no more for the credit it gave."""
    return bool(lib.pn_link_get_drain(link))


def drain(link: Handle) -> None:
    """Answer a drain: give back the credit that is left."""
    lib.pn_link_drained(link)


def is_updated(delivery: Handle) -> bool:
    """Tell whether the peer changed a delivery's state since it was last looked at."""
    return bool(lib.pn_delivery_updated(delivery))


def outcome(delivery: Handle) -> int:
    """Return the state that the peer gave a delivery."""
    return int(lib.pn_delivery_remote_state(delivery))


def settled_by_peer(delivery: Handle) -> bool:
    """Tell whether the peer has forgotten the delivery and expects no answer."""
    return bool(lib.pn_delivery_settled(delivery))


def settle(delivery: Handle, *, state: int | None) -> None:
    """Settle a delivery, answering with a state if there is one to answer with."""
    if state is not None:
        lib.pn_delivery_update(delivery, state)
    lib.pn_delivery_settle(delivery)


def how_modified(delivery: Handle) -> tuple[bool, bool]:
    """Return whether the peer says that a modified delivery failed, and that it must not come back to it."""
    remote = _wrap(delivery).remote
    return bool(remote.failed), bool(remote.undeliverable)


def changed_properties(delivery: Handle) -> list[bytes]:
    """Return the properties that the peer changes with its outcome of a delivery: encoded names and values in turn.

    They are the annotations of ``modified``, and the information of the error of ``rejected``.
    """
    remote = lib.pn_delivery_remote(delivery)
    if outcome(delivery) == REJECTED:
        return _items(lib.pn_condition_info(lib.pn_disposition_condition(remote)))
    return _items(lib.pn_disposition_annotations(remote))


def settle_modified(delivery: Handle, *, failed: bool, undeliverable: bool) -> None:
    """Settle a delivery, answering with ``modified``."""
    wrapped = _wrap(delivery)
    wrapped.local.failed = failed
    wrapped.local.undeliverable = undeliverable
    wrapped.update(Delivery.MODIFIED)
    wrapped.settle()


def delivery_tag(delivery: Handle) -> bytes:
    """Return a delivery's tag."""
    return bytes(cproton.bytes2pybytes(lib.pn_delivery_tag(delivery)))


def condition_of(error: BrokerError) -> Condition:
    """Return the AMQP error of a refusal.

    The info map is never empty: Proton drops trailing nulls, and clients trip over an error of two fields.
    """
    return Condition(error.condition, str(error), {symbol("status-code"): error.status})


def _items(data: Handle) -> list[bytes]:
    size = lib.pn_data_encoded_size(data)
    if size <= len(NULL):
        return []
    buffer = bytearray(size)
    return compound_items(bytes(buffer[: lib.pn_data_encode(data, ffi.from_buffer(buffer), size)]))


def _wrap(delivery: Handle) -> Delivery:
    return Delivery(delivery)  # type: ignore[no-untyped-call]
