"""A whole Airflow beside two namespaces, in which recoveries are started, broken and repeated."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.system.demo.airflow_service import SCHEDULER, TRIGGERER
from tests.system.demo.layout import PROJECT, Home
from tests.system.demo.stack import Stack
from tests.system.whole import backlog
from tests.system.whole.traces import Traces, metric, traces, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.system.demo.rest import AirflowApi, DagRun

__all__ = ["DAGS", "OPTIONS", "Platform", "platform"]

DAGS: Final = PROJECT / "tests" / "system" / "whole" / "dags"
OPTIONS: Final = {
    # So that a worker that died is noticed in seconds instead of minutes.
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    # So is a triggerer.
    "TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}
DONE_SECONDS: Final = 180.0
CLEAN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Platform:
    """What runs: see :func:`platform`."""

    stack: Stack
    api: AirflowApi

    def divert(self, label: str, *, count: int, entities: Sequence[str] = ("flights",)) -> dict[str, list[str]]:
        """Leave so many messages for each entity in the backlog; return their ids by entity.

        :param label: part of the ids.
        """
        ids = {entity: backlog.message_ids(entity, label=label, count=count) for entity in entities}
        backlog.divert(self.stack.primary, self.stack.secondary, ids=ids)
        return ids

    def copies(self, ids: dict[str, list[str]]) -> dict[str, list[int]]:
        """Return how many copies of each of these messages the primary holds, in their order."""
        found = backlog.held(self.stack.primary, list(ids))
        return {entity: [found[entity][name] for name in names] for entity, names in ids.items()}

    def wait_for_state(self, run: DagRun, task_id: str, state: str, *, seconds: float = DONE_SECONDS) -> None:
        """Wait until a task of a run is in a state."""
        until(
            lambda: self.api.tasks(run).get(task_id) == state,
            seconds=seconds,
            what=f"{task_id} is {state}",
            detail=lambda: self.api.tasks(run),
        )

    def wait_until_left(self, run: DagRun, task_id: str) -> None:
        """Wait until the scheduler knows that a task that waits for something has left its worker.

        A task that goes on before that is failed by the scheduler, for which the worker's good end then is that of a
        task that is queued ("state mismatch"): an answer given as soon as the question was there failed 2 of 6
        approvals, and none of 6 after this (measured, Airflow 3.3.2). The question of a person waits without a trigger,
        so the scheduler's log is the only place where that is seen.
        """
        log = self.stack.processes.log(SCHEDULER)

        def left() -> bool:
            ended = (line for line in log.read_text().splitlines() if "TaskInstance Finished: " in line)
            mine = (line for line in ended if f"task_id={task_id}, run_id={run.run_id}," in line)
            return any("executor_state=success" in line for line in mine)

        until(left, seconds=DONE_SECONDS, what=f"the scheduler knows that {task_id} left its worker")

    def wait_for_end(self, run: DagRun, *, seconds: float = DONE_SECONDS) -> str:
        """Wait until a run has ended; return its state."""
        until(
            lambda: self.api.run(run).finished,
            seconds=seconds,
            what=f"{run.run_id} ends",
            detail=lambda: self.api.tasks(run),
        )
        return self.api.run(run).state

    def wait_until_clean(self, *, seconds: float = CLEAN_SECONDS) -> Traces:
        """Wait until nothing is left of the recoveries; return what still is after so many seconds."""
        found = Traces(0, 0, 0, ())

        def clean() -> bool:
            nonlocal found
            found = traces(self.stack)
            return not found

        try:
            until(clean, seconds=seconds, what="nothing is left")
        except AssertionError:
            return found
        return found

    def open_to_the_primary(self) -> int:
        """Return how many connections to the primary are open."""
        return int(metric(self.stack.primary, "connections"))

    def restart_triggerer(self) -> None:
        """Start the triggerer that was killed again."""
        self.stack.airflow.start_component(TRIGGERER.removeprefix("airflow-"), self.stack.processes)


@contextmanager
def platform(root: Path, *, dags: Path = DAGS, wanted: Sequence[str] = ()) -> Iterator[Platform]:
    """Start everything, and stop it in the end, whatever happens.

    :param root: an empty folder, or one that is not there yet.
    :param wanted: ids of DAGs to wait for until Airflow has read them.
    """
    stack = Stack.lay(Home(root), dags=dags, options=OPTIONS)
    try:
        api = stack.start()
        backlog.provision(stack.primary, stack.secondary)
        for dag_id in wanted:
            api.wait_for_dag(dag_id, seconds=60)
        yield Platform(stack, api)
    finally:
        stack.processes.stop()
