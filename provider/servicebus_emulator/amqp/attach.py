"""What a client gets when it attaches a link."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from proton import Link, Terminus

from servicebus_emulator.amqp.address import CBS, Address
from servicebus_emulator.amqp.cbs import put_token, refuse_token
from servicebus_emulator.amqp.intake import Intake
from servicebus_emulator.amqp.management import LISTEN, MANAGEMENT_RIGHTS, SEND, Management, refuse_request, rights_for
from servicebus_emulator.amqp.outlet import Outlet
from servicebus_emulator.amqp.requests import Answer, AnswerEnd, Request, RequestEnd
from servicebus_emulator.amqp.session_wait import SessionWait
from servicebus_emulator.amqp.spoiling import spoil_attach
from servicebus_emulator.amqp.terms import grant, grant_session, grant_sizes, session_timeout, session_wanted
from servicebus_emulator.engine.admission import batch_limit, link_obstacle, message_limit, request_limit
from servicebus_emulator.engine.entities import QueueEntity, SubQueue, SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.errors import EntityDisabled, OperationNotAllowed, OperationNotSupported
from servicebus_emulator.faults import Operation

if TYPE_CHECKING:
    from servicebus_emulator.amqp.connection import AmqpConnection
    from servicebus_emulator.amqp.ends import LinkEnd
    from servicebus_emulator.engine.sessions import SessionHold

__all__ = ["attach"]


def attach(connection: AmqpConnection, link: Link) -> LinkEnd | None:
    """Make this side of a link; None when the answer comes later, or never.

    :raises BrokerError: why the link is refused.
    """
    if link.remote_target.type == Terminus.COORDINATOR:
        raise OperationNotSupported("transactions are not supported")
    text = (link.remote_source if link.is_sender else link.remote_target).address
    address = Address.parse("" if text is None else text)
    if address.path.casefold() == CBS:
        return _attach_cbs(connection, link)
    if address.management:
        return _attach_management(connection, link, address=address)
    if spoil_attach(connection, link, entity=address.path):
        return None
    # Before anything is looked up: who may not use an entity need not know whether it exists.
    connection.claims.hold(link, rights=LISTEN if link.is_sender else SEND, path=address.resource)
    if link.is_sender:
        return _attach_outlet(connection, link, address=address)
    return _attach_intake(connection, link, address=address)


def _attach_cbs(connection: AmqpConnection, link: Link) -> LinkEnd:
    grant(link)
    if link.is_sender:
        return AnswerEnd(connection, link, node=CBS)
    carry_out = partial(put_token, connection.claims)
    kind = (Operation.AUTHENTICATE, None)
    return RequestEnd(connection, link, node=CBS, kind=kind, carry_out=carry_out, refusal=refuse_token)


def _attach_management(connection: AmqpConnection, link: Link, *, address: Address) -> LinkEnd:
    connection.claims.hold(link, rights=MANAGEMENT_RIGHTS, path=address.resource)
    namespace = connection.broker.namespace
    limit = request_limit(namespace.find(address.path).description)
    node = f"{address.path.casefold()} {address.part.name}"
    grant(link)
    if link.is_sender:
        return AnswerEnd(connection, link, node=node)

    def manage(request: Request) -> Answer:
        connection.claims.require(rights_for(request), path=address.resource)
        # Found anew each time: the entity may have been deleted, and created again.
        return Management(namespace.find(address.path), part=address.part).carry_out(request)

    kind = (Operation.MANAGE, address.path)
    return RequestEnd(connection, link, node=node, kind=kind, carry_out=manage, refusal=refuse_request, limit=limit)


def _attach_intake(connection: AmqpConnection, link: Link, *, address: Address) -> LinkEnd:
    entity = connection.broker.namespace.find(address.path)
    if isinstance(entity, SubscriptionEntity) or address.part is not SubQueue.MAIN:
        raise OperationNotAllowed(f"messages are sent to queues and topics, not to {address.path!r} or its sub-queues")
    status = entity.description.status
    if not status.accepts_sends:
        raise EntityDisabled(f"{address.path!r} has status {status.value} and accepts no messages; set it to Active")
    grant(link)
    grant_sizes(link, message=message_limit(entity.description), batch=batch_limit(entity.description))
    return Intake(connection, link, entity=entity)


def _attach_outlet(connection: AmqpConnection, link: Link, *, address: Address) -> LinkEnd | None:
    entity = connection.broker.namespace.find(address.path)
    if isinstance(entity, TopicEntity):
        raise OperationNotAllowed(f"{address.path!r} is a topic; receive from one of its subscriptions")
    obstacle = link_obstacle(entity.description, sub_queue=address.part is not SubQueue.MAIN)
    if obstacle is not None:
        raise obstacle
    by_session, session_id = session_wanted(link)
    if by_session != entity.part(address.part).settings.requires_session:
        required = "requires sessions" if not by_session else "does not require sessions"
        raise OperationNotAllowed(f"{address.path!r} {required}; open the receiver accordingly")
    if not by_session:
        grant(link)
        return _outlet(connection, link, entity=entity, part=address.part, hold=None)
    return _attach_to_session(connection, link, entity=entity, session_id=session_id)


def _attach_to_session(
    connection: AmqpConnection, link: Link, *, entity: QueueEntity | SubscriptionEntity, session_id: str | None
) -> LinkEnd | None:
    make_outlet = partial(_session_outlet, connection, link, entity)
    accept = partial(entity.main.accept_session, session_id, lasting=link.remote_snd_settle_mode == Link.SND_SETTLED)
    hold = accept()
    if hold is not None:
        return make_outlet(hold)
    wait = SessionWait(
        connection, link, entity=entity, timeout=session_timeout(link), accept=accept, make_outlet=make_outlet
    )
    connection.hold_attach(link, wait)
    return None


def _session_outlet(
    connection: AmqpConnection, link: Link, entity: QueueEntity | SubscriptionEntity, hold: SessionHold
) -> Outlet:
    grant(link)
    grant_session(link, session_id=hold.session_id, until=hold.until)
    return _outlet(connection, link, entity=entity, part=SubQueue.MAIN, hold=hold)


def _outlet(
    connection: AmqpConnection,
    link: Link,
    *,
    entity: QueueEntity | SubscriptionEntity,
    part: SubQueue,
    hold: SessionHold | None,
) -> Outlet:
    settled = link.remote_snd_settle_mode == Link.SND_SETTLED
    return Outlet(connection, link, entity=entity, part=part, settled=settled, hold=hold)
