"""Chooses the handler for each link that a client attaches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from proton import Link, Terminus

from servicebus_emulator.amqp.nodes.cbs import CBS, put_token, token_error_response
from servicebus_emulator.amqp.nodes.coordinator import Coordinator
from servicebus_emulator.amqp.nodes.management import (
    LISTEN,
    MANAGEMENT_RIGHTS,
    SEND,
    ManagementNode,
    error_response,
    rights_for,
)
from servicebus_emulator.amqp.nodes.operation_faults import apply_attach_fault
from servicebus_emulator.amqp.nodes.receiver_link import ReceiverLink
from servicebus_emulator.amqp.nodes.request_response import Request, RequestLink, Response, ResponseLink
from servicebus_emulator.amqp.nodes.sender_link import SenderLink
from servicebus_emulator.amqp.nodes.session_wait import SessionWait
from servicebus_emulator.amqp.session.link_settings import (
    echo_attach,
    requested_session,
    session_timeout,
    set_granted_session,
    set_size_limits,
    transfer_destination,
)
from servicebus_emulator.amqp.session.node_address import NodeAddress
from servicebus_emulator.engine.model.errors import EntityDisabled, OperationNotAllowed, QuotaExceeded
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.namespace.throttle import REQUEST_CREDITS
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.queue.limits import (
    max_batch_bytes,
    max_message_bytes,
    max_request_bytes,
    receiver_attach_error,
)
from servicebus_emulator.faults import Operation

if TYPE_CHECKING:
    from servicebus_emulator.amqp.session.connection import AmqpConnection
    from servicebus_emulator.amqp.session.link_registry import LinkHandler
    from servicebus_emulator.engine.model.session_locks import SessionLock

# Anybody may send to $cbs: the longest token of Microsoft Entra ID takes a fraction of this.
_MAX_TOKEN_BYTES: Final = 64 * 1024
_MAX_CBS_LINKS: Final = 32
_MAX_WAITING_ANSWERS: Final = 100


def attach(connection: AmqpConnection, link: Link) -> LinkHandler | None:
    """Return the handler of a link; None when the attach is answered later, or never.

    :raises BrokerError: why the link is refused.
    """
    if link.remote_target.type == Terminus.COORDINATOR:
        return _attach_coordinator(connection, link)
    address = NodeAddress.of(link)
    if address.is_cbs:
        return _attach_cbs(connection, link)
    if address.management:
        return _attach_management(connection, link, address=address)
    if apply_attach_fault(connection, link, entity=address.path):
        return None
    # Before the entity is looked up, so that a client without rights cannot find out whether it exists.
    connection.authorization.authorize_link(link, rights=LISTEN if link.is_sender else SEND, path=address.resource)
    if link.is_sender:
        return _attach_sender(connection, link, address=address)
    return _attach_receiver(connection, link, address=address)


def _attach_coordinator(connection: AmqpConnection, link: Link) -> LinkHandler:
    if link.is_sender:
        raise OperationNotAllowed("a client that receives names a transaction coordinator; allowed: one that sends")
    if not connection.authorization.logged_in:
        connection.authorization.require(MANAGEMENT_RIGHTS, path="")
    echo_attach(link)
    return Coordinator(connection, link)


def _attach_cbs(connection: AmqpConnection, link: Link) -> LinkHandler:
    links = (each for each in connection.handlers if isinstance(each, RequestLink | ResponseLink))
    open_links = sum(each.node == CBS for each in links)
    if open_links >= _MAX_CBS_LINKS:
        raise QuotaExceeded(f"the connection has {open_links} links to {CBS}, the maximum; detach one first")
    echo_attach(link)
    if link.is_sender:
        return ResponseLink(connection, link, node=CBS)
    execute = partial(put_token, connection.authorization)
    operation = (Operation.AUTHENTICATE, None)
    return RequestLink(
        connection,
        link,
        node=CBS,
        operation=operation,
        execute=execute,
        error_response=token_error_response,
        max_bytes=_MAX_TOKEN_BYTES,
        max_waiting=_MAX_WAITING_ANSWERS,
    )


def _attach_management(connection: AmqpConnection, link: Link, *, address: NodeAddress) -> LinkHandler:
    connection.authorization.authorize_link(link, rights=MANAGEMENT_RIGHTS, path=address.resource)
    namespace = connection.broker.namespace
    limit = max_request_bytes(namespace.find(address.path).description)
    node = f"{address.path.casefold()} {address.sub_queue.name}"
    echo_attach(link)
    if link.is_sender:
        return ResponseLink(connection, link, node=node)

    def execute(request: Request) -> Response:
        connection.authorization.require(rights_for(request), path=address.resource)
        if namespace.throttle is not None:
            namespace.throttle.check(REQUEST_CREDITS)
        # Looked up for each request: the entity may have been deleted and created again.
        return ManagementNode(namespace.find(address.path), sub_queue=address.sub_queue).execute(request)

    return RequestLink(
        connection,
        link,
        node=node,
        operation=(Operation.MANAGE, address.path),
        execute=execute,
        error_response=error_response,
        max_bytes=limit,
    )


def _attach_receiver(connection: AmqpConnection, link: Link, *, address: NodeAddress) -> LinkHandler:
    entity, via, destination = _open_entity(connection, address), None, transfer_destination(link)
    if destination is not None:
        connection.authorization.require(SEND, path=destination.resource)
        entity, via = _open_entity(connection, destination), entity
    echo_attach(link)
    set_size_limits(link, message=max_message_bytes(entity.description), batch=max_batch_bytes(entity.description))
    return ReceiverLink(connection, link, entity=entity, via=via)


def _open_entity(connection: AmqpConnection, address: NodeAddress) -> QueueEntity | TopicEntity:
    """Return the entity that a client sends to, if its status permits that."""
    entity = connection.broker.namespace.find(address.path)
    if isinstance(entity, SubscriptionEntity) or address.sub_queue is not SubQueue.MAIN:
        raise OperationNotAllowed(f"messages are sent to queues and topics, not to {address.path!r} or its sub-queues")
    status = entity.description.status
    if not status.accepts_sends:
        raise EntityDisabled(f"{address.path!r} has status {status.value} and accepts no messages; set it to Active")
    return entity


def _attach_sender(connection: AmqpConnection, link: Link, *, address: NodeAddress) -> LinkHandler | None:
    entity = connection.broker.namespace.find(address.path)
    if isinstance(entity, TopicEntity):
        raise OperationNotAllowed(f"{address.path!r} is a topic; receive from one of its subscriptions")
    obstacle = receiver_attach_error(entity.description, is_sub_queue=address.sub_queue is not SubQueue.MAIN)
    if obstacle is not None:
        raise obstacle
    by_session, session_id = requested_session(link)
    if by_session != entity.sub_queue(address.sub_queue).settings.requires_session:
        required = "requires sessions" if not by_session else "does not require sessions"
        raise OperationNotAllowed(f"{address.path!r} {required}; open the receiver accordingly")
    if not by_session:
        echo_attach(link)
        return SenderLink(connection, link, entity=entity, sub_queue=address.sub_queue, session_lock=None)
    return _attach_session_sender(connection, link, entity=entity, session_id=session_id)


def _attach_session_sender(
    connection: AmqpConnection, link: Link, *, entity: QueueEntity | SubscriptionEntity, session_id: str | None
) -> LinkHandler | None:
    accept = partial(
        entity.main.accept_session, session_id, never_expires=link.remote_snd_settle_mode == Link.SND_SETTLED
    )

    def make_link(session_lock: SessionLock) -> SenderLink:
        echo_attach(link)
        set_granted_session(link, session_id=session_lock.session_id, until=session_lock.locked_until)
        return SenderLink(connection, link, entity=entity, sub_queue=SubQueue.MAIN, session_lock=session_lock)

    session_lock = accept()
    if session_lock is not None:
        return make_link(session_lock)
    wait = SessionWait(
        connection, link, entity=entity, timeout=session_timeout(link), accept=accept, make_link=make_link
    )
    connection.add_link(link, wait)
    return None
