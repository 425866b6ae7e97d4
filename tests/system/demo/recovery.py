"""The two recoveries: by the DAG that starts automatically, with its proof, or by the Spark DAG."""

from __future__ import annotations

from typing import Final

from tests.system.demo.airflow_api import AirflowApi, DagRun
from tests.system.demo.kill_targets import RESTART_AT_FRACTION

RECOVERY_DAG: Final = "servicebus_pair_recovery"
PROOF_DAG: Final = "servicebus_pair_proof"
AT_SCALE_DAG: Final = "servicebus_pair_at_scale"
WAIT_TASK = "wait_for_primary"


class Recovery:
    """The automatic recovery: its DAG, triggered by the outage, waits for the primary in the triggerer."""

    dag_id = RECOVERY_DAG

    def __init__(self, api: AirflowApi) -> None:
        self._api = api

    def prepare(self) -> None:
        """Prepare, before the first message is sent."""

    def runs(self) -> list[DagRun]:
        return [*self._api.runs(self.dag_id), *self._api.runs(PROOF_DAG)]

    def is_complete(self) -> bool:
        """Return whether all runs have finished, and the outcome of each recovery is proven."""
        runs = self.runs()
        reported = {run.run_id for run in runs if self._api.tasks(run).get("report") == "success"}
        proven = {run_id for run in runs if run.dag_id == PROOF_DAG for run_id in self._api.upstream_runs(run)}
        proofs = {run.run_id for run in runs if run.dag_id == PROOF_DAG}
        return bool(proofs) and all(run.finished for run in runs) and reported - proofs <= proven

    def is_ready(self, *, published: float) -> bool:  # noqa: ARG002  depends on the DAG run only
        """Return whether the primary may restart.

        :param published: fraction of the messages accepted so far.
        """
        return any(self._api.tasks(run).get(WAIT_TASK) == "deferred" for run in self.runs())

    def status_text(self) -> str:
        """Return the status to print when the primary restarts."""
        waits = self.is_ready(published=1.0)
        return "the recovery DAG is waiting for it" if waits else "the recovery DAG has not started yet"

    def after_restart(self, pipeline: DagRun) -> None:
        """Trigger what has to run after the primary restarted."""


class SparkRecovery(Recovery):
    """The DAG that drains and reconciles with Spark, triggered once all messages are published."""

    dag_id = AT_SCALE_DAG

    def prepare(self) -> None:
        """Pause the automatic recovery, as for a backlog too large for one worker."""
        self._api.wait_for_dag(self.dag_id, seconds=60.0)
        self._api.pause(RECOVERY_DAG, paused=True)

    def runs(self) -> list[DagRun]:
        return self._api.runs(self.dag_id)

    def is_complete(self) -> bool:
        """Return whether there was a run and all have finished."""
        runs = self.runs()
        return bool(runs) and all(run.finished for run in runs)

    def is_ready(self, *, published: float) -> bool:
        """Return whether enough messages were diverted and enough remain to be sent to the primary."""
        return published >= RESTART_AT_FRACTION

    def status_text(self) -> str:
        return "Spark will drain the backlog when everything is published"

    def after_restart(self, pipeline: DagRun) -> None:
        if pipeline.finished and not self.runs():
            self._api.trigger(self.dag_id, conf={"rate": 100_000})
