"""The drill (SPEC section 4 and 5): fail over on purpose, and see that everything comes back.

The primary stays up. Messages of applications that are sent meanwhile take the way through the
backlog and arrive when the drill ends; its own messages are marked, so that consumers can tell.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.clients import ReceiveLink
from servicebus_pair.core.errors import DrillError, PairError, ServiceError
from servicebus_pair.core.events import Event, HealthChanged, MessagesAccepted, MessagesSyphoned, Route
from servicebus_pair.core.ordering import SessionOrder
from servicebus_pair.core.prober import PING_CONTENT_TYPE, PING_LIFE, ping_message
from servicebus_pair.core.results import DrainReport, SendResult
from servicebus_pair.core.shared import Shared

if TYPE_CHECKING:
    from servicebus_pair.core.health import EntityHealth
    from servicebus_pair.core.sender import PairSender
    from servicebus_pair.core.syphon import Syphon

__all__ = ["DRILL_PROPERTY", "DrillReport", "drill", "drill_of", "is_ping"]

_log = logging.getLogger(__name__)
DRILL_PROPERTY: Final = "x-servicebus-pair-drill"
_CALL_SECONDS: Final = 5.0
_PEEKED: Final = 250
# In session order: how long sends are held at a time while the backlog is emptied, and the pause between.
_HELD_SECONDS: Final = 2.0
_BETWEEN_HOLDS: Final = 1.0
_NO_LONGER: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class DrillReport:
    """What one drill showed.

    :param drill: its id, the value of the marked messages' property ``x-servicebus-pair-drill``.
    :param sent: marked messages sent; all must have been diverted.
    :param arrived: marked messages that the primary confirmed.
    :param live: messages of applications that this process diverted during the drill.
    :param failed_over_seconds: for how long sends went to the backlog.
    :param drain_seconds: from the failback to the end of the drain; in session order, where the drain comes
        first, from its beginning to the failback.
    :param drain: what the drain did, live messages included.
    :param pings_delivered: whether the service hands out pings to receivers; ``None`` when nobody could look.
    :param findings: what was not as it should be, one sentence each.
    """

    drill: str
    entity: str
    sent: int = 0
    arrived: int = 0
    live: int = 0
    failed_over_seconds: float = 0.0
    drain_seconds: float = 0.0
    drain: DrainReport = field(default_factory=DrainReport)
    pings_delivered: bool | None = None
    findings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True when everything was as it should be."""
        return not self.findings


def drill_of(application_properties: Mapping[Any, Any] | None) -> str | None:
    """Answer the drill that a received message belongs to, or ``None`` for any other message.

    :param application_properties: those of the received message, keys as text or bytes.
    """
    for name, value in (application_properties or {}).items():
        if name in (DRILL_PROPERTY, DRILL_PROPERTY.encode()):
            return value.decode() if isinstance(value, bytes) else str(value)
    return None


def is_ping(content_type: str | bytes | None) -> bool:
    """Answer whether a received message is a ping, by its content type."""
    return content_type in (PING_CONTENT_TYPE, PING_CONTENT_TYPE.encode())


class _Watch:
    """An observer for the time of a drill."""

    def __init__(self, entity: str, drill: str) -> None:
        self._entity = entity.casefold()
        self._drill = drill
        self.arrived: set[str] = set()
        self.live = 0
        self.interrupted = False

    def observe(self, event: Event) -> None:
        match event:
            case MessagesSyphoned() if event.entity.casefold() == self._entity:
                ids = (ref.message_id for ref in event.messages)
                self.arrived.update(each for each in ids if each.startswith(self._drill))
            case MessagesAccepted(route=Route.BACKLOG) if event.entity.casefold() == self._entity:
                self.live += sum(not ref.message_id.startswith(self._drill) for ref in event.messages)
            case HealthChanged() if event.entity.casefold() == self._entity and event.before.failed_over:
                self.interrupted = True


