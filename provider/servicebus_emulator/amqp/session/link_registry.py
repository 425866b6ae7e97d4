"""The sessions and links of one connection, and the handler of each link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from servicebus_emulator.engine.model.errors import OperationNotAllowed, QuotaExceeded

if TYPE_CHECKING:
    from servicebus_emulator.amqp.codec import proton_fast_path as proton

# The values in the Open and Begin frames of the service.
CHANNEL_MAX: Final = 4999
_HANDLE_MAX: Final = 255
# Not a limit of the service: all sessions full of links would take more memory than one client should get.
_MAX_LINKS: Final = 5000
_MAX_REFUSED_LINKS: Final = 100


class LinkHandler:
    """The emulator's end of a link. It ignores the events that its subclass does not handle."""

    def on_attached(self) -> None:
        """Handle the completed attach."""

    def on_delivery(self, delivery: proton.Handle) -> None:
        """Handle an incoming delivery, or a disposition by the peer."""

    def on_dispositions(self, deliveries: Sequence[proton.Handle]) -> None:
        """Handle a disposition by the peer of several deliveries."""
        for delivery in deliveries:
            self.on_delivery(delivery)

    def on_flow(self) -> None:
        """Handle a change of the peer's credit."""

    def on_closed(self) -> None:
        """Handle the end of the link."""


class ReplyLink(Protocol):
    """The emulator's end of a link on which a client receives responses from a node.

    :ivar node: the node.
    :ivar address: the reply-to address that requests use for this link.
    """

    node: str
    address: str | None

    @property
    def waiting(self) -> int:
        """How many responses the client has not taken."""

    def send(self, data: bytes) -> None:
        """Send an encoded response."""


class LinkRegistry:
    """The sessions and links of one connection, by their Proton handles.

    Proton frees a session or link each time it is asked to, and a client can make it report the end of one twice. So
    only what is registered here may be freed, once.

    :ivar handler: returns the handler of a link, if it has one.
    """

    def __init__(self) -> None:
        self._links_of: dict[proton.Handle, set[proton.Handle]] = {}
        self._session_of: dict[proton.Handle, proton.Handle] = {}
        self._handlers: dict[proton.Handle, LinkHandler] = {}
        self._refused: set[proton.Handle] = set()
        self.handler: Callable[[proton.Handle], LinkHandler | None] = self._handlers.get

    def begin_session(self, session: proton.Handle, *, is_new: bool) -> None:
        """Register a session that the client began.

        :param is_new: whether the emulator has neither opened nor closed it.
        :raises OperationNotAllowed: when the begin frame answers a session, of which the emulator begins none.
        :raises QuotaExceeded: when the connection has too many sessions.
        """
        if not is_new or session in self._links_of:
            raise OperationNotAllowed(
                "a begin frame has a remote-channel; allowed: none, as only clients begin sessions"
            )
        if len(self._links_of) > CHANNEL_MAX:
            raise QuotaExceeded(f"the connection has {CHANNEL_MAX + 1} sessions, the maximum; end one first")
        self._links_of[session] = set()

    def end_session(self, session: proton.Handle) -> set[proton.Handle] | None:
        """Forget a session; return its links, which are to be ended too; None = it is not registered."""
        return self._links_of.pop(session, None)

    def begin_link(self, link: proton.Handle, *, session: proton.Handle, is_new: bool) -> None:
        """Register a link that the client attached.

        :param is_new: whether the emulator has neither opened nor closed it.
        :raises OperationNotAllowed: when its session has ended, or it is attached already.
        :raises QuotaExceeded: when there are too many links.
        """
        links = self._links_of.get(session)
        if links is None or not is_new or link in self._session_of:
            raise OperationNotAllowed("a link is attached twice, or in a session that has ended")
        if len(links) > _HANDLE_MAX or len(self._session_of) >= _MAX_LINKS:
            raise QuotaExceeded(
                f"the session has {len(links)} links and the connection {len(self._session_of)}; "
                f"allowed: {_HANDLE_MAX + 1} and {_MAX_LINKS}; detach one first"
            )
        links.add(link)
        self._session_of[link] = session

    def refuse_link(self, link: proton.Handle) -> None:
        """Note that an attach was refused: Proton keeps its names until the client has detached the link too.

        :raises QuotaExceeded: when the client does not detach such links.
        """
        if len(self._refused) >= _MAX_REFUSED_LINKS:
            raise QuotaExceeded(
                f"{len(self._refused)} attaches were refused whose links are not detached; "
                f"allowed: {_MAX_REFUSED_LINKS}"
            )
        self._refused.add(link)

    def end_link(self, link: proton.Handle) -> bool:
        """Forget a link; return whether it was registered."""
        self._refused.discard(link)
        session = self._session_of.pop(link, None)
        if session is None:
            return False
        links = self._links_of.get(session)
        if links is not None:
            links.discard(link)
        return True

    def set_handler(self, link: proton.Handle, handler: LinkHandler) -> None:
        """Set the handler of a link, replacing any earlier one."""
        self._handlers[link] = handler

    def remove_handler(self, link: proton.Handle) -> LinkHandler | None:
        """Remove and return the handler of a link, if it has one. The link itself may remain registered."""
        return self._handlers.pop(link, None)

    @property
    def handlers(self) -> tuple[tuple[proton.Handle, LinkHandler], ...]:
        """The handlers of all links, by handle."""
        return tuple(self._handlers.items())
