"""``ServiceBusPairProvisionOperator``: creates the missing backlog queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.validators import boolean, choice
from servicebus_pair.core.errors import PairError
from servicebus_pair.core.model import Drift
from servicebus_pair.operators._support.base import AsyncPairOperator

__all__ = ["BacklogDriftError", "ServiceBusPairProvisionOperator"]

_WARN: Final = "warn"
_FAIL: Final = "fail"
_drift_policy = choice(_WARN, _FAIL)


class BacklogDriftError(PairError):
    """Existing backlog queues differ from the description, and ``on_drift`` is ``fail``."""


class ServiceBusPairProvisionOperator(AsyncPairOperator):
    """Creates the backlog queues that are missing on the secondary (SPEC section 3).

    With ``ordering="session"`` these include the queues that require sessions. Idempotent and safe to run concurrently:
    existing queues are used unchanged and reported. Needs the Manage right on the secondary.

    The result is ``{"found": n, "missing": n, "created": n, "drifted": n, "extra": n, "failed": n}``, in queues; the
    log names them and their differences. A failed queue could not be created, or exists and cannot be used: it requires
    sessions although it must not, or the reverse, which only deleting and provisioning it again changes.

    :param plan_only: a dry run: log the plan and create nothing (templated).
    :param on_drift: what to do when an existing queue differs from the description: ``warn`` logs each differing field,
        ``fail`` also fails the task, after the missing queues were created (templated).
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is invalid; nothing was done.
    :raises BacklogDriftError: queues have drifted, and ``on_drift`` is ``fail``.
    :raises ProvisionError: the Manage right is missing, or no queue is usable.
    :raises ServiceError: the secondary's administration cannot be reached.
    """

    template_fields = ("plan_only", "on_drift")
    parameter_checks: ClassVar = {"plan_only": boolean, "on_drift": _drift_policy}

    def __init__(self, *, plan_only: bool | str = False, on_drift: str = _WARN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_only = plan_only
        self.on_drift = on_drift
        self.check_parameters()

    async def aexecute(self, context: Context) -> dict[str, int]:  # noqa: ARG002  the base class passes it
        """Create the missing queues, or log the plan."""
        # Imported here, so that parsing a DAG file does not load it.
        from servicebus_pair.core.protocol import unusable_queues

        policy, plan_only = _drift_policy("on_drift", self.on_drift), boolean("plan_only", self.plan_only)
        created: Sequence[str] = ()
        async with self.hook.pair() as pair:
            plan = await pair.plan()
            failed: Mapping[str, str] = unusable_queues(plan)
            for queue in plan.create:
                self.log.info("queue=%s is missing: it %s created", queue, "would be" if plan_only else "is")
            for queue in plan.extra:
                self.log.info("queue=%s is extra: left alone and unused", queue)
            if not plan_only:
                report = await pair.provision()
                created, failed = report.created, report.failed
        for queue, reason in failed.items():
            self.log.warning("queue=%s cannot be used: %s", queue, reason)
        self._report_drift(plan.drifted, policy)
        return {
            "found": len(plan.found),
            "missing": len(plan.create),
            "created": len(created),
            "drifted": len({drift.queue for drift in plan.drifted}),
            "extra": len(plan.extra),
            "failed": len(failed),
        }

    def _report_drift(self, drifted: Sequence[Drift], policy: str) -> None:
        for drift in drifted:
            self.log.warning(
                "queue=%s drifted: %s is %s, expected %s", drift.queue, drift.field, drift.actual, drift.expected
            )
        if drifted and policy == _FAIL:
            first = drifted[0]
            raise BacklogDriftError(
                f"{len({drift.queue for drift in drifted})} backlog queues differ from the description, first "
                f"{first.queue}: {first.field} is {first.actual}, expected {first.expected}; they are used as they "
                "are: change or delete them, or set on_drift='warn'"
            )
