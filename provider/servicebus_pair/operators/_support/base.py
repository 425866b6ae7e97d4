"""Base classes of the operators."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.observers.lineage import TaskLineage
from servicebus_pair.airflow_runtime.pair_task import PairTask, failing_at_once

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

__all__ = ["AsyncPairOperator", "LineageMixin"]


class AsyncPairOperator(PairTask):
    """An operator whose work is one coroutine, :meth:`aexecute`."""

    @failing_at_once()
    def execute(self, context: Context) -> Any:
        """Run :meth:`aexecute`."""
        return self.run_async(self.aexecute(context))

    @abstractmethod
    async def aexecute(self, context: Context) -> Any:
        """Do the operator's work."""


class LineageMixin:
    """Implements the method that OpenLineage's provider calls, if it is installed (the extra ``openlineage``).

    The counts cover the whole try, including the time before its deferrals, and are collected while the task works:
    OpenLineage calls from a process of its own, where nothing could be looked up.
    """

    lineage: TaskLineage

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002
        """Return datasets, statistics and totals by route; OpenLineage calls this for failed tasks too."""
        from servicebus_pair.airflow_runtime.observers.openlineage import operator_lineage

        return operator_lineage(self.lineage)
