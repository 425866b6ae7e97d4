"""Operators that tell OpenLineage what they read and wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from servicebus_pair.hooks.lineage import TaskLineage

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

__all__ = ["TellsLineage"]


class TellsLineage:
    """What OpenLineage's provider asks an operator for, if it is installed (the extra ``openlineage``).

    The counts are those of the try that ended, however it ended, the time before its deferrals included. They are
    taken while the task works, so that nothing is looked up when OpenLineage asks, in a process of its own.
    """

    lineage: TaskLineage

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002
        """Return datasets, statistics and counts by route; OpenLineage asks a task that failed for the same."""
        from servicebus_pair.hooks.openlineage import operator_lineage

        return operator_lineage(self.lineage)
