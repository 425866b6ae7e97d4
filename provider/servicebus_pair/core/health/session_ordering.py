"""``ordering="session"`` (SPEC section 6): messages of a session keep their order through divert and drain.

Diverted messages with a session id go to backlog queues that require sessions, where the broker gives each session to
one receiver at a time, in order. An entity fails back when its sessions there are empty. While messages keep coming,
they become so only if sends are held, which is worth while once little is left: whoever has a session locked, a syphon,
says so through the health of the entity. Between processes, order is kept by the leases of ``ordered_registry``.

With a spool (SPEC section 10), what no backlog queue took goes to one spool, whose name is in the health of the entity,
and so does everything after it, in all processes; a process without that spool raises. Whoever empties it sends to the
backlog, whatever the primary does, and holds the writers while it moves the last messages.
"""

from __future__ import annotations

import asyncio
import uuid
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from servicebus_pair.core.health.leases import FAILBACK_POLL_SECONDS
from servicebus_pair.core.health.ordered_registry import OrderedHealthRegistry
from servicebus_pair.core.model.errors import (
    ConfigurationError,
    EntityNotFoundError,
    ServiceError,
    ServiceFaultError,
    SessionLockedError,
    SpoolError,
)
from servicebus_pair.core.model.health_state import HealthState
from servicebus_pair.core.model.health_transitions import (
    AbandonFailback,
    BeginFailback,
    BeginSpool,
    CompleteFailback,
    FailOverBehind,
)
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.backlog_queues import backlog_session_id, session_queue_for
from servicebus_pair.core.protocol.typed_values import to_text
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.spool.spool import Spool

_log = get_logger(__name__)
_CALL_TIMEOUT: Final = 10.0
_ACCEPT_WAIT: Final = 1.0
_POLL_SECONDS: Final = 0.1
# Between two looks at what is left.
_LOOK_PAUSE: Final = 1.0
# After a hold in which the backlog did not become empty, the next one waits; doubled each time.
_FIRST_PAUSE_OF_HOLDS: Final = 15.0
_LONGEST_PAUSE_OF_HOLDS: Final = 300.0
# How long a session may be locked by another process that looks whether it is empty.
_LOOK_SECONDS: Final = 2.0
# What is left in a spool is little if it can be moved in this time.
_LITTLE_SECONDS: Final = 5.0
KeyT = TypeVar("KeyT")