class DrilledPair(Protocol):
    """What a drill needs of a pair; see ``NamespacePair`` for each."""

    def health(self, entity: str) -> EntityHealth:
        """Answer how an entity is."""
        ...

    def fail_over(self, entity: str, *, reason: str, by: str, hold: timedelta) -> EntityHealth:
        """Send an entity's messages to the backlog."""
        ...

    def mark_healthy(self, entity: str, *, reason: str, by: str) -> EntityHealth:
        """Send an entity's messages to the primary again."""
        ...

    def sender(self, entity: str) -> PairSender:
        """Answer a sender to an entity."""
        ...

    def syphon(self) -> Syphon:
        """Answer a syphon of all backlog queues."""
        ...


async def drill(
    pair: DrilledPair,
    shared: Shared,
    entity: str,
    *,
    messages: int,
    by: str,
    limit: timedelta,
    life: timedelta,
) -> DrillReport:
    """Run one drill; see ``NamespacePair.drill``."""
    if messages < 1:
        raise DrillError(f"messages is {messages}: a drill needs at least 1")
    for name, span in (("limit", limit), ("life", life)):
        if span <= timedelta(0):
            raise DrillError(f"{name} is {span}: it must be longer than 0")
    if not pair.health(entity).failed_over:
        return await _Drill(pair, shared, entity, by, limit).run(messages, life)
    raise DrillError(f"{entity} is failed over already ({pair.health(entity).reason}): drill when it is healthy")


