"""Sends what a spool holds through the senders of a pair."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.send.pair_context import PairContext
from servicebus_pair.core.send.sender import PairSender
from servicebus_pair.core.spool.claims import Claims
from servicebus_pair.core.spool.drain import BeforeBatch, SpoolReport, empty_spool
from servicebus_pair.core.spool.spool import Spool


async def recover(
    spool: Spool,
    context: PairContext,
    *,
    entities: Collection[str] | None = None,
    before_batch: BeforeBatch | None = None,
) -> SpoolReport:
    """Empty ``spool``; see ``NamespacePair.empty_spool``, and ``empty_spool`` for the parameters."""
    # Without a spool, so that nothing goes back into it.
    context = replace(context, spool=None)
    order = context.order
    if order is not None:
        order.check_spool()
    # Its health names the spool of an entity whose messages have all left it already.
    name = None if order is None else await spool.existing_name()
    also = [entity for entity, each in context.registry.entities().items() if each.spool and each.spool == name]
    claims = Claims(spool.storage, clock=context.clock, owner=f"{socket.gethostname()} {os.getpid()}")
    senders: dict[str, PairSender] = {}
    async with AsyncExitStack() as opened:

        async def deliver(entity: str, messages: Sequence[AmqpMessage]) -> SendResult:
            if entity not in senders:
                named = replace(context, unspooled_from=await spool.name())
                senders[entity] = await opened.enter_async_context(PairSender(entity, named))
            return await senders[entity].send(messages)

        return await empty_spool(
            spool,
            claims,
            deliver,
            entities=entities,
            before_batch=before_batch,
            when_empty=None if order is None else order.leave_spool,
            also=also,
        )
