"""The sessions and links of a connection: they begin, attach, detach and end (AMQP 1.0, sections 2.5 and 2.6)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from cproton import lib
from proton import Endpoint, Link, Session

from servicebus_emulator.amqp.broker.broker import Broker
from servicebus_emulator.amqp.broker.interfaces import BrokerConnection
from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.amqp.session.authorization import Authorization
from servicebus_emulator.amqp.session.idle_timeouts import IdleMonitor
from servicebus_emulator.amqp.session.link_registry import LinkHandler, LinkRegistry, ReplyLink
from servicebus_emulator.amqp.session.transactions import Transactions
from servicebus_emulator.engine.model.errors import BrokerError, Unauthorized

# The values in the Open and Begin frames of the service.
MAX_FRAME_SIZE: Final = 64 * 1024
_SESSION_WINDOW: Final = 5000


class LinkEndpoints(BrokerConnection):
    """What :class:`AmqpConnection` is to its links; a base class, so that neither refers to the other.

    :param broker: the namespace's broker.
    :param attach: returns the handler of a link that the client attaches, or raises why the link is refused; None when
        the answer follows later, by :meth:`complete_attach` or :meth:`refuse_attach`.
    :param monitor: told of links that begin and end.
    :ivar reply_links: the links on which the client receives responses.
    :ivar authorization: the client's rights.
    :ivar transactions: the client's transactions.
    """

    def __init__(
        self, broker: Broker, *, attach: Callable[[Any, Link], LinkHandler | None], monitor: IdleMonitor
    ) -> None:
        self.broker = broker
        self.reply_links: list[ReplyLink] = []
        self.authorization = Authorization(self, namespace=broker.namespace, guard=broker.guard)
        self.transactions = Transactions(broker.namespace)
        self._attach = attach
        self._links = LinkRegistry()
        self._monitor = monitor

    @property
    def logged_in(self) -> bool:
        """Whether the client has logged in, or need not."""
        return self.authorization.logged_in

    # Called by link handlers

    def detach(self, link: Link, *, error: BrokerError) -> None:
        """Detach a link with an error."""
        self._close_link(link._impl)  # noqa: SLF001
        link.condition = proton.to_condition(error, link=link)
        link.close()
        self.broker.mark_dirty(self)

    def end_link(self, link: Link, *, error: BrokerError) -> None:
        """Detach a link with an error, or refuse its attach if that is still unanswered."""
        if link.state & Endpoint.LOCAL_ACTIVE:
            self.detach(link, error=error)
        else:
            self.refuse_attach(link, error=error)

    @property
    def handlers(self) -> tuple[LinkHandler, ...]:
        """The handlers of all links."""
        return tuple(handler for _, handler in self._links.handlers)

    def complete_attach(self, link: Link, handler: LinkHandler) -> None:
        """Answer an attach: the link is open."""
        self.add_link(link, handler)
        link.open()
        handler.on_attached()
        self.broker.mark_dirty(self)

    def refuse_attach(self, link: Link, *, error: BrokerError) -> None:
        """Refuse an attach as AMQP 1.0 part 2, section 2.6.3, prescribes: null source and target, then a detach."""
        self._close_link(link._impl)  # noqa: SLF001
        link.source.type = link.source.UNSPECIFIED
        link.target.type = link.target.UNSPECIFIED
        link.open()
        link.condition = proton.to_condition(error, link=link)
        link.close()
        self.broker.mark_dirty(self)

    def add_link(self, link: Link, handler: LinkHandler) -> None:
        """Register the handler of a link, whose attach may be answered later."""
        handle = link._impl  # noqa: SLF001
        self._links.set_handler(handle, handler)
        self._monitor.add_link(handle, link)

    # Proton's events

    def on_session_open(self, event: Any) -> None:
        """Open a session that the client begins."""
        session = lib.pn_event_session(event)
        is_new = bool(lib.pn_session_state(session) & Endpoint.LOCAL_UNINIT)
        self._links.begin_session(session, is_new=is_new)
        lib.pn_session_set_incoming_capacity(session, _SESSION_WINDOW * MAX_FRAME_SIZE)
        lib.pn_session_open(session)

    def on_link_open(self, event: Any) -> None:
        """Attach a link, or refuse it."""
        handle = lib.pn_event_link(event)
        session = lib.pn_link_session(handle)
        is_new = bool(lib.pn_link_state(handle) & Endpoint.LOCAL_UNINIT)
        self._links.begin_link(handle, session=session, is_new=is_new)
        link = Link.wrap(handle)  # type: ignore[no-untyped-call]
        try:
            handler = self._attach(self, link)
        except BrokerError as error:
            self.broker.count_refusal(error)
            if not isinstance(error, Unauthorized):
                # Those are logged where tokens are checked.
                self.authorization.log_refusal(f"link {link.name!r}", error, level=logging.INFO)
            self.refuse_attach(link, error=error)
            if not self.authorization.logged_in:
                self._links.refuse_link(handle)
            return
        if handler is not None:
            self.complete_attach(link, handler)

    def on_link_close(self, event: Any) -> None:
        """Detach a link."""
        handle = lib.pn_event_link(event)
        if not self._links.end_link(handle):
            return
        self._close_link(handle)
        link = Link.wrap(handle)  # type: ignore[no-untyped-call]
        link.close()
        # Freed after the pending replies, which may refer to its deliveries.
        self.broker.reply_when_durable(self, link.free)

    def on_session_close(self, event: Any) -> None:
        """End a session with its links."""
        session = Session.wrap(lib.pn_event_session(event))  # type: ignore[no-untyped-call]
        links = self._links.end_session(session._impl)  # noqa: SLF001
        if links is None:
            return
        for handle in links:
            self._links.end_link(handle)
            self._close_link(handle)
        session.close()
        self.broker.reply_when_durable(self, session.free)

    def _close_links(self) -> None:
        for handle, _ in self._links.handlers:
            self._close_link(handle)

    def _close_link(self, handle: proton.Handle) -> None:
        self.authorization.remove_link(handle)
        self._monitor.remove_link(handle)
        handler = self._links.remove_handler(handle)
        if handler is not None:
            handler.on_closed()
