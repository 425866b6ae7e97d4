"""Qpid Proton calls that run once per message, made through cffi without Proton's Python wrappers.

Calls that run once per link or connection use Proton's Python API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import cproton
from cproton import ffi, lib
from proton import Condition, Delivery, Described, Link, symbol, ulong

from servicebus_emulator.amqp.codec.raw_encoding import NULL, compound_items
from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.engine.model.tracking import tracked

Handle: TypeAlias = Any
"""A pointer to a Proton object; as a dictionary key its address, unique while the object exists."""

ACCEPTED: int = lib.PN_ACCEPTED
RECEIVED: int = lib.PN_RECEIVED
REJECTED: int = lib.PN_REJECTED
RELEASED: int = lib.PN_RELEASED
MODIFIED: int = lib.PN_MODIFIED
# AMQP 1.0 part 4, section 4.5.
TRANSACTIONAL: int = 0x34
_DECLARED: int = 0x33


def session_of(link: Handle) -> Handle:
    """Return a link's session."""
    return lib.pn_link_session(link)


# Incoming deliveries


def is_complete(delivery: Handle) -> bool:
    """Return whether a delivery has arrived completely and was not read yet."""
    return bool(lib.pn_delivery_readable(delivery)) and not lib.pn_delivery_partial(delivery)


def is_aborted(delivery: Handle) -> bool:
    """Return whether the peer aborted a delivery that was not settled yet."""
    return bool(lib.pn_delivery_aborted(delivery)) and bool(lib.pn_delivery_readable(delivery))


def pending_bytes(delivery: Handle) -> int:
    """Return the number of unread bytes of a delivery."""
    return int(lib.pn_delivery_pending(delivery))


def read(link: Handle, delivery: Handle) -> bytes:
    """Read the bytes of the link's current delivery that have arrived."""
    size = lib.pn_delivery_pending(delivery)
    buffer = ffi.new("char[]", size)
    lib.pn_link_recv(link, buffer, size)
    return bytes(ffi.buffer(buffer, size))


def advance(link: Handle) -> None:
    """Advance to the link's next delivery; the current one can still be settled."""
    lib.pn_link_advance(link)


def discard(link: Handle) -> None:
    """Drop the bytes that have arrived on a link that nobody reads."""
    while delivery := lib.pn_link_current(link):
        read(link, delivery)
        if lib.pn_delivery_partial(delivery):
            return
        lib.pn_link_advance(link)
        settle(delivery, state=None)


def accept(delivery: Handle) -> None:
    """Settle a delivery as accepted."""
    lib.pn_delivery_update(delivery, ACCEPTED)
    lib.pn_delivery_settle(delivery)


def accept_in_transaction(delivery: Handle, *, transaction: bytes) -> None:
    """Settle a delivery as accepted, should the transaction be committed."""
    _settle_with_items(delivery, state=TRANSACTIONAL, items=[transaction, Described(ulong(ACCEPTED), [])])


def declare(delivery: Handle, *, transaction: bytes) -> None:
    """Settle a delivery that declares a transaction."""
    _settle_with_items(delivery, state=_DECLARED, items=[transaction])


def _settle_with_items(delivery: Handle, *, state: int, items: list[object]) -> None:
    wrapped = _wrap(delivery)
    wrapped.local.data = items  # type: ignore[assignment] # Proton declares integers only
    wrapped.update(state)
    wrapped.settle()


def reject(delivery: Handle, *, error: BrokerError) -> None:
    """Settle a delivery as rejected, with an error."""
    wrapped = _wrap(delivery)
    wrapped.local.condition = to_condition(error, link=wrapped.link)
    wrapped.update(Delivery.REJECTED)
    wrapped.settle()


def add_credit(link: Handle, count: int) -> None:
    """Give the peer credit for `count` more deliveries."""
    lib.pn_link_flow(link, count)


# Outgoing deliveries


credit: Callable[[Handle], int] = lib.pn_link_credit
"""Return the credit that the peer has given on a link."""


queued: Callable[[Handle], int] = lib.pn_link_queued
"""Return how many deliveries of a link wait for credit or for room in the peer's window."""


