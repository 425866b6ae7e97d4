"""What happens in the demo, from the first message to the end of the recovery."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.system.demo.killing import VICTIMS, find_victim, is_due, task_of
from tests.system.demo.ledger import LedgerReader
from tests.system.demo.outage import KILL_AT, restart_is_due
from tests.system.demo.picture import Outage
from tests.system.demo.recovery import BY_ITSELF, RecoversByItself, RecoversInSpark

if TYPE_CHECKING:
    from tests.system.demo.recovery import Recovery
    from tests.system.demo.rest import AirflowApi, DagRun
    from tests.system.demo.scale import Scale
    from tests.system.demo.stack import Stack
    from tests.system.demo.terminal import Terminal

__all__ = ["Played", "Story", "StoryError", "begin"]

PIPELINE = "flights_pipeline"
PUBLISH = "publish_flights"

PARSED_SECONDS = 60.0
TICK = 0.5
ACTIVE = frozenset({"running", "deferred", "up_for_retry"})


class StoryError(RuntimeError):
    """The demo did not go as it should; the message says where, and which log to read."""


def begin(api: AirflowApi, scale: Scale) -> tuple[Recovery, DagRun]:
    """Wait until Airflow has read the DAGs, see to the recovery, and start a run of the pipeline."""
    for dag_id in (BY_ITSELF, PIPELINE):
        api.wait_for_dag(dag_id, seconds=PARSED_SECONDS)
    recovery = RecoversInSpark(api) if scale.in_spark else RecoversByItself(api)
    recovery.prepare()
    return recovery, api.trigger(PIPELINE, conf=scale.form)


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
        recovery: Recovery,
        scale: Scale,
        expected: int,
        victim: str | None = None,
    ) -> None:
        self._stack = stack
        self._api = api
        self._terminal = terminal
        self._pipeline = pipeline
        self._recovery = recovery
        self._scale = scale
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
        deadline = time.monotonic() + self._scale.published_seconds
        while self._accepted() < self._expected * KILL_AT:
            self._look(deadline, what=f"a third of {self._expected:,} messages is accepted")

    def _break_the_primary(self) -> Outage:
        primary = self._stack.primary
        self._stack.processes.kill(primary.process)
        began = time.time()
        self._terminal.say(f"killed the primary's process (SIGKILL) after {self._accepted():,} messages")
        while not self._restart_is_due(dead_for=time.time() - began):
            self._look(None, what="the outage lasts")
        primary.start(self._stack.processes)
        ended = time.time()
        self._terminal.say(
            f"started the primary again on the same data after {ended - began:.0f} s; {self._recovery.word()}"
        )
        return Outage(began, ended)

    def _restart_is_due(self, *, dead_for: float) -> bool:
        ready = self._recovery.is_ready(published=self._accepted() / self._expected)
        return restart_is_due(dead_for=dead_for, shortest=self._scale.outage_seconds, awaited=ready)

    def _wait_for_the_end(self) -> None:
        deadline = time.monotonic() + self._scale.finished_seconds
        while not self._all_finished():
            self._recovery.go_on(self._current())
            self._look(deadline, what="all DAGs have finished")
        self.ledger.read()

    def _all_finished(self) -> bool:
        recoveries = self._recovery.runs()
        for run in recoveries:
            self._fail_with(run)
        return self._current().finished and bool(recoveries) and all(run.finished for run in recoveries)

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
        if self._victim is None or not is_due(self._victim, self.ledger.tally.figures):
            return
        task = task_of(self._victim)
        for run in (pipeline, *self._recovery.runs()):
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
        now = self.ledger.tally.figures
        runs = (run, *self._recovery.runs())
        tasks = [task for item in runs if not item.finished for task in self._api.tasks(item).items()]
        active = [f"{name} {state}" for name, state in tasks if state in ACTIVE]
        counts = f"{now.primary:,} primary, {now.diverted:,} diverted, {now.syphoned:,} syphoned of {self._expected:,}"
        return counts + (f"; {', '.join(active)}" if active else "")

    def _current(self) -> DagRun:
        return self._api.run(self._pipeline)

    def _accepted(self) -> int:
        self.ledger.read()
        return self.ledger.tally.figures.sent

    def _fail_with(self, run: DagRun) -> None:
        if run.state == "failed":
            failed = sorted(name for name, state in self._api.tasks(run).items() if state == "failed")
            logs = self._stack.home.airflow / "logs" / f"dag_id={run.dag_id}" / f"run_id={run.run_id}"
            raise StoryError(f"the DAG {run.dag_id} failed in {', '.join(failed)}; see {logs}")
