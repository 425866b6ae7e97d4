"""What a client has opened on one connection: sessions, links, and this side's end of each link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from servicebus_emulator.engine.errors import OperationNotAllowed, QuotaExceeded

if TYPE_CHECKING:
    from servicebus_emulator.amqp import proton

__all__ = ["CHANNEL_MAX", "AnsweringEnd", "Ends", "LinkEnd"]

# As the service says in its Open and Begin frames.
CHANNEL_MAX: Final = 4999
_HANDLE_MAX: Final = 255
# Our own: sessions and links in them would multiply to more memory than one client should have.
_MOST_LINKS: Final = 5000


class LinkEnd(Protocol):
    """This side of a link."""

    def opened(self) -> None:
        """Note that the link is attached on both sides."""
        ...

    def delivered(self, delivery: proton.Handle) -> None:
        """Note that a delivery arrived, or that the peer changed one."""
        ...

    def flowed(self) -> None:
        """Note that the peer's credit changed."""
        ...

    def closed(self) -> None:
        """Note that the link is gone."""
        ...


class AnsweringEnd(LinkEnd, Protocol):
    """This side of a link on which the client receives answers of a node.

    :ivar node: the node that answers.
    :ivar address: what requests name as the place to answer to.
    """

    node: str
    address: str | None

    def send(self, data: bytes) -> None:
        """Send an encoded answer."""
        ...


class Ends:
    """Knows sessions and links by the identities of their handles, from the client's first word to its last.

    Proton frees a session or a link when it is told to, no matter how often, and it is led by the client to say
    twice that one is over. So only what is known here is freed, once.
    """

    def __init__(self) -> None:
        self._links_of: dict[int, set[int]] = {}
        self._session_of: dict[int, int] = {}
        self._ends: dict[int, LinkEnd] = {}

    def begin_session(self, session: int, *, untouched: bool) -> None:
        """Note a session that the client began.

        :param untouched: whether it was not yet opened or closed from here: otherwise it is one that there was before.
        :raises OperationNotAllowed: when the client answers to a session, of which none was begun from here.
        :raises QuotaExceeded: when it has too many.
        """
        if not untouched or session in self._links_of:
            raise OperationNotAllowed("a begin names a remote channel; allowed: none, as only clients begin sessions")
        if len(self._links_of) > CHANNEL_MAX:
            raise QuotaExceeded(f"the connection has {CHANNEL_MAX + 1} sessions, as many as may be; end one first")
        self._links_of[session] = set()

    def end_session(self, session: int) -> set[int] | None:
        """Forget a session; return the links in it, which are to be ended too; None = it is not known."""
        return self._links_of.pop(session, None)

    def begin_link(self, link: int, *, session: int, untouched: bool) -> None:
        """Note a link that the client attached.

        :param untouched: whether it was not yet opened or closed from here.
        :raises OperationNotAllowed: when its session is over, or it is attached already.
        :raises QuotaExceeded: when there are too many.
        """
        there = self._links_of.get(session)
        if there is None or not untouched or link in self._session_of:
            raise OperationNotAllowed("a link is attached twice, or in a session that has ended")
        if len(there) > _HANDLE_MAX or len(self._session_of) >= _MOST_LINKS:
            raise QuotaExceeded(
                f"the session has {len(there)} links and the connection {len(self._session_of)}; "
                f"allowed: {_HANDLE_MAX + 1} and {_MOST_LINKS}; detach one first"
            )
        there.add(link)
        self._session_of[link] = session

    def end_link(self, link: int) -> bool:
        """Forget a link; return whether it was known."""
        session = self._session_of.pop(link, None)
        if session is None:
            return False
        there = self._links_of.get(session)
        if there is not None:
            there.discard(link)
        return True

    def hold(self, link: int, end: LinkEnd) -> None:
        """Let `end` be this side of a link, instead of any earlier one."""
        self._ends[link] = end

    def get(self, link: int) -> LinkEnd | None:
        """Return this side of a link, if there is one."""
        return self._ends.get(link)

    def release(self, link: int) -> LinkEnd | None:
        """Forget this side of a link, and return it if there was one. The link itself may still be known."""
        return self._ends.pop(link, None)

    @property
    def held(self) -> tuple[tuple[int, LinkEnd], ...]:
        """This side of all links, by their identities."""
        return tuple(self._ends.items())
