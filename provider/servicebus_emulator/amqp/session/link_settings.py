"""The settings of a link: what the client's attach requests, and what the emulator's answer grants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proton import Described, symbol, ulong

from servicebus_emulator.amqp.session.node_address import NodeAddress
from servicebus_emulator.engine.model.errors import InvalidArgument

if TYPE_CHECKING:
    from proton import Connection, Link

_SESSION_FILTER: Final = symbol("com.microsoft:session-filter")
_LOCKED_UNTIL: Final = symbol("com.microsoft:locked-until-utc")
_TIMEOUT: Final = symbol("com.microsoft:timeout")
_MAX_BATCH_SIZE: Final = symbol("com.microsoft:max-message-batch-size")
_TRANSFER_DESTINATION: Final = symbol("com.microsoft:transfer-destination-address")
_DEFAULT_TIMEOUT: Final = 60_000
_TICKS_TO_1970: Final = 621_355_968_000_000_000
_TICKS_PER_MILLISECOND: Final = 10_000

RequestedSession = tuple[bool, str | None]
"""Whether a session is requested, and which one (None = any)."""


def requested_session(link: Link) -> RequestedSession:
    """Read the session filter of a client's receiver.

    :raises InvalidArgument: when the filters cannot be decoded.
    """
    data = link.remote_source.filter
    data.rewind()
    filters = _decode(data.get_object) if data.next() is not None else None
    if not isinstance(filters, dict) or _SESSION_FILTER not in filters:
        return False, None
    value = filters[_SESSION_FILTER]
    if isinstance(value, Described):
        value = value.value
    return True, value if isinstance(value, str) else None


def session_timeout(link: Link) -> int:
    """Return how long the client waits for a session, in milliseconds.

    :raises InvalidArgument: when the link properties cannot be decoded.
    """
    value = remote_properties(link).get(_TIMEOUT)
    return int(value) if isinstance(value, int) else _DEFAULT_TIMEOUT


def transfer_destination(link: Link) -> NodeAddress | None:
    """Return the entity to which the target of a client's sender is to transfer the messages, if any.

    :raises InvalidArgument: when the link properties cannot be decoded.
    """
    value = remote_properties(link).get(_TRANSFER_DESTINATION)
    return NodeAddress.parse(value) if isinstance(value, str) else None


def remote_properties(endpoint: Link | Connection) -> dict[str, object]:
    """Return the properties in the attach or open frame of the client.

    :raises InvalidArgument: when they cannot be decoded.
    """
    properties = _decode(lambda: endpoint.remote_properties)
    return properties if isinstance(properties, dict) else {}


def echo_attach(link: Link) -> None:
    """Grant the source, target and settle modes of the client's attach."""
    link.source.copy(link.remote_source)
    link.target.copy(link.remote_target)
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = link.remote_rcv_settle_mode


def set_size_limits(link: Link, *, message: int, batch: int) -> None:
    """Announce the maximum sizes of a message and of a batch, in bytes."""
    link.max_message_size = message
    link.properties = {_MAX_BATCH_SIZE: ulong(batch)}


def set_granted_session(link: Link, *, session_id: str, until: int) -> None:
    """Announce the granted session and the expiration of its lock, in milliseconds since 1970."""
    filters = link.source.filter
    filters.clear()
    filters.put_object({_SESSION_FILTER: session_id})
    link.properties = {_LOCKED_UNTIL: _TICKS_TO_1970 + until * _TICKS_PER_MILLISECOND}


def _decode(get: Callable[[], object]) -> object:
    try:
        return get()
    except (TypeError, ValueError) as error:
        # Proton makes dictionaries of maps with unhashable keys, and characters of numbers that are no code points.
        raise InvalidArgument(f"the settings of the link cannot be decoded: {error}") from error