class SessionOrdering:
    """Chooses backlog queues by session and fails entities back; one per pair and process.

    :param session_queues: paths of the backlog queues that require sessions, in the same order in every process.
    :param queues: paths of the others, for messages without a session id.
    :param spool: keeps what no backlog queue takes.
    """

    def __init__(
        self,
        secondary: NamespaceClient,
        registry: OrderedHealthRegistry,
        *,
        session_queues: Sequence[str],
        queues: Sequence[str],
        clock: Clock,
        spool: Spool | None = None,
    ) -> None:
        self._secondary = secondary
        self._registry = registry
        self._session_queues = tuple(session_queues)
        self._queues = tuple(queues)
        self._clock = clock
        self._spool = spool
        self._entered: Counter[str] = Counter()
        self._futile_holds: Counter[str] = Counter()
        self._hold_again_at: dict[str, float] = {}

    def queue_for(self, entity: str, session: str) -> str:
        """Return the backlog queue of a session."""
        return session_queue_for(entity, session, self._session_queues)

    def group_by_queue(
        self, entity: str, copies: Mapping[KeyT, AmqpMessage], messages: Mapping[KeyT, AmqpMessage]
    ) -> dict[str, dict[KeyT, AmqpMessage]]:
        """Return ``copies`` grouped by backlog queue, in the given order; they get the session id of their entity.

        :param messages: the originals of the copies, which have the session ids.
        """
        groups: dict[str, dict[KeyT, AmqpMessage]] = {}
        for key, copied in copies.items():
            session = _session(messages[key])
            if session is None:
                queue = self._queues[zlib.crc32(entity.casefold().encode()) % len(self._queues)]
            else:
                queue = self.queue_for(entity, session)
                assert copied.properties is not None  # noqa: S101 - a backlog copy has a message id
                copied.properties.group_id = backlog_session_id(entity)
            groups.setdefault(queue, {})[key] = copied
        return groups

    def lease_holder(self, entity: str) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Return what waits until the lease ends that is held now; ``None`` without a shared store."""
        registry = self._registry
        if not registry.is_shared:
            return None
        return lambda: registry.hold_lease(entity, registry.current(entity))

    async def enter_send(self, entity: str, *, timeout: float, unspools: bool = False) -> None:
        """Begin to send a batch, once that is allowed; until :meth:`leave_send`, no failback completes.

        Except while it waits in ``registry.lease``, which it must call before each attempt.

        :raises TimeoutError: it took longer; then :meth:`leave_send` must not be called.
        :raises HealthStoreError: the shared store cannot be read.
        """
        self._entered[entity.casefold()] += 1
        try:
            await self._registry.lease(entity, timeout=timeout, unspools=unspools)
        except BaseException:
            self.leave_send(entity)
            raise

    def leave_send(self, entity: str) -> None:
        """End a send that :meth:`enter_send` admitted."""
        self._entered[entity.casefold()] -= 1

    async def is_empty(self, entity: str) -> bool | None:
        """Return whether no session queue holds a message for ``entity``; ``None`` if the queues cannot be read.

        A session that somebody has locked is not empty.
        """
        held = await self._holding(entity, self._session_queues)
        return None if held is None else not held

    def check_spool(self) -> None:
        """Check that the spool may be used. :raises ConfigurationError: processes cannot agree on when."""
        if self._spool is not None and not self._registry.is_shared:
            raise ConfigurationError(
                "spool is set, ordering is 'session' and store is None: both options together need a store of shared "
                "health, through which all processes agree on when the messages of an entity go to the spool"
            )

    async def divert_behind_backlog(self, entity: str, *, spool: Spool | None = None) -> None:
        """Fail ``entity`` over if its backlog is not empty, so that nothing overtakes what an earlier process left.

        Not after a failback by hand, whose caller knew of that.

        :param spool: what it holds of the entity must not be overtaken either.
        :raises HealthStoreError: the shared store cannot be read or written.
        """
        if self._registry.current(entity).may_overtake:
            return
        empty = await self._become_empty(entity)
        if not empty:
            reason = "its backlog is not empty" if empty is False else "its backlog cannot be read"
            await self._registry.change(entity, FailOverBehind(reason))
        try:
            if spool is None or not await spool.batches(entity):
                return
            begin = BeginSpool(await spool.name(), "the spool holds messages")
        except SpoolError as error:
            # Its messages are on record in the shared health, too: a send needs the spool only if that says so.
            _log.warning("entity=%s: %s", entity, error)
            return
        await self._registry.change(entity, FailOverBehind(begin.reason))
        await self._registry.change(entity, begin)

    async def abandon_dead_failback(self, entity: str) -> None:
        """Fail over again if the process that began a failback has died. :raises HealthStoreError: as above."""
        await self._registry.abandon_dead_failback(entity)

    async def fail_back(
        self, entity: str, *, reason: str, by: str, look_first: bool = True, wait_for_syphons: bool = False
    ) -> bool:
        """Make a failed-over entity healthy if its backlog becomes empty; sends to it are held meanwhile.

        :param reason: recorded with the change, as is ``by``.
        :param look_first: hold sends only if so little is left that it can be moved meanwhile.
        :param wait_for_syphons: look for some seconds, in which syphons may say so; else only once.
        :returns: whether the entity is healthy.
        :raises HealthStoreError: the shared store cannot be read or written.
        """
        if self._registry.current(entity).spool and not await self._leave_empty_spool(entity):
            return False
        if look_first and (not self._may_hold(entity) or not await self._is_little_left(entity, wait=wait_for_syphons)):
            return False
        begin = BeginFailback(reason, by, uuid.uuid4().hex)
        return await self._hold(entity, begin, partial(self._stays_empty, entity, begin.token))

    async def leave_spool(self, entity: str, empty: Callable[[], Awaitable[bool]]) -> None:
        """End the route to the spool of this process, if it is that of ``entity``, once the spool holds nothing of it.

        Not before the backlog can be reached.

        :param empty: moves what the spool holds, and returns whether that worked; the last time while writers are held.
        :raises HealthStoreError: the shared store cannot be read or written.
        """
        registry = self._registry
        name = (await registry.refresh(entity)).spool
        if self._spool is None or not name or name != await self._spool.existing_name() or not self._may_hold(entity):
            return
        # No process writes to the spool before its route has settled, and while the backlog cannot be reached, the next
        # send would only begin the route again.
        unsettled = registry.leases.seconds_to_settle(entity, self._clock.now()) > 0
        if unsettled or await self._find(entity, self._session_queues, self._lists) is None:
            return
        while True:
            began = self._clock.now()
            if not await empty():
                return
            if self._clock.now() < began + _LITTLE_SECONDS:
                break
        reason = "the spool is empty: messages go to the backlog again"
        await self._hold(entity, BeginFailback(reason, "syphon", uuid.uuid4().hex, name), empty)

    def _may_hold(self, entity: str) -> bool:
        return self._clock.now() >= self._hold_again_at.get(entity.casefold(), -inf)

    async def _hold(self, entity: str, begin: BeginFailback, empty: Callable[[], Awaitable[bool]]) -> bool:
        """Hold all sends, and end the route that ``begin`` says if ``empty`` says then that nothing is left on it."""
        registry, key, token = self._registry, entity.casefold(), begin.token
        await registry.change(entity, begin)
        try:
            if registry.is_shared:
                await self._clock.sleep(registry.leases.hold_seconds)
            is_empty = registry.current(entity).is_failing_back(token) and await empty()
        except BaseException:
            registry.apply(entity, AbandonFailback(token))
            raise
        await registry.change(entity, CompleteFailback(token) if is_empty else AbandonFailback(token))
        health = registry.current(entity)
        if is_empty and not (health.spool if begin.spool else health.failed_over):
            self._futile_holds.pop(key, None)
            self._hold_again_at.pop(key, None)
            return True
        self._futile_holds[key] += 1
        pause = min(_FIRST_PAUSE_OF_HOLDS * 2 ** (self._futile_holds[key] - 1), _LONGEST_PAUSE_OF_HOLDS)
        self._hold_again_at[key] = self._clock.now() + pause
        return False

    async def _leave_empty_spool(self, entity: str) -> bool:
        spool = self._spool

        async def is_empty() -> bool:
            return spool is not None and not await spool.batches(entity)

        try:
            await self.leave_spool(entity, is_empty)
        except SpoolError as error:
            _log.warning("entity=%s: %s", entity, error)
        return not self._registry.current(entity).spool

    async def _is_little_left(self, entity: str, *, wait: bool) -> bool:
        """Return whether each queue was empty for a moment, or a syphon that has its session says that it nearly is.

        A large backlog that is being moved, or one that nobody moves, is neither.
        """
        registry = self._registry
        deadline = self._clock.now() + FAILBACK_POLL_SECONDS
        if registry.is_shared:
            # Others learn of the ping, and what they say then has to be read here.
            deadline += 2 * registry.leases.refresh
        remaining = self._session_queues
        while registry.current(entity).state is HealthState.FAILED_OVER:
            caught_up = registry.current(entity).caught_up
            waiting = tuple(queue for queue in remaining if self._session_queues.index(queue) not in caught_up)
            listing = await self._find(entity, waiting, self._lists)
            if not listing:
                return listing is not None
            if not wait or self._clock.now() >= deadline:
                break
            remaining = listing
            await self._clock.sleep(_LOOK_PAUSE)
            if registry.is_shared:
                await registry.refresh(entity)
        return False

    async def _stays_empty(self, entity: str, token: str) -> bool:
        """Return whether the backlog is empty once nobody sends any more."""
        registry = self._registry
        deadline = self._clock.now() + FAILBACK_POLL_SECONDS
        while registry.current(entity).is_failing_back(token):
            if not self._is_sending(entity) and await self.is_empty(entity) and self._clock.now() < deadline:
                return True
            if self._clock.now() >= deadline:
                break
            await self._clock.sleep(_POLL_SECONDS)
        return False

    def _is_sending(self, entity: str) -> bool:
        return self._entered[entity.casefold()] > self._registry.waiting(entity)

    async def _become_empty(self, entity: str) -> bool | None:
        """Return whether each queue was empty at least once in a short time; ``None`` if they cannot be read."""
        deadline = self._clock.now() + _LOOK_SECONDS
        remaining = self._session_queues
        while True:
            held = await self._holding(entity, remaining)
            if not held:
                return None if held is None else True
            if self._clock.now() >= deadline:
                return False
            remaining = held
            await self._clock.sleep(_POLL_SECONDS)

    async def _holding(self, entity: str, queues: Sequence[str]) -> tuple[str, ...] | None:
        """Return which of ``queues`` hold messages for ``entity``, or are locked; ``None`` if they cannot be read."""
        return await self._find(entity, queues, self._holds)

    async def _find(
        self, entity: str, queues: Sequence[str], holds: Callable[[str, str], Coroutine[Any, Any, bool]]
    ) -> tuple[str, ...] | None:
        try:
            found = await asyncio.gather(*(holds(queue, backlog_session_id(entity)) for queue in queues))
        except ServiceError as error:
            _log.warning("entity=%s: its backlog cannot be read: %s", entity, error)
            return None
        return tuple(queue for queue, holds in zip(queues, found, strict=True) if holds)

    async def _lists(self, queue: str, session_id: str) -> bool:
        """Return whether a session is among those with messages; it may be locked, and is left alone."""
        try:
            return session_id in await self._secondary.list_sessions(queue, timeout=_CALL_TIMEOUT)
        except EntityNotFoundError:
            return False

    async def _holds(self, queue: str, session_id: str) -> bool:
        link = self._secondary.session_link(queue, wait=_ACCEPT_WAIT, session_id=session_id)
        try:
            if await link.accept(timeout=_CALL_TIMEOUT) is None:
                return True  # the service has not granted it
            try:
                return bool(await link.peek(max_messages=1, timeout=_CALL_TIMEOUT))
            except ServiceFaultError:
                return True  # there is a message, which cannot be decoded
        except SessionLockedError:
            return True
        except EntityNotFoundError:
            return False  # not provisioned yet, so nothing was diverted to it
        finally:
            await link.close()


def _session(message: AmqpMessage) -> str | None:
    session = None if message.properties is None else message.properties.group_id
    return None if session is None else to_text(session)
