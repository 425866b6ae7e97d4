"""The terms of a link: what the client asked for in its attach, and what it is granted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proton import Described, symbol, ulong

from servicebus_emulator.engine.errors import InvalidArgument

if TYPE_CHECKING:
    from proton import Link

__all__ = ["MaybeSession", "grant", "grant_session", "grant_sizes", "session_timeout", "session_wanted"]

_SESSION_FILTER: Final = symbol("com.microsoft:session-filter")
_LOCKED_UNTIL: Final = symbol("com.microsoft:locked-until-utc")
_TIMEOUT: Final = symbol("com.microsoft:timeout")
_MAX_BATCH_SIZE: Final = symbol("com.microsoft:max-message-batch-size")
_DEFAULT_TIMEOUT: Final = 60_000
_TICKS_TO_1970: Final = 621_355_968_000_000_000
_TICKS_PER_MILLISECOND: Final = 10_000

MaybeSession = tuple[bool, str | None]
"""Whether a session is asked for, and which one (None = any)."""


def session_wanted(link: Link) -> MaybeSession:
    """Read the session filter of a client's receiver.

    :raises InvalidArgument: when the filters hold what cannot be read.
    """
    data = link.remote_source.filter
    data.rewind()
    filters = _read(data.get_object) if data.next() is not None else None
    if not isinstance(filters, dict) or _SESSION_FILTER not in filters:
        return False, None
    value = filters[_SESSION_FILTER]
    if isinstance(value, Described):
        value = value.value
    return True, value if isinstance(value, str) else None


def session_timeout(link: Link) -> int:
    """Return how long the client waits for a session, in milliseconds.

    :raises InvalidArgument: when the properties hold what cannot be read.
    """
    properties = _read(lambda: link.remote_properties)
    value = properties.get(_TIMEOUT) if isinstance(properties, dict) else None
    return int(value) if isinstance(value, int) else _DEFAULT_TIMEOUT


def grant(link: Link) -> None:
    """Echo the client's terms."""
    link.source.copy(link.remote_source)
    link.target.copy(link.remote_target)
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = link.remote_rcv_settle_mode


def grant_sizes(link: Link, *, message: int, batch: int) -> None:
    """Say how large a message and a batch may be, in bytes."""
    link.max_message_size = message
    link.properties = {_MAX_BATCH_SIZE: ulong(batch)}


def grant_session(link: Link, *, session_id: str, until: int) -> None:
    """Say which session was given, and until when (milliseconds since 1970)."""
    filters = link.source.filter
    filters.clear()
    filters.put_object({_SESSION_FILTER: session_id})
    link.properties = {_LOCKED_UNTIL: _TICKS_TO_1970 + until * _TICKS_PER_MILLISECOND}


def _read(get: Callable[[], object]) -> object:
    try:
        return get()
    except (TypeError, ValueError) as error:
        # Proton makes dictionaries of maps, and characters of numbers, which not all of them are.
        raise InvalidArgument(f"the terms of the link cannot be read: {error}") from error
