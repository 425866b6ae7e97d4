"""``ServiceBusPairProvisionOperator``: makes the backlog queues that are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from airflow.sdk import Context

from servicebus_pair.core.errors import PairError
from servicebus_pair.core.results import Drift
from servicebus_pair.operators.base import PairOperator
from servicebus_pair.operators.parameters import check_early, choice, flag

__all__ = ["BacklogDriftError", "ServiceBusPairProvisionOperator"]

_WARN: Final = "warn"
_FAIL: Final = "fail"
_policy = choice(_WARN, _FAIL)


class BacklogDriftError(PairError):
    """Existing backlog queues differ from the description, and the task's policy is to fail then."""


class ServiceBusPairProvisionOperator(PairOperator):
    """Creates the backlog queues that are missing on the secondary (SPEC section 3).

    Idempotent, and safe beside other runs: what exists is used as it is, and reported. Needs the
    Manage right on the secondary.

    The result is ``{"found": n, "missing": n, "created": n, "drifted": n, "extra": n, "failed": n}``,
    queues each; which they are, and how they differ, is in the log.

    :param plan_only: a dry run: only tell what would be done, from the same plan; nothing is created (templated).
    :param on_drift: what an existing queue with another description leads to: ``warn`` logs each field that
        differs, ``fail`` does the same and fails the task. What is missing is created first, since an
        imperfect backlog is better than none (templated).
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is wrong; nothing was done.
    :raises BacklogDriftError: queues have drifted, and ``on_drift`` is ``fail``.
    :raises ProvisionError: not authorized, or no queue is usable.
    :raises ServiceError: the secondary's administration cannot be reached.
    """

    template_fields = ("plan_only", "on_drift")

    def __init__(self, *, plan_only: bool | str = False, on_drift: str = _WARN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_only = plan_only
        self.on_drift = on_drift
        check_early("plan_only", plan_only, flag)
        check_early("on_drift", on_drift, _policy)

    async def aexecute(self, context: Context) -> dict[str, int]:  # noqa: ARG002  the base class hands it over
        """Provision, or tell the plan."""
        policy, only_plan = _policy("on_drift", self.on_drift), flag("plan_only", self.plan_only)
        created: Sequence[str] = ()
        failed: Mapping[str, str] = {}
        async with self.hook.pair() as pair:
            plan = await pair.plan()
            for queue in plan.create:
                self.log.info("queue=%s is missing: it %s created", queue, "would be" if only_plan else "is")
            for queue in plan.extra:
                self.log.info("queue=%s is extra: left alone and unused", queue)
            if not only_plan:
                report = await pair.provision()
                created, failed = report.created, report.failed
        for queue, reason in failed.items():
            self.log.warning("queue=%s was not created: %s", queue, reason)
        self._judge(plan.drifted, policy)
        return {
            "found": len(plan.found),
            "missing": len(plan.create),
            "created": len(created),
            "drifted": len({drift.queue for drift in plan.drifted}),
            "extra": len(plan.extra),
            "failed": len(failed),
        }

    def _judge(self, drifted: Sequence[Drift], policy: str) -> None:
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
