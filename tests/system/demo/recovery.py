"""How the backlog comes home: by the DAG that starts by itself, or by the one of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tests.system.demo.outage import RETURN_AT

if TYPE_CHECKING:
    from tests.system.demo.rest import AirflowApi, DagRun

__all__ = ["BY_ITSELF", "IN_SPARK", "RecoversByItself", "RecoversInSpark", "Recovery"]

BY_ITSELF: Final = "servicebus_pair_recovery"
IN_SPARK: Final = "servicebus_pair_at_scale"
WAITING = "wait_for_primary"


class Recovery(Protocol):
    """One way for the backlog to come home."""

    def prepare(self) -> None:
        """Do what has to be done before the first message is sent."""

    def runs(self) -> list[DagRun]:
        """Return the recoveries that have begun."""

    def is_ready(self, *, published: float) -> bool:
        """Tell whether the primary may come back, when this part of all messages is accepted."""

    def word(self) -> str:
        """Say how things are as the primary comes back."""

    def go_on(self, pipeline: DagRun) -> None:
        """Begin what has to be begun now, after the primary is back."""


class RecoversByItself:
    """The recovery DAG, which the outage starts: it waits for the primary in the triggerer."""

    def __init__(self, api: AirflowApi) -> None:
        self._api = api

    def prepare(self) -> None:
        """Do nothing."""

    def runs(self) -> list[DagRun]:
        """Return its runs."""
        return self._api.runs(BY_ITSELF)

    def is_ready(self, *, published: float) -> bool:  # noqa: ARG002  a matter of Airflow alone
        """Tell whether a run waits for the primary."""
        return self._waits()

    def _waits(self) -> bool:
        return any(self._api.tasks(run).get(WAITING) == "deferred" for run in self.runs())

    def word(self) -> str:
        """Say whether it waits."""
        return "the recovery DAG waits for it" if self._waits() else "the recovery DAG has not noticed yet"

    def go_on(self, pipeline: DagRun) -> None:
        """Do nothing."""


class RecoversInSpark:
    """The DAG that drains and reconciles in Spark, begun when all is published: then it proves all of it."""

    def __init__(self, api: AirflowApi) -> None:
        self._api = api

    def prepare(self) -> None:
        """Keep the other one out of it, as for a backlog that one worker cannot hold."""
        self._api.wait_for_dag(IN_SPARK, seconds=60.0)
        self._api.pause(BY_ITSELF, paused=True)

    def runs(self) -> list[DagRun]:
        """Return its runs."""
        return self._api.runs(IN_SPARK)

    def is_ready(self, *, published: float) -> bool:
        """Tell whether enough was diverted, whatever the speed, and enough is left to go straight again."""
        return published >= RETURN_AT

    def word(self) -> str:
        """Say when it begins."""
        return "Spark brings the backlog home when all is published"

    def go_on(self, pipeline: DagRun) -> None:
        """Begin it once."""
        if pipeline.finished and not self.runs():
            self._api.trigger(IN_SPARK, conf={"rate": 100_000})
