"""``ServiceBusPairProvisionOperator``: makes the backlog queues that are missing."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context

from servicebus_pair.operators.base import PairOperator

__all__ = ["ServiceBusPairProvisionOperator"]


class ServiceBusPairProvisionOperator(PairOperator):
    """Creates the backlog queues that are missing on the secondary (SPEC section 3).

    Idempotent, and safe beside other runs: what exists is used as it is, and reported. Needs the
    Manage right on the secondary.

    The result is ``{"found": n, "created": n, "drifted": n, "extra": n, "failed": n}``, queues
    each; which they are, and how they differ, is in the log.

    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ProvisionError: not authorized, or no queue is usable.
    :raises ServiceError: the secondary's administration cannot be reached.
    """

    async def aexecute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  the base class hands it over
        """Provision."""
        async with self.hook.pair() as pair:
            report = await pair.provision()
        for drift in report.drifted:
            self.log.warning(
                "queue=%s drifted: %s is %s, expected %s", drift.queue, drift.field, drift.actual, drift.expected
            )
        for queue, reason in report.failed.items():
            self.log.warning("queue=%s was not created: %s", queue, reason)
        return {
            "found": len(report.found),
            "created": len(report.created),
            "drifted": len({drift.queue for drift in report.drifted}),
            "extra": len(report.extra),
            "failed": len(report.failed),
        }
