"""Create missing backlog queues, and delete unneeded ones that are empty (SPEC section 3).

A message may arrive between counting and deleting. Cleanup therefore first disables sending to an empty queue, counts
again, and only then deletes it; if a message did arrive, or the cleanup fails or is cancelled, sending is enabled
again. A cleanup that is killed in between leaves an empty queue with sending disabled: provisioning reports it as drift
of ``status``, the next cleanup deletes it, and senders use another queue meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from servicebus_pair.core.model.errors import (
    AuthenticationError,
    AuthorizationError,
    EntityExistsError,
    EntityNotFoundError,
    ProvisionError,
    ServiceError,
)
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.results import CleanupReport, ProvisionReport
from servicebus_pair.core.protocol.backlog_queues import (
    BACKLOG_QUEUE,
    SESSION_QUEUE,
    BacklogPlan,
    cleanup_targets,
    is_session_queue,
    plan_backlog,
    unusable_queues,
)
from servicebus_pair.core.sdk.administration import Administration

_log = get_logger(__name__)
_RETRY_DELAYS_SECONDS: Final = (1.0, 2.0)
_DENIED: Final = (AuthenticationError, AuthorizationError)


class Provisioner:
    """Creates the missing backlog queues of a pair and changes nothing else.

    :param namespace: name of the primary namespace, the first part of each path.
    :param count: number of backlog queues.
    :param ordered: as many queues that require sessions, too.
    """

    def __init__(
        self, administration: Administration, *, namespace: str, count: int, clock: Clock, ordered: bool = False
    ) -> None:
        self._administration = administration
        self._namespace = namespace
        self._count = count
        self._clock = clock
        self._ordered = ordered

    async def plan(self) -> BacklogPlan:
        """Return what :meth:`provision` would do."""
        actual = await self._administration.list_queues()
        return plan_backlog(self._namespace, self._count, actual, ordered=self._ordered)

    async def provision(self) -> ProvisionReport:
        """Create the missing queues, with three attempts each. Idempotent and safe with concurrent runs.

        :raises ProvisionError: not authorized, or no queue is usable, or none of those that require sessions.
        :raises ServiceError: the secondary cannot be read.
        """
        try:
            plan = await self.plan()
        except _DENIED as refusal:
            raise _missing_right("listing the queues", refusal) from refusal
        created: list[str] = []
        failed = unusable_queues(plan)
        found = tuple(path for path in plan.found if path not in failed)
        for path, reason in failed.items():
            _log.error("backlog queue=%s cannot be used: %s", path, reason)
        for path in plan.create:
            error = await self._create(path)
            if error is None:
                created.append(path)
            else:
                failed[path] = str(error)
        report = ProvisionReport(found, tuple(created), plan.drifted, plan.extra, failed)
        _log.info(
            "backlog of namespace=%s found=%d created=%d drifted=%d extra=%d failed=%d",
            self._namespace,
            len(report.found),
            len(report.created),
            len(report.drifted),
            len(report.extra),
            len(report.failed),
        )
        kinds = [is_session_queue(self._namespace, path) for path in (*report.found, *report.created)]
        if not all(required in kinds for required in {False, self._ordered}):
            kind = "queue that requires sessions" if False in kinds else "queue"
            raise ProvisionError(f"no usable backlog {kind} for namespace {self._namespace}: {failed}")
        return report

    async def _create(self, path: str) -> ServiceError | None:
        settings = SESSION_QUEUE if is_session_queue(self._namespace, path) else BACKLOG_QUEUE
        delays = iter(_RETRY_DELAYS_SECONDS)
        while True:
            try:
                await self._administration.create_queue(path, settings)
            except EntityExistsError:
                return None
            except _DENIED as error:
                raise _missing_right(f"creating {path}", error) from error
            except ServiceError as error:
                delay = next(delays, None)
                if delay is None:
                    return error
                await self._clock.sleep(delay)
            else:
                return None


def _missing_right(operation: str, error: ServiceError) -> ProvisionError:
    return ProvisionError(f"{operation} is not allowed: the Manage right is required: {error}")


class Cleaner:
    """Deletes backlog queues of a pair, on request only; created like :class:`Provisioner`."""

    def __init__(self, administration: Administration, *, namespace: str, count: int, ordered: bool = False) -> None:
        self._administration = administration
        self._namespace = namespace
        self._count = count
        self._ordered = ordered

    async def plan(self, *, everything: bool, only: Collection[str] | None = None) -> tuple[str, ...]:
        """Return the queues that :meth:`clean` would delete if they are empty."""
        actual = await self._administration.list_queues()
        targets = cleanup_targets(self._namespace, self._count, actual, everything=everything, ordered=self._ordered)
        chosen = None if only is None else {path.casefold() for path in only}
        return tuple(path for path in targets if chosen is None or path.casefold() in chosen)

    async def clean(self, *, everything: bool, force: bool, only: Collection[str] | None = None) -> CleanupReport:
        """Delete empty backlog queues that are extra, or all of them; see ``NamespacePair.cleanup``."""
        deleted: list[str] = []
        kept: dict[str, int] = {}
        failed: dict[str, str] = {}
        for path in await self.plan(everything=everything, only=only):
            try:
                held = await (self._delete(path) if force else self._delete_if_empty(path))
                if held:
                    kept[path] = held
                else:
                    deleted.append(path)
            except EntityNotFoundError:
                deleted.append(path)  # by a concurrent run
            except ServiceError as error:
                failed[path] = str(error)
        _log.info(
            "cleanup of namespace=%s deleted=%d kept=%d failed=%d forced=%s",
            self._namespace,
            len(deleted),
            len(kept),
            len(failed),
            force,
        )
        return CleanupReport(tuple(deleted), kept, failed)

    async def _delete(self, path: str) -> int:
        await self._administration.delete_queue(path)
        return 0

    async def _delete_if_empty(self, path: str) -> int:
        """Delete the queue if it is empty; return the number of messages otherwise."""
        held = await self._administration.message_count(path)
        if held:
            return held
        try:
            await self._administration.set_sending(path, enabled=False)
            arrived = await self._administration.message_count(path)
            if not arrived:
                return await self._delete(path)
        except BaseException as error:
            # Also on cancellation: a queue that is not deleted must accept messages again.
            await self._enable_sending(path, error)
            raise
        await self._administration.set_sending(path, enabled=True)
        return arrived

    async def _enable_sending(self, path: str, cause: BaseException) -> None:
        try:
            await self._administration.set_sending(path, enabled=True)
        except EntityNotFoundError:
            raise  # it was deleted after all
        except ServiceError as error:
            _log.exception("backlog queue=%s has sending disabled and could not be enabled again", path)
            if isinstance(cause, ServiceError):
                raise type(cause)(
                    f"{cause}; sending stays disabled, since enabling it failed, too ({error}): "
                    "clean up again, or set its status to Active"
                ) from cause
