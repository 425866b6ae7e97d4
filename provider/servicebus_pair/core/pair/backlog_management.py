"""Managing the backlog queues of a pair: creating, checking, counting and deleting them, and what they cost."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Final

from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.options import Endpoint, PairOptions
from servicebus_pair.core.model.pricing import Operations, backlog_operations, idle_syphon_operations, ping_operations
from servicebus_pair.core.model.results import CleanupReport, ProvisionReport
from servicebus_pair.core.model.usage_meter import Meter
from servicebus_pair.core.protocol.backlog_queues import (
    BacklogPlan,
    backlog_prefixes,
    backlog_queue_paths,
    session_queue_paths,
)
from servicebus_pair.core.provision.provisioning import Cleaner, Provisioner
from servicebus_pair.core.sdk.administration import Administration, QueueDepth, administration_for

_NONE: Final = timedelta(0)


class BacklogManagement:
    """What a pair does without sending or receiving: it manages its backlog queues and plans their cost.

    :param meter: counts the requests.
    """

    def __init__(
        self, primary: Endpoint, secondary: Endpoint, options: PairOptions, *, clock: Clock, meter: Meter
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.options = options
        self.meter = meter
        self._clock = clock
        self._ordered = options.ordering == "session"
        count = options.backlog_queue_count
        self._queues = backlog_queue_paths(primary.namespace, count)
        self._session_queues = session_queue_paths(primary.namespace, count) if self._ordered else ()

    async def provision(self) -> ProvisionReport:
        """Create the missing backlog queues on the secondary (SPEC section 3). Idempotent.

        :raises ProvisionError: not authorized, or no queue is usable.
        :raises ServiceError: the secondary's administration cannot be reached.
        """
        async with self._manage() as administration:
            return await self._provisioner(administration).provision()

    async def plan(self) -> BacklogPlan:
        """Return what :meth:`provision` would do. :raises ServiceError: the administration cannot be reached."""
        async with self._manage() as administration:
            return await self._provisioner(administration).plan()

    async def plan_cleanup(self, *, everything: bool = False, only: Collection[str] | None = None) -> tuple[str, ...]:
        """Return the backlog queues that :meth:`cleanup` deletes if they are empty.

        :param everything: as in :meth:`cleanup`.
        :param only: restrict the cleanup to these paths.
        :raises ServiceError: the secondary's administration cannot be reached.
        """
        async with self._manage() as administration:
            return await self._cleaner(administration).plan(everything=everything, only=only)

    async def cleanup(
        self, *, everything: bool = False, force: bool = False, only: Collection[str] | None = None
    ) -> CleanupReport:
        """Delete backlog queues with an index beyond the count, if they are empty (SPEC section 3).

        :param everything: include all backlog queues of this pair, not only the extra ones.
        :param force: delete queues with their messages, which are lost.
        :param only: restrict the cleanup to these paths.
        :raises ServiceError: the secondary's administration cannot be reached.
        """
        async with self._manage() as administration:
            return await self._cleaner(administration).clean(everything=everything, force=force, only=only)

    async def backlog_depths(self) -> list[QueueDepth]:
        """Return the message counts of each backlog queue, session queues included, from one listing of the secondary.

        :raises ServiceError: the secondary's administration cannot be reached.
        """
        async with self._manage() as administration:
            return await administration.queue_depths(*backlog_prefixes(self.primary.namespace))

    def cost(
        self,
        *,
        period: timedelta = timedelta(days=30),
        messages: int = 0,
        size_bytes: int = 1024,
        outage: timedelta = _NONE,
    ) -> Operations:
        """Return the planned operations of this pair's backlog in ``period``; ``bill`` prices them.

        Actual operations are in :attr:`meter`.

        :param period: duration during which a continuous syphon polls.
        :param messages: number of messages that pass through the backlog, each of ``size_bytes``.
        :param outage: duration of an outage of one entity, during which it is pinged.
        """
        idle = idle_syphon_operations(
            queues=len(self._queues) + len(self._session_queues),
            long_poll=self.options.syphon_long_poll,
            period=period,
        )
        pings = ping_operations(outage=outage, interval=self.options.ping_primary_interval)
        return idle + pings + backlog_operations(messages, size_bytes=size_bytes)

    def _manage(self) -> AbstractAsyncContextManager[Administration]:
        return administration_for(self.secondary, meter=self.meter)

    def _cleaner(self, administration: Administration) -> Cleaner:
        return Cleaner(
            administration,
            namespace=self.primary.namespace,
            count=self.options.backlog_queue_count,
            ordered=self._ordered,
        )

    def _provisioner(self, administration: Administration) -> Provisioner:
        return Provisioner(
            administration,
            namespace=self.primary.namespace,
            count=self.options.backlog_queue_count,
            clock=self._clock,
            ordered=self._ordered,
        )
