"""Empties a spool: to the primary, or to the backlog while only that accepts messages (SPEC section 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from servicebus_pair.core.model.errors import SendError
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.spool.claims import Claim, Claims
from servicebus_pair.core.spool.spool import Spool, SpooledBatch
from servicebus_pair.core.spool.spool_file import ForeignFileError, SpoolFile, WrongKeyError
from servicebus_pair.core.spool.storage import folder_name

Deliver = Callable[[str, Sequence[AmqpMessage]], Awaitable[SendResult]]
"""Sends messages to an entity or to the backlog; raises ``SendError`` with what was not accepted."""
BeforeBatch = Callable[[int], Awaitable[bool]]
WhenEmpty = Callable[[str, Callable[[], Awaitable[bool]]], Awaitable[None]]
_CONCURRENT_ENTITIES: Final = 8
_MAX_REASONS: Final = 10
_LARGE_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class SpoolReport:
    """What came of emptying a spool.

    :param results: what was accepted, by entity and route; counts without ids.
    :param set_aside: messages or files that cannot be read or delivered, by entity.
    :param left: messages that are still in the spool.
    :param failures: why, by entity.
    :param duplicates_possible: moved messages of which two copies may exist.
    """

    results: Mapping[str, SendResult] = field(default_factory=dict)
    set_aside: Mapping[str, int] = field(default_factory=dict)
    left: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    duplicates_possible: int = 0

    @property
    def moved_total(self) -> int:
        """Number of messages that left the spool for either namespace."""
        return sum(result.sent for result in self.results.values())


async def empty_spool(
    spool: Spool,
    claims: Claims,
    deliver: Deliver,
    *,
    entities: Collection[str] | None = None,
    before_batch: BeforeBatch | None = None,
    when_empty: WhenEmpty | None = None,
    also: Collection[str] = (),
) -> SpoolReport:
    """Deliver what the spool holds, each entity in the order of writing, at least once.

    An entity ends at its first failure; what it still holds is counted as left. A batch is deleted once all of its
    messages are accepted.

    :param entities: only these; all by default.
    :param before_batch: is called before each batch with its number of messages; ends the run by returning False.
    :param when_empty: is called once all of an entity was delivered, with what delivers the rest and says if it did.
    :param also: entities that are empty already.
    :raises SpoolError: the spool cannot be listed.
    """
    wanted = None if entities is None else {entity.casefold() for entity in entities}
    limit, large = asyncio.Semaphore(_CONCURRENT_ENTITIES), asyncio.Lock()
    emptied = [
        _Entity(entity, spool, claims, deliver, before_batch=before_batch, when_empty=when_empty, large=large)
        for entity in dict.fromkeys((*await spool.survey(), *also))
        if wanted is None or entity in wanted
    ]

    async def run(entity: _Entity) -> None:
        async with limit:
            await entity.empty()

    await asyncio.gather(*map(run, emptied))
    left = await spool.survey()
    return SpoolReport(
        results={each.entity: each.result for each in emptied if each.result.sent},
        set_aside={each.entity: each.set_aside for each in emptied if each.set_aside},
        left=sum(each.messages for entity, each in left.items() if wanted is None or entity in wanted),
        failures={each.entity: each.failure for each in emptied if each.failure is not None},
        duplicates_possible=sum(each.duplicates_possible for each in emptied),
    )


class _Entity:
    """The part of a run for one entity."""

    def __init__(
        self,
        entity: str,
        spool: Spool,
        claims: Claims,
        deliver: Deliver,
        *,
        before_batch: BeforeBatch | None,
        when_empty: WhenEmpty | None,
        large: asyncio.Lock,
    ) -> None:
        self.entity = entity
        self.result = SendResult()
        self.duplicates_possible = 0
        self.set_aside = 0
        self.failure: str | None = None
        self._spool = spool
        self._claims = claims
        self._deliver = deliver
        self._before_batch = before_batch
        self._when_empty = when_empty
        self._large = large

    async def empty(self) -> None:
        """Deliver the batches in their order, until one fails."""
        try:
            async with self._claims.claim(self.entity) as claim:
                if claim is None:
                    self.failure = "another process is emptying it"
                    return
                deliver = partial(self._deliver_all, claim)
                if await deliver() and self._when_empty is not None:
                    await self._when_empty(self.entity, deliver)
        except Exception as error:  # noqa: BLE001 - of a store's library; the entity keeps what was not delivered
            self.failure = f"{type(error).__name__}: {error}"

    async def _deliver_all(self, claim: Claim) -> bool:
        """Deliver what the spool holds now; return False when this entity must wait."""
        foreign: list[tuple[SpooledBatch, str]] = []
        delivered = await self._deliver_messages(claim, foreign)
        # Last, since it takes longer than to read them, and others may have planted thousands.
        for batch, reason in foreign:
            await self._spool.set_aside(batch, reason)
            self.set_aside += batch.messages
        return delivered

    async def _deliver_messages(self, claim: Claim, foreign: list[tuple[SpooledBatch, str]]) -> bool:
        for batch in await self._spool.batches(self.entity):
            if self._before_batch is not None and not await self._before_batch(batch.messages):
                return False
            # Large files one after the other: each is in memory several times.
            async with self._large if batch.size_bytes > _LARGE_BYTES else nullcontext():
                if not await self._deliver_batch(batch, claim, foreign):
                    return False
        return True

    async def _deliver_batch(self, batch: SpooledBatch, claim: Claim, foreign: list[tuple[SpooledBatch, str]]) -> bool:
        """Deliver a batch; return False when this entity must wait."""
        if claim.lost:
            self.failure = "its claim was lost to another process"
            return False
        try:
            content = await self._spool.read(batch)
        except FileNotFoundError:
            return True  # emptied by a process that lost its claim
        except WrongKeyError as error:
            self.failure = str(error)
            return False
        except ForeignFileError as error:
            foreign.append((batch, str(error)))
            return True
        if folder_name(content.entity) != folder_name(batch.entity):
            foreign.append((batch, f"it holds messages for {content.entity} and was moved to those for {batch.entity}"))
            return True
        # Files are found by the folded path; what is written anew keeps the path as the sender wrote it.
        batch = replace(batch, entity=content.entity)
        damage = None
        if content.damage is not None:
            if not content.messages:
                foreign.append((batch, content.damage))
                return True
            damage = f"{content.damage}; the messages that are whole are delivered"
            self.set_aside += max(0, batch.messages - len(content.messages))
        remaining = await self._send(batch, content)
        await self._spool.keep_only(batch, remaining, damage=damage)
        return not remaining

    async def _send(self, batch: SpooledBatch, content: SpoolFile) -> Sequence[AmqpMessage]:
        """Return what was not accepted; what was refused is set aside, so that it holds up nothing."""
        if not content.messages:
            return ()
        try:
            self._count(await self._deliver(content.entity, content.messages))
        except SendError as error:
            self._count(error.result)
            refused = {id(each) for each in error.refused}
            if refused:
                await self._set_aside(batch, content, error)
                self.set_aside += len(refused)
            remaining = [each for each in error.unsent if id(each) not in refused]
            self.failure = str(error.cause) if remaining else None
            return remaining
        return ()

    async def _set_aside(self, batch: SpooledBatch, content: SpoolFile, error: SendError) -> None:
        reason = "; ".join(error.verdicts[:_MAX_REASONS])
        if content.damage is None and len(error.refused) == len(content.messages):
            # As it is: to encode a large message again would hold up the event loop.
            await self._spool.set_aside(batch, reason)
        else:
            await self._spool.set_messages_aside(batch, error.refused, reason)

    def _count(self, result: SendResult) -> None:
        # Without the ids, of which a spool may have millions.
        counts = SendResult(result.primary, result.diverted, result.backlog_queues)
        self.result = SendResult.total([self.result, counts])
        self.duplicates_possible += len(result.duplicates_possible_ids)
