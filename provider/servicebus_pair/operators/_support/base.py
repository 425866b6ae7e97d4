"""Base classes of the operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.observers.lineage import TaskLineage
from servicebus_pair.airflow_runtime.pair_task import PairTask, failing_at_once
from servicebus_pair.airflow_runtime.task_ledger import StoragePath
from servicebus_pair.airflow_runtime.validators import optional_spool
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

__all__ = ["AsyncPairOperator", "LineageMixin", "SpoolTask"]


class AsyncPairOperator(PairTask):
    """An operator whose work is one coroutine, :meth:`aexecute`."""

    @failing_at_once()
    def execute(self, context: Context) -> Any:
        """Run :meth:`aexecute`."""
        return self.run_async(self.aexecute(context))

    @abstractmethod
    async def aexecute(self, context: Context) -> Any:
        """Do the operator's work."""


class SpoolTask(PairTask):
    """A task with a spool of its own.

    :param spool: in place of the connection's spool (templated).
    """

    template_fields: Collection[str] = ("spool",)
    parameter_checks: ClassVar = {"spool": optional_spool}

    def __init__(self, *, spool: StoragePath | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spool = spool

    @property
    def hook(self) -> ServiceBusPairHook:
        """The hook of the connection, with the spool of this task."""
        return ServiceBusPairHook(self.servicebus_pair_conn_id, spool=optional_spool("spool", self.spool))


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
