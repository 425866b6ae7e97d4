"""The two recoveries: by the DAG that starts automatically, or by the Spark DAG."""

from __future__ import annotations

from typing import Final, Protocol

from tests.system.demo.airflow_api import AirflowApi, DagRun
from tests.system.demo.kill_targets import RESTART_AT_FRACTION

__all__ = ["AT_SCALE_DAG", "RECOVERY_DAG", "AutomaticRecovery", "Recovery", "SparkRecovery"]

RECOVERY_DAG: Final = "servicebus_pair_recovery"
AT_SCALE_DAG: Final = "servicebus_pair_at_scale"
WAIT_TASK = "wait_for_primary"


class Recovery(Protocol):
    """A way to recover."""

    def prepare(self) -> None:
        """Prepare, before the first message is sent."""

    def runs(self) -> list[DagRun]:
        """Return the started recovery runs."""

    def is_ready(self, *, published: float) -> bool:
        """Return whether the primary may restart.

        :param published: fraction of the messages accepted so far.
        """

    def status_text(self) -> str:
        """Return the status to print when the primary restarts."""

    def after_restart(self, pipeline: DagRun) -> None:
        """Trigger what has to run after the primary restarted."""


class AutomaticRecovery:
    """The recovery DAG, triggered by the outage, waits for the primary in the triggerer."""

    def __init__(self, api: AirflowApi) -> None:
        self._api = api

    def prepare(self) -> None:
        """No action needed."""

    def runs(self) -> list[DagRun]:
        """Return its runs."""
        return self._api.runs(RECOVERY_DAG)

    def is_ready(self, *, published: float) -> bool:  # noqa: ARG002  depends on the DAG run only
        """Return whether a run waits for the primary."""
        return self._is_waiting()

    def _is_waiting(self) -> bool:
        return any(self._api.tasks(run).get(WAIT_TASK) == "deferred" for run in self.runs())

    def status_text(self) -> str:
        """Return whether the DAG waits."""
        return "the recovery DAG is waiting for it" if self._is_waiting() else "the recovery DAG has not started yet"

    def after_restart(self, pipeline: DagRun) -> None:
        """No action needed."""


class SparkRecovery:
    """The DAG that drains and reconciles with Spark, triggered when all messages are published."""

    def __init__(self, api: AirflowApi) -> None:
        self._api = api

    def prepare(self) -> None:
        """Pause the automatic recovery, as for a backlog too large for one worker."""
        self._api.wait_for_dag(AT_SCALE_DAG, seconds=60.0)
        self._api.pause(RECOVERY_DAG, paused=True)

    def runs(self) -> list[DagRun]:
        """Return its runs."""
        return self._api.runs(AT_SCALE_DAG)

    def is_ready(self, *, published: float) -> bool:
        """Return whether enough messages were diverted and enough remain to be sent to the primary."""
        return published >= RESTART_AT_FRACTION

    def status_text(self) -> str:
        """Return when Spark starts."""
        return "Spark will drain the backlog when everything is published"

    def after_restart(self, pipeline: DagRun) -> None:
        """Trigger the DAG once."""
        if pipeline.finished and not self.runs():
            self._api.trigger(AT_SCALE_DAG, conf={"rate": 100_000})