class _Drill:
    def __init__(self, pair: DrilledPair, shared: Shared, entity: str, by: str, limit: timedelta) -> None:
        self._pair = pair
        self._shared = shared
        self._entity = entity
        self._by = by
        self._limit = limit
        self._now = shared.clock.now
        self._id = f"drill-{uuid.uuid4().hex[:12]}"
        self._findings: list[str] = []

    async def run(self, messages: int, life: timedelta) -> DrillReport:
        pings_delivered = await self._pings_are_delivered()
        watch = _Watch(self._entity, self._id)
        with self._shared.board.watching(watch):
            began = self._now()
            sent = await self._fail_over_and_send(messages, life)
            # As long as the failover held: a drill that somebody ended before its end proves nothing.
            if watch.interrupted:
                self._findings.append("somebody marked the entity healthy before the drill did")
            if self._shared.order is None:
                back = self._now()
                self._pair.mark_healthy(self._entity, reason=f"{self._id} is over", by=self._by)
                drain = await self._drain(sent)
                ended = self._now()
                drain_seconds = ended - back
            else:
                drained = self._now()
                drain = await self._drain_and_fail_back(self._shared.order)
                back = self._now()
                drain_seconds = back - drained
        self._judge(sent, watch, messages, drain)
        report = DrillReport(
            drill=self._id,
            entity=self._entity,
            sent=sent.sent,
            arrived=len(watch.arrived),
            live=watch.live,
            failed_over_seconds=back - began,
            drain_seconds=drain_seconds,
            drain=drain,
            pings_delivered=pings_delivered,
            findings=tuple(self._findings),
        )
        _log.info("drill=%s entity=%s passed=%s findings=%s", self._id, self._entity, report.passed, report.findings)
        return report

    async def _fail_over_and_send(self, messages: int, life: timedelta) -> SendResult:
        reason = f"{self._id}: a drill, the primary is up"
        self._pair.fail_over(self._entity, reason=reason, by=self._by, hold=self._limit)
        try:
            async with self._pair.sender(self._entity) as sender, asyncio.timeout(self._limit.total_seconds()):
                return await sender.send([self._marked(number, life) for number in range(messages)])
        except BaseException as error:
            self._give_up()
            if isinstance(error, PairError | TimeoutError):
                raise DrillError(
                    f"{self._id}: the marked messages were not sent, {type(error).__name__}: {error}"
                ) from error
            raise

    def _give_up(self) -> None:
        """Whatever happens: a drill must not leave the entity failed over.

        In session order a failback before the drain would put new messages before those of the backlog:
        then it is the pings, held no longer, that end the failover when the backlog is empty.
        """
        reason = f"{self._id} was given up"
        if self._shared.order is None:
            self._pair.mark_healthy(self._entity, reason=reason, by=self._by)
        else:
            self._pair.fail_over(self._entity, reason=reason, by=self._by, hold=_NO_LONGER)

    def _marked(self, number: int, life: timedelta) -> ServiceBusMessage:
        return ServiceBusMessage(
            "a message of a drill, to be ignored",
            message_id=f"{self._id}-{number}",
            # So that queues with sessions take it too.
            session_id=self._id,
            subject="drill",
            time_to_live=life,
            application_properties={DRILL_PROPERTY: self._id},
        )

    async def _drain(self, sent: SendResult) -> DrainReport:
        try:
            async with asyncio.timeout(self._limit.total_seconds()):
                return await self._pair.syphon().drain()
        except TimeoutError:
            self._findings.append(f"the drain was not finished in {self._limit}: what is left waits for a syphon")
            return DrainReport()
        except BaseException as error:
            _log.warning(
                "drill=%s entity=%s ended in its drain by %s: the entity is healthy, and what the drill diverted "
                "(marked messages=%d, and any of applications) waits in the backlog for a syphon or the next drain",
                self._id,
                self._entity,
                type(error).__name__,
                sent.diverted,
            )
            raise

    async def _drain_and_fail_back(self, order: SessionOrder) -> DrainReport:
        """In session order: move the backlog, hold the sends for its last part, fail back when it is empty."""
        syphon = self._pair.syphon()
        moving = asyncio.create_task(syphon.run(), name=f"drain of {self._id}")
        try:
            async with asyncio.timeout(self._limit.total_seconds()):
                while not await self._failed_back(order):
                    # One that ended before it was told to has failed, and says why.
                    if (await asyncio.wait({moving}, timeout=_BETWEEN_HOLDS))[0]:
                        moving.result()
        except TimeoutError:
            self._findings.append(
                f"the backlog was not empty within {self._limit}: the entity fails back by itself once it is"
            )
            self._give_up()
        except BaseException:
            self._give_up()
            raise
        finally:
            syphon.stop()
            await asyncio.wait({moving})
        return moving.result()

    async def _failed_back(self, order: SessionOrder) -> bool:
        async with order.fail_back(self._entity, drained_within=_HELD_SECONDS) as empty:
            if empty:
                self._pair.mark_healthy(self._entity, reason=f"{self._id} is over", by=self._by)
        return empty

    def _judge(self, sent: SendResult, watch: _Watch, messages: int, drain: DrainReport) -> None:
        if sent.primary:
            self._findings.append(f"{sent.primary} marked messages went to the primary in spite of the failover")
        if len(watch.arrived) < messages:
            self._findings.append(
                f"{messages - len(watch.arrived)} marked messages were not moved by this drain: "
                "another syphon may have moved them"
            )
        if not drain.empty:
            self._findings.append(f"the backlog is not empty: left={drain.left} failures={dict(drain.failures)}")
        if drain.dead_lettered:
            self._findings.append(f"dead-lettered in the backlog: {dict(drain.dead_lettered)}")

    async def _pings_are_delivered(self) -> bool | None:
        """Send one ping and look whether receivers would see it; nobody can look into a topic.

        :raises DrillError: the entity does not take it. Then nothing was done, as the primary must be up.
        """
        client, ping = self._shared.primary, ping_message()
        try:
            await client.send_link(self._entity).send_one(ping, timeout=_CALL_SECONDS)
        except ServiceError as error:
            raise DrillError(
                f"{self._entity} does not take a ping, so it was not drilled, {type(error).__name__}: {error}"
            ) from error
        receiver = client.receive_link(self._entity)
        try:
            return await self._finds(receiver, str(ping.message_id))
        except ServiceError as error:
            _log.info("drill=%s entity=%s: pings could not be looked for: %s", self._id, self._entity, error)
            return None
        finally:
            await receiver.close()

    async def _finds(self, receiver: ReceiveLink, message_id: str) -> bool | None:
        """Look through the queue for as long as a ping lives; ``None`` when it holds too much for that."""
        began, first = self._now(), 1
        while self._now() - began < PING_LIFE.total_seconds():
            page = await receiver.peek(most=_PEEKED, timeout=_CALL_SECONDS, first=first)
            if any(message.message_id == message_id for message in page):
                return True
            if not page:
                return False
            first = int(page[-1].sequence_number or 0) + 1
        return None
