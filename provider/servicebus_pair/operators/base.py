"""What the operators of this provider share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

from airflow.sdk import BaseOperator, Context

from servicebus_pair.hooks.assets import health_alias, pair_asset
from servicebus_pair.hooks.running import CancellableRun
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID, ServiceBusPairHook
from servicebus_pair.links.servicebus_pair import AzurePortalLink, PairPageLink, Side

__all__ = ["PairOperator", "PairTask"]

ResultT = TypeVar("ResultT")


class PairTask(BaseOperator):
    """A task on a pair of namespaces, which a kill can end.

    It reads and shares health through the state of the pair's asset, so that asset is among its
    inlets; the events of what it finds out go through the pair's alias, among its outlets.

    :param conn_id: the connection of type ``servicebus_pair``. It names assets when the DAG is
        parsed, so it cannot be a template.
    :raises ConfigurationError: ``conn_id`` is a template or has other characters than letters,
        digits, underscores and hyphens.
    """

    operator_extra_links = (PairPageLink(), AzurePortalLink())
    portal_side: ClassVar[Side] = "secondary"

    def __init__(self, *, conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.inlets = [*self.inlets, pair_asset(conn_id)]
        self.outlets = [*self.outlets, health_alias(conn_id)]
        self._run = CancellableRun()

    @property
    def hook(self) -> ServiceBusPairHook:
        """The hook of the connection."""
        return ServiceBusPairHook(self.conn_id)

    def run_async(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``call`` to its end; a kill or a time limit cancels it and closes the pair first."""
        return self._run.run(call)

    def on_kill(self) -> None:
        """Cancel what runs; messages that the primary did not confirm stay where they are."""
        self._run.cancel()


class PairOperator(PairTask):
    """An operator whose work is one coroutine, :meth:`aexecute`."""

    def execute(self, context: Context) -> Any:
        """Run :meth:`aexecute` to its end."""
        return self.run_async(self.aexecute(context))

    @abstractmethod
    async def aexecute(self, context: Context) -> Any:
        """Do the operator's work."""
