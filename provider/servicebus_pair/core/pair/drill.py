"""The drill: fail over on purpose, send marked messages, and verify that they arrive (SPEC sections 4 and 5).

The primary stays up. Messages that applications send meanwhile go through the backlog and arrive when the drill ends.
The drill's own messages are marked, so that consumers can recognise them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from typing import Any, Final, Protocol

from servicebus_pair.core.health.prober import PING_TIME_TO_LIVE, ping_message
from servicebus_pair.core.health.session_ordering import SessionOrdering
from servicebus_pair.core.model.errors import DrillError, PairError, ServiceError
from servicebus_pair.core.model.events import (
    Event,
    HealthChanged,
    MessagesAccepted,
    MessagesSyphoned,
    MessagesUnspooled,
    Route,
)
from servicebus_pair.core.model.health_state import EntityHealth
from servicebus_pair.core.model.health_transitions import BeginSpool
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.results import DrainReport, SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, new_message
from servicebus_pair.core.sdk.receive_link import ReceiveLink
from servicebus_pair.core.send.pair_context import PairContext
from servicebus_pair.core.send.queue_selector import BacklogHealth
from servicebus_pair.core.send.sender import PairSender
from servicebus_pair.core.syphon.drain import Syphon

_log = get_logger(__name__)
DRILL_PROPERTY: Final = "x-servicebus-pair-drill"
_CALL_TIMEOUT: Final = 5.0
_PEEK_BATCH: Final = 250
# With session ordering: how long sends are held while the backlog is emptied, and the pause between attempts.
_HOLD_PAUSE: Final = 1.0
_END_HOLD: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class DrillReport:
    """Result of a drill.

    :param drill: id of the drill, the value of the application property ``x-servicebus-pair-drill``.
    :param sent: number of marked messages sent; all must have been diverted, or spooled in a drill of both namespaces.
    :param arrived: number of marked messages that the primary accepted.
    :param live: number of application messages that this process diverted during the drill.
    :param failed_over_seconds: duration of the failover.
    :param drain_seconds: from the failback to the end of the drain; with session ordering, where the drain comes
        first, from its start to the failback.
    :param drain: result of the drain, application messages included.
    :param pings_delivered: whether the service delivers pings to receivers; ``None`` if unknown.
    :param findings: one sentence for each deviation.
    """

    drill: str
    entity: str
    sent: int
    arrived: int
    live: int
    failed_over_seconds: float
    drain_seconds: float
    drain: DrainReport
    pings_delivered: bool | None
    findings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def drill_id(application_properties: Mapping[Any, Any] | None) -> str | None:
    """Return the id of the drill that a received message belongs to, or ``None``.

    :param application_properties: of the received message, with keys as text or bytes.
    """
    for name, value in (application_properties or {}).items():
        if name in (DRILL_PROPERTY, DRILL_PROPERTY.encode()):
            return value.decode() if isinstance(value, bytes) else str(value)
    return None


class PairUnderDrill(Protocol):
    """What a drill asks of a pair; ``NamespacePair`` says more about each method."""

    def health(self, entity: str) -> EntityHealth:
        """Return the health of ``entity``."""

    def sender(self, entity: str) -> PairSender:
        """Return a sender that is not open yet."""

    def syphon(self) -> Syphon:
        """Return a syphon over the whole backlog."""

    async def fail_over(self, entity: str, *, reason: str, by: str, hold: timedelta) -> bool:
        """Divert messages for ``entity``."""

    async def mark_healthy(self, entity: str, *, reason: str, by: str) -> bool:
        """Send messages for ``entity`` to the primary."""


class _DrillObserver:
    """Observes one entity during a drill."""

    def __init__(self, entity: str, drill: str) -> None:
        self._entity = entity.casefold()
        self._drill = drill
        self.arrived: set[str] = set()
        self.live = 0
        self.interrupted = False

    def observe(self, event: Event) -> None:
        match event:
            case MessagesSyphoned() | MessagesUnspooled(route=Route.PRIMARY) if event.entity.casefold() == self._entity:
                ids = (ref.message_id for ref in event.messages)
                self.arrived.update(each for each in ids if each.startswith(self._drill))
            case MessagesAccepted(route=Route.BACKLOG) if event.entity.casefold() == self._entity:
                self.live += sum(not ref.message_id.startswith(self._drill) for ref in event.messages)
            case HealthChanged() if event.entity.casefold() == self._entity and event.before.failed_over:
                self.interrupted = True


async def drill(
    pair: PairUnderDrill,
    shared: PairContext,
    entity: str,
    *,
    messages: int,
    by: str,
    limit: timedelta,
    life: timedelta,
    both: bool,
) -> DrillReport:
    """Run one drill; see ``NamespacePair.drill``."""
    if shared.order is not None:
        shared.order.check_spool()
    if both and shared.spool is None:
        raise DrillError("both is true, and the pair has no spool: there is no third way to drill")
    if messages < 1:
        raise DrillError(f"messages is {messages}: a drill needs at least 1")
    for name, span in (("limit", limit), ("life", life)):
        if span <= timedelta(0):
            raise DrillError(f"{name} is {span}: it must be longer than 0")
    if not pair.health(entity).failed_over:
        return await _Drill(pair, shared, entity, by, limit, both=both).run(messages, life)
    raise DrillError(f"{entity} is failed over already ({pair.health(entity).reason}): drill when it is healthy")


class _Drill:
    def __init__(
        self, pair: PairUnderDrill, shared: PairContext, entity: str, by: str, limit: timedelta, *, both: bool = False
    ) -> None:
        self._pair = pair
        self._both = both
        self._shared = shared
        self._entity = entity
        self._by = by
        self._limit = limit
        self._now = shared.clock.now
        self._id = f"drill-{uuid.uuid4().hex[:12]}"
        self._findings: list[str] = []

    async def run(self, messages: int, life: timedelta) -> DrillReport:
        pings_delivered = await self._pings_are_delivered()
        observer = _DrillObserver(self._entity, self._id)
        with self._shared.registry.observing(observer):
            began = self._now()
            sent = await self._fail_over_and_send(messages, life)
            # Checked before the failback: a failover that ended early proves nothing.
            if observer.interrupted:
                self._findings.append("the entity was marked healthy before the drill ended")
            if self._shared.order is None:
                failed_back = self._now()
                drain = await self._fail_back_and_drain(sent)
                ended = self._now()
                drain_seconds = ended - failed_back
            else:
                drain_began = self._now()
                drain = await self._drain_and_fail_back(self._shared.order)
                failed_back = self._now()
                drain_seconds = failed_back - drain_began
        self._verify(sent, observer, messages, drain)
        report = DrillReport(
            drill=self._id,
            entity=self._entity,
            sent=sent.sent,
            arrived=len(observer.arrived),
            live=observer.live,
            failed_over_seconds=failed_back - began,
            drain_seconds=drain_seconds,
            drain=drain,
            pings_delivered=pings_delivered,
            findings=tuple(self._findings),
        )
        _log.info("drill=%s entity=%s passed=%s findings=%s", self._id, self._entity, report.passed, report.findings)
        return report

    async def _fail_over_and_send(self, messages: int, life: timedelta) -> SendResult:
        reason = f"{self._id}: a drill, the primary is up"
        await self._pair.fail_over(self._entity, reason=reason, by=self._by, hold=self._limit)
        try:
            if self._both and self._shared.order is not None and self._shared.spool is not None:
                begin = BeginSpool(await self._shared.spool.name(), reason)
                await self._shared.registry.change(self._entity, begin)
            async with self._sender() as sender, asyncio.timeout(self._limit.total_seconds()):
                return await sender.send([self._marked(number, life) for number in range(messages)])
        except BaseException as error:
            await self._abandon()
            if isinstance(error, PairError | TimeoutError):
                raise DrillError(
                    f"{self._id}: the marked messages were not sent, {type(error).__name__}: {error}"
                ) from error
            raise

    def _sender(self) -> PairSender:
        """Return the sender of the marked messages; in a drill of both namespaces, one that uses no backlog queue."""
        if not self._both:
            return self._pair.sender(self._entity)
        down = BacklogHealth(clock=self._shared.clock, retry_seconds=inf)
        down.failed()
        return PairSender(self._entity, replace(self._shared, backlog_health=down))

    async def _abandon(self) -> None:
        """End the failover of a drill that failed or was cancelled.

        With session ordering, a failback before the drain would let new messages overtake the backlog. So only the
        hold ends, and the pings end the failover when the backlog is empty.
        """
        reason = f"{self._id} was abandoned"
        if self._shared.order is None:
            await self._pair.mark_healthy(self._entity, reason=reason, by=self._by)
        else:
            await self._pair.fail_over(self._entity, reason=reason, by=self._by, hold=_END_HOLD)

    def _marked(self, number: int, life: timedelta) -> AmqpMessage:
        return new_message(
            "a message of a drill, to be ignored",
            message_id=f"{self._id}-{number}",
            # Required by queues with sessions.
            session_id=self._id,
            subject="drill",
            time_to_live=life,
            application_properties={DRILL_PROPERTY: self._id},
        )

    async def _fail_back_and_drain(self, sent: SendResult) -> DrainReport:
        try:
            await self._pair.mark_healthy(self._entity, reason=f"{self._id} is over", by=self._by)
            async with asyncio.timeout(self._limit.total_seconds()):
                return await self._pair.syphon().drain()
        except TimeoutError:
            self._findings.append(
                f"the drain did not finish within {self._limit}: the remaining messages wait for a syphon"
            )
            return DrainReport()
        except BaseException as error:
            _log.warning(
                "drill=%s entity=%s ended during its drain by %s: the entity is healthy, and what the drill diverted "
                "(marked messages=%d, plus those of applications) waits in the backlog for a syphon or the next drain",
                self._id,
                self._entity,
                type(error).__name__,
                sent.diverted,
            )
            raise

    async def _drain_and_fail_back(self, order: SessionOrdering) -> DrainReport:
        """With session order: drain, hold sends while the last messages are moved, then fail back."""
        syphon = self._pair.syphon()
        drain = asyncio.create_task(syphon.run(), name=f"drain of {self._id}")
        try:
            async with asyncio.timeout(self._limit.total_seconds()):
                while not await self._try_fail_back(order):
                    # A drain that ends before it is stopped has failed; raise its error.
                    if (await asyncio.wait({drain}, timeout=_HOLD_PAUSE))[0]:
                        drain.result()
        except TimeoutError:
            self._findings.append(
                f"the backlog was not empty within {self._limit}: the entity fails back by itself once it is"
            )
            await self._abandon()
        except BaseException:
            await self._abandon()
            raise
        finally:
            syphon.stop()
            await asyncio.wait({drain})
        return drain.result()

    async def _try_fail_back(self, order: SessionOrdering) -> bool:
        reason = f"{self._id} is over"
        return await order.fail_back(self._entity, reason=reason, by=self._by, look_first=False)

    def _verify(self, sent: SendResult, observer: _DrillObserver, messages: int, drain: DrainReport) -> None:
        if sent.primary:
            self._findings.append(f"{sent.primary} marked messages went to the primary in spite of the failover")
        if self._both and sent.diverted:
            self._findings.append(f"{sent.diverted} marked messages went to the backlog and not to the spool")
        if len(observer.arrived) < messages:
            self._findings.append(
                f"{messages - len(observer.arrived)} marked messages were not moved by this drain: "
                "another syphon may have moved them"
            )
        if not drain.empty:
            self._findings.append(f"the backlog is not empty: left={drain.left} failures={dict(drain.failures)}")
        if drain.dead_lettered:
            self._findings.append(f"dead-lettered in the backlog: {dict(drain.dead_lettered)}")

    async def _pings_are_delivered(self) -> bool | None:
        """Send a ping and peek whether receivers would get it; ``None`` for a topic, which cannot be peeked.

        :raises DrillError: the entity does not accept the ping; the drill requires that the primary is up.
        """
        client, ping_id = self._shared.primary, uuid.uuid4().hex
        try:
            await client.send_link(self._entity).send_ping(ping_message(ping_id), timeout=_CALL_TIMEOUT)
        except ServiceError as error:
            raise DrillError(
                f"{self._entity} does not accept a ping, so it was not drilled, {type(error).__name__}: {error}"
            ) from error
        receiver = client.receive_link(self._entity)
        try:
            return await self._can_peek(receiver, ping_id)
        except ServiceError as error:
            _log.info("drill=%s entity=%s: could not peek for the ping: %s", self._id, self._entity, error)
            return None
        finally:
            await receiver.close()

    async def _can_peek(self, receiver: ReceiveLink, message_id: str) -> bool | None:
        """Peek through the queue during the lifetime of a ping; ``None`` if the queue is too long for that."""
        began, first = self._now(), 1
        while self._now() - began < PING_TIME_TO_LIVE.total_seconds():
            page = await receiver.peek(max_messages=_PEEK_BATCH, timeout=_CALL_TIMEOUT, from_sequence_number=first)
            if any(message.message_id == message_id for message in page):
                return True
            if not page:
                return False
            first = page[-1].sequence_number + 1
        return None
