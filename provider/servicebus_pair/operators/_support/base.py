"""Base classes of the operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.sdk import BaseOperator, Context

from servicebus_pair.airflow_runtime.cancellable_run import CancellableRun
from servicebus_pair.airflow_runtime.observers.lineage import TaskLineage
from servicebus_pair.assets import health_alias, pair_asset
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID, ServiceBusPairHook
from servicebus_pair.links.servicebus_pair import AzurePortalLink, PairPageLink, Side

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

__all__ = ["AsyncPairOperator", "BasePairOperator", "LineageMixin"]

ResultT = TypeVar("ResultT")


class BasePairOperator(BaseOperator):
    """An operator that works on a pair of namespaces and can be killed.

    Health is read and shared through the state of the pair's asset, which is therefore an inlet. Asset events of
    failovers and recoveries go through the pair's alias, which is therefore an outlet.

    :param conn_id: the connection of type ``servicebus_pair``. It names assets when the DAG is parsed, so it cannot
        be a template.
    :raises ConfigurationError: ``conn_id`` is a template, or has characters other than letters, digits, underscores
        and hyphens.
    """

    operator_extra_links = (PairPageLink(), AzurePortalLink())
    portal_side: ClassVar[Side] = "secondary"

    def __init__(self, *, conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.inlets = [*self.inlets, pair_asset(conn_id)]
        self.outlets = [*self.outlets, health_alias(conn_id)]
        self._cancellable = CancellableRun()

    @property
    def hook(self) -> ServiceBusPairHook:
        """The hook of the connection."""
        return ServiceBusPairHook(self.conn_id)

    def run_async(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine; a kill or a time limit cancels it, and the pair is closed first."""
        return self._cancellable.run(coroutine)

    def on_kill(self) -> None:
        """Cancel the running coroutine; messages that the primary has not confirmed stay where they are."""
        self._cancellable.cancel()


class AsyncPairOperator(BasePairOperator):
    """An operator whose work is one coroutine, :meth:`aexecute`."""

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