def send(link: Handle, *, tag: bytes, data: bytes, settled: bool) -> Handle:
    """Send a delivery and return its handle."""
    delivery = lib.pn_delivery(link, (len(tag), ffi.from_buffer(tag)))
    lib.pn_link_send(link, data, len(data))
    lib.pn_link_advance(link)
    if settled:
        lib.pn_delivery_settle(delivery)
    return delivery


is_draining: Callable[[Handle], bool] = lib.pn_link_get_drain
"""Return whether the peer has requested a drain of a link."""


def drain(link: Handle) -> None:
    """Give back the unused credit."""
    lib.pn_link_drained(link)


is_updated: Callable[[Handle], bool] = lib.pn_delivery_updated
"""Return whether the peer changed the state of a delivery since the last event."""


remote_state: Callable[[Handle], int] = lib.pn_delivery_remote_state
"""Return the delivery state set by the peer."""


def delivery_state_items(delivery: Handle) -> list[bytes]:
    """Return the encoded fields of a delivery state that Proton does not know, as set by the peer."""
    return _items(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))


def echo_state(delivery: Handle) -> None:
    """Answer the peer's delivery state, of a kind that Proton does not know, by the same, and settle nothing."""
    remote, local = lib.pn_delivery_remote(delivery), lib.pn_delivery_local(delivery)
    lib.pn_data_copy(lib.pn_disposition_data(local), lib.pn_disposition_data(remote))
    lib.pn_delivery_update(delivery, remote_state(delivery))


is_remotely_settled: Callable[[Handle], bool] = lib.pn_delivery_settled
"""Return whether the peer has settled the delivery, and thus expects no disposition."""


def settle(delivery: Handle, *, state: int | None) -> None:
    """Settle a delivery, with a state unless it is None."""
    if state is not None:
        lib.pn_delivery_update(delivery, state)
    lib.pn_delivery_settle(delivery)


def settle_all(deliveries: Iterable[Handle], *, state: int | None) -> None:
    """Settle deliveries, with a state unless it is None."""
    update, settle_one = lib.pn_delivery_update, lib.pn_delivery_settle
    for delivery in deliveries:
        if state is not None:
            update(delivery, state)
        settle_one(delivery)


def modified_flags(delivery: Handle) -> tuple[bool, bool]:
    """Return the fields delivery-failed and undeliverable-here of a modified outcome."""
    remote = _wrap(delivery).remote
    return bool(remote.failed), bool(remote.undeliverable)


def outcome_properties(delivery: Handle) -> list[bytes]:
    """Return the properties that the peer's outcome modifies, as alternating encoded names and values.

    They are the message annotations of a modified outcome, or the info of the error of a rejected one.
    """
    remote = lib.pn_delivery_remote(delivery)
    if remote_state(delivery) == REJECTED:
        return _items(lib.pn_condition_info(lib.pn_disposition_condition(remote)))
    return _items(lib.pn_disposition_annotations(remote))


def settle_modified(delivery: Handle, *, failed: bool, undeliverable: bool) -> None:
    """Settle a delivery as modified."""
    wrapped = _wrap(delivery)
    wrapped.local.failed = failed
    wrapped.local.undeliverable = undeliverable
    wrapped.update(Delivery.MODIFIED)
    wrapped.settle()


def delivery_tag(delivery: Handle) -> bytes:
    """Return a delivery's tag."""
    return bytes(cproton.bytes2pybytes(lib.pn_delivery_tag(delivery)))


def to_condition(error: BrokerError, *, link: Link | None) -> Condition:
    """Return the AMQP condition of an error.

    :param link: where it happened; None = on the connection.

    Its info map is never empty: Proton omits trailing nulls, and clients fail on an error with two fields.
    """
    text = tracked(str(error), system="gateway0" if link is None else _system(link))
    return Condition(error.condition, text, {symbol("status-code"): error.status})


def _system(link: Link) -> str:
    address = (link.remote_source if link.is_sender else link.remote_target).address or ""
    path = address.partition("://")[2].partition("/")[2] if "://" in address else address
    return f"{link.connection.container}:{path}"


def _items(data: Handle) -> list[bytes]:
    size = lib.pn_data_encoded_size(data)
    if size <= len(NULL):
        return []
    buffer = bytearray(size)
    return compound_items(bytes(buffer[: lib.pn_data_encode(data, ffi.from_buffer(buffer), size)]))


def _wrap(delivery: Handle) -> Delivery:
    return Delivery(delivery)  # type: ignore[no-untyped-call]
