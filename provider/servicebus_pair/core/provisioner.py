"""Provisioning the backlog queues (SPEC section 3): a thin shell around ``plan_backlog``."""

from __future__ import annotations

import logging
from typing import Final

from servicebus_pair.core.administration import Administration
from servicebus_pair.core.backlog import BACKLOG_QUEUE, BacklogPlan, plan_backlog
from servicebus_pair.core.errors import (
    AuthenticationError,
    AuthorizationError,
    EntityExistsError,
    ProvisionError,
    ServiceError,
)
from servicebus_pair.core.ports import Clock
from servicebus_pair.core.results import ProvisionReport

__all__ = ["Provisioner"]

_log = logging.getLogger(__name__)
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 1.0
_NOT_ALLOWED: Final = (AuthenticationError, AuthorizationError)


class Provisioner:
    """Creates what is missing of a pair's backlog queues and touches nothing else.

    :param namespace: name of the primary namespace, the first part of each path.
    :param count: number of backlog queues.
    """

    def __init__(self, administration: Administration, *, namespace: str, count: int, clock: Clock) -> None:
        self._administration = administration
        self._namespace = namespace
        self._count = count
        self._clock = clock

    async def plan(self) -> BacklogPlan:
        """Answer what :meth:`provision` would do, without doing it.

        :raises ServiceError: the secondary cannot be read.
        """
        return plan_backlog(self._namespace, self._count, await self._administration.queues())

    async def provision(self) -> ProvisionReport:
        """Create the missing queues, each with three tries; idempotent and safe beside other runs.

        :raises ProvisionError: not authorized, or not one queue is usable.
        :raises ServiceError: the secondary cannot be read.
        """
        try:
            plan = await self.plan()
        except _NOT_ALLOWED as refusal:
            raise _not_allowed("listing the queues", refusal) from refusal
        created: list[str] = []
        failed: dict[str, str] = {}
        for path in plan.create:
            error = await self._create(path)
            if error is None:
                created.append(path)
            else:
                failed[path] = str(error)
        report = ProvisionReport(plan.found, tuple(created), plan.drifted, plan.extra, failed)
        _log.info(
            "backlog of namespace=%s found=%d created=%d drifted=%d extra=%d failed=%d",
            self._namespace,
            len(report.found),
            len(report.created),
            len(report.drifted),
            len(report.extra),
            len(report.failed),
        )
        if not report.found and not report.created:
            raise ProvisionError(f"no usable backlog queue for namespace {self._namespace}: {failed}")
        return report

    async def _create(self, path: str) -> ServiceError | None:
        for attempt in range(1, _TRIES + 1):
            try:
                await self._administration.create_queue(path, BACKLOG_QUEUE)
            except EntityExistsError:
                return None
            except _NOT_ALLOWED as error:
                raise _not_allowed(f"creating {path}", error) from error
            except ServiceError as error:
                if attempt == _TRIES:
                    return error
                await self._clock.sleep(_PAUSE_SECONDS * attempt)
            else:
                return None
        raise AssertionError("unreachable: the last try returns")


def _not_allowed(doing: str, error: ServiceError) -> ProvisionError:
    return ProvisionError(f"{doing} is not allowed, the Manage right is needed: {error}")
