"""The scenario of the demo: publish, kill the primary, restart it, and wait for the recovery."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.system.demo.airflow_api import AirflowApi, DagRun
from tests.system.demo.flow_plot import Outage
from tests.system.demo.kill_targets import (
    KILL_AT_FRACTION,
    KILL_TARGETS,
    TASKS,
    find_process_to_kill,
    is_due,
    restart_is_due,
)
from tests.system.demo.ledger import LedgerReader
from tests.system.demo.recovery import RECOVERY_DAG, Recovery, SparkRecovery
from tests.system.demo.scale import Scale
from tests.system.demo.stack import Stack
from tests.system.demo.terminal import Terminal

PIPELINE = "flights_pipeline"
PUBLISH = "publish_flights"

DAG_PARSE_TIMEOUT = 60.0
POLL_SECONDS = 0.5
# Seconds into the outage after which the secondary is killed at the latest.
SECONDARY_KILL_SECONDS = 25.0
ACTIVE = frozenset({"running", "deferred", "up_for_retry"})


class ScenarioError(RuntimeError):
    """The demo deviated from the scenario; the message names the step and the log to read."""


def start_pipeline(api: AirflowApi, scale: Scale) -> tuple[Recovery, DagRun]:
    """Wait until Airflow has parsed the DAGs, prepare the recovery, and trigger the pipeline."""
    for dag_id in (RECOVERY_DAG, PIPELINE):
        api.wait_for_dag(dag_id, seconds=DAG_PARSE_TIMEOUT)
    recovery = SparkRecovery(api) if scale.in_spark else Recovery(api)
    recovery.prepare()
    return recovery, api.trigger(PIPELINE, conf=scale.conf)


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    outage: Outage
    secondary_outage: Outage | None
    published_at_restart: float  # fraction of the messages accepted by then


class Scenario:
    """Runs the demo on a started stack, around one run of the pipeline.

    :param expected: number of messages that the pipeline will send.
    :param kill_target: process to kill besides the primary, a key of KILL_TARGETS.
    """

    def __init__(
        self,
        stack: Stack,
        api: AirflowApi,
        terminal: Terminal,
        *,
        pipeline: DagRun,
        recovery: Recovery,
        scale: Scale,
        expected: int,
        kill_target: str | None = None,
    ) -> None:
        self._stack = stack
        self._api = api
        self._terminal = terminal
        self._pipeline = pipeline
        self._recovery = recovery
        self._scale = scale
        self._expected = expected
        self._kill_target = kill_target
        self.ledger = LedgerReader(stack.home.ledger)

    def run(self) -> ScenarioResult:
        """Kill the primary while the pipeline publishes, restart it, and wait for the recovery."""
        self._wait_until_kill_is_due()
        outage, secondary_outage = self._cause_outage()
        published = self._accepted() / self._expected
        self._wait_for_all_runs()
        if self._kill_target is not None:
            raise ScenarioError(
                f"{KILL_TARGETS[self._kill_target]} was never killed: it was not running when the kill was due"
            )
        return ScenarioResult(outage, secondary_outage, published)

    def _wait_until_kill_is_due(self) -> None:
        deadline = time.monotonic() + self._scale.publish_timeout
        while self._accepted() < self._expected * KILL_AT_FRACTION:
            self._poll(deadline, what=f"a third of {self._expected:,} messages to be accepted")

    def _cause_outage(self) -> tuple[Outage, Outage | None]:
        primary = self._stack.primary
        self._stack.processes.kill(primary.process)
        started_at = time.time()
        self._terminal.say(f"killed the primary (SIGKILL) after {self._accepted():,} messages")
        secondary_outage = None
        while not self._restart_is_due(elapsed=time.time() - started_at):
            self._poll(None, what="the end of the outage")
            if secondary_outage is None and self._secondary_is_due(elapsed=time.time() - started_at):
                secondary_outage = self._kill_secondary()
        primary.start(self._stack.processes)
        ended_at = time.time()
        self._terminal.say(
            f"restarted the primary on the same data after {ended_at - started_at:.0f} s; "
            f"{self._recovery.status_text()}"
        )
        return Outage(started_at, ended_at), secondary_outage

    def _secondary_is_due(self, *, elapsed: float) -> bool:
        """Return whether the secondary is to die: once messages were diverted, and the recovery waits."""
        if not self._scale.secondary_seconds or not self.ledger.tally.counts.diverted:
            return False
        return elapsed >= SECONDARY_KILL_SECONDS or self._recovery.is_ready(published=0.0)

    def _kill_secondary(self) -> Outage:
        """Kill the secondary, too, and restart it some seconds later."""
        secondary = self._stack.secondary
        self._stack.processes.kill(secondary.process)
        started_at = time.time()
        self._terminal.say("killed the secondary as well (SIGKILL): messages go to the spool")
        while time.time() - started_at < self._scale.secondary_seconds:
            self._poll(None, what="the end of the secondary's outage", secondary=False)
        secondary.start(self._stack.processes)
        self._terminal.say(f"restarted the secondary; {self.ledger.tally.counts.spooled:,} messages are in the spool")
        return Outage(started_at, time.time())

    def _restart_is_due(self, *, elapsed: float) -> bool:
        ready = self._recovery.is_ready(published=self._accepted() / self._expected)
        return restart_is_due(elapsed=elapsed, minimum=self._scale.outage_seconds, condition_met=ready)

    def _wait_for_all_runs(self) -> None:
        deadline = time.monotonic() + self._scale.finish_timeout
        while not self._all_finished():
            self._recovery.after_restart(self._pipeline_now())
            self._poll(deadline, what="all DAG runs to finish")
        self.ledger.read()

    def _all_finished(self) -> bool:
        for run in self._recovery.runs():
            self._raise_if_failed(run)
        return self._pipeline_now().finished and self._recovery.is_complete()

    def _poll(self, deadline: float | None, *, what: str, secondary: bool = True) -> None:
        """Print the progress, check that all processes are running, and sleep."""
        self._stack.check(secondary=secondary)
        run = self._pipeline_now()
        self._raise_if_failed(run)
        self._kill_if_due(run)
        self._terminal.progress(self._progress(run))
        if deadline is not None and time.monotonic() > deadline:
            raise ScenarioError(f"timed out waiting for {what}: {self._progress(run)}; see {self._stack.home.logs}")
        time.sleep(POLL_SECONDS)

    def _kill_if_due(self, pipeline: DagRun) -> None:
        if self._kill_target is None or not is_due(self._kill_target, self.ledger.tally.counts):
            return
        task = TASKS[self._kill_target]
        for run in (pipeline, *self._recovery.runs()):
            if self._api.tasks(run).get(task) != "running":
                continue
            process = find_process_to_kill(
                self._kill_target, self._api.instance(run, task), self._stack.task_processes()
            )
            if process is not None:
                process.kill()
                self._terminal.say(f"killed (SIGKILL) {KILL_TARGETS[self._kill_target]}")
                self._kill_target = None
                return

    def _progress(self, run: DagRun) -> str:
        self.ledger.read()
        counts = self.ledger.tally.counts
        runs = (run, *self._recovery.runs())
        tasks = [task for item in runs if not item.finished for task in self._api.tasks(item).items()]
        active = [f"{name} {state}" for name, state in tasks if state in ACTIVE]
        text = (
            f"{counts.primary:,} sent, {counts.diverted:,} diverted, {counts.spooled:,} spooled, {counts.syphoned:,} "
            f"drained of {self._expected:,}"
        )
        return text + (f"; {', '.join(active)}" if active else "")

    def _pipeline_now(self) -> DagRun:
        return self._api.run(self._pipeline)

    def _accepted(self) -> int:
        self.ledger.read()
        return self.ledger.tally.counts.sent

    def _raise_if_failed(self, run: DagRun) -> None:
        if run.state == "failed":
            failed = sorted(name for name, state in self._api.tasks(run).items() if state == "failed")
            logs = self._stack.home.airflow / "logs" / f"dag_id={run.dag_id}" / f"run_id={run.run_id}"
            raise ScenarioError(f"the DAG {run.dag_id} failed in {', '.join(failed)}; see {logs}")
