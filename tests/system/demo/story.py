"""What happens in the demo, from the first message to the end of the recovery."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.system.demo.killing import VICTIMS, find_victim, is_due, task_of
from tests.system.demo.ledger import LedgerReader, figures
from tests.system.demo.outage import KILL_AT, restart_is_due
from tests.system.demo.picture import Outage

if TYPE_CHECKING:
    from tests.system.demo.rest import AirflowApi, DagRun
    from tests.system.demo.stack import Stack
    from tests.system.demo.terminal import Terminal

__all__ = ["Played", "Story", "StoryError", "trigger_pipeline"]

PIPELINE = "flights_pipeline"
PUBLISH = "publish_flights"
RECOVERY = "servicebus_pair_recovery"
WAITING = "wait_for_primary"

PARSED_SECONDS = 60.0
PUBLISHED_SECONDS = 180.0  # until a third is accepted
FINISHED_SECONDS = 600.0  # from the primary's return to the end of both DAGs
TICK = 0.5
ACTIVE = frozenset({"running", "deferred", "up_for_retry"})


class StoryError(RuntimeError):
    """The demo did not go as it should; the message says where, and which log to read."""


def trigger_pipeline(api: AirflowApi, conf: dict[str, Any]) -> DagRun:
    """Wait until Airflow has read both DAGs, and start a run of the pipeline."""
    for dag_id in (RECOVERY, PIPELINE):
        api.wait_for_dag(dag_id, seconds=PARSED_SECONDS)
    return api.trigger(PIPELINE, conf=conf)


@dataclass(frozen=True, slots=True)
class Played:
    """What happened, for the report."""

    outage: Outage
    published_at_restart: float  # the part of all messages that was accepted by then


class Story:
    """Plays the demo on a started stack, around one run of the pipeline.

    :param expected: how many messages the pipeline is to send.
    :param victim: what is killed besides the primary: a key of VICTIMS, or nothing.
    """

    def __init__(
        self,
        stack: Stack,
        api: AirflowApi,
        terminal: Terminal,
        *,
        pipeline: DagRun,
        expected: int,
        victim: str | None = None,
    ) -> None:
        self._stack = stack
        self._api = api
        self._terminal = terminal
        self._pipeline = pipeline
        self._expected = expected
        self._victim = victim
        self.ledger = LedgerReader(stack.home.ledger)

    def play(self) -> Played:
        """Kill the primary in the middle of publishing, bring it back, and wait for the recovery."""
        self._wait_for_a_third()
        outage = self._break_the_primary()
        published = self._accepted() / self._expected
        self._wait_for_the_end()
        if self._victim is not None:
            raise StoryError(f"{VICTIMS[self._victim]} was to be killed, and the moment for it never came")
        return Played(outage, published)

    def _wait_for_a_third(self) -> None:
        deadline = time.monotonic() + PUBLISHED_SECONDS
        while self._accepted() < self._expected * KILL_AT:
            self._look(deadline, what=f"a third of {self._expected:,} messages is accepted")

    def _break_the_primary(self) -> Outage:
        primary = self._stack.primary
        self._stack.processes.kill(primary.process)
        began = time.time()
        self._terminal.say(f"killed the primary's process (SIGKILL) after {self._accepted():,} messages")
        while not restart_is_due(dead_for=time.time() - began, recovery_waits=self._recovery_waits()):
            self._look(None, what="the outage lasts")
        primary.start(self._stack.processes)
        ended = time.time()
        noticed = "the recovery DAG waits for it" if self._recovery_waits() else "the recovery DAG has not noticed yet"
        self._terminal.say(f"started the primary again on the same data after {ended - began:.0f} s; {noticed}")
        return Outage(began, ended)

    def _wait_for_the_end(self) -> None:
        deadline = time.monotonic() + FINISHED_SECONDS
        while not self._all_finished():
            self._look(deadline, what="both DAGs have finished")
        self.ledger.read()

    def _all_finished(self) -> bool:
        recoveries = self._api.runs(RECOVERY)
        for run in recoveries:
            self._fail_with(run)
        return self._current().finished and bool(recoveries) and all(run.finished for run in recoveries)

    def _recovery_waits(self) -> bool:
        return any(self._api.tasks(run).get(WAITING) == "deferred" for run in self._api.runs(RECOVERY))

    def _look(self, deadline: float | None, *, what: str) -> None:
        """Say how far things are, make sure that all still runs, and wait for a moment."""
        self._stack.check()
        run = self._current()
        self._fail_with(run)
        self._strike(run)
        self._terminal.progress(self._progress(run))
        if deadline is not None and time.monotonic() > deadline:
            raise StoryError(f"given up waiting until {what}: {self._progress(run)}; see {self._stack.home.logs}")
        time.sleep(TICK)

    def _strike(self, pipeline: DagRun) -> None:
        """Kill the victim when its moment has come and it runs."""
        if self._victim is None or not is_due(self._victim, figures(self.ledger.records)):
            return
        task = task_of(self._victim)
        for run in (pipeline, *self._api.runs(RECOVERY)):
            if self._api.tasks(run).get(task) != "running":
                continue
            process = find_victim(self._victim, self._api.instance(run, task), self._stack.task_processes())
            if process is not None:
                process.kill()
                self._terminal.say(f"killed (SIGKILL) {VICTIMS[self._victim]}")
                self._victim = None
                return

    def _progress(self, run: DagRun) -> str:
        self.ledger.read()
        now = figures(self.ledger.records)
        runs = (run, *self._api.runs(RECOVERY))
        tasks = [task for item in runs if not item.finished for task in self._api.tasks(item).items()]
        active = [f"{name} {state}" for name, state in tasks if state in ACTIVE]
        counts = f"{now.primary:,} primary, {now.diverted:,} diverted, {now.syphoned:,} syphoned of {self._expected:,}"
        return counts + (f"; {', '.join(active)}" if active else "")

    def _current(self) -> DagRun:
        return self._api.run(self._pipeline)

    def _accepted(self) -> int:
        self.ledger.read()
        return figures(self.ledger.records).sent

    def _fail_with(self, run: DagRun) -> None:
        if run.state == "failed":
            failed = sorted(name for name, state in self._api.tasks(run).items() if state == "failed")
            logs = self._stack.home.airflow / "logs" / f"dag_id={run.dag_id}" / f"run_id={run.run_id}"
            raise StoryError(f"the DAG {run.dag_id} failed in {', '.join(failed)}; see {logs}")
