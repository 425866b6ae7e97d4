"""A complete Airflow with two namespaces for tests of recoveries under failures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from servicebus_emulator import Fault, FaultKind
from tests.system.demo.airflow_api import AirflowApi, DagRun
from tests.system.demo.airflow_process import SCHEDULER, TRIGGERER
from tests.system.demo.layout import PROJECT, Home
from tests.system.demo.stack import Stack
from tests.system.platform import backlog_messages as backlog
from tests.system.platform.leftovers import Leftovers, find_leftovers, metric, wait_until

DAGS: Final = PROJECT / "tests" / "system" / "platform" / "dags"
OPTIONS: Final = {
    # Detect a dead worker in seconds instead of minutes.
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    # The same for a triggerer.
    "TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}
RUN_TIMEOUT: Final = 180.0
CLEANUP_TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class Platform:
    """The running processes of :func:`platform`."""

    stack: Stack
    api: AirflowApi

    def divert(self, label: str, *, count: int, entities: Sequence[str] = ("flights",)) -> dict[str, list[str]]:
        """Divert messages to the backlog; return their ids by entity.

        :param label: part of the ids.
        :param count: messages per entity.
        """
        ids = {entity: backlog.message_ids(entity, label=label, count=count) for entity in entities}
        backlog.divert(self.stack.primary, self.stack.secondary, ids=ids)
        return ids

    def copies(self, ids: dict[str, list[str]]) -> dict[str, list[int]]:
        """Return the number of copies of each message on the primary, in the order of the ids."""
        found = backlog.count_copies(self.stack.primary, list(ids))
        return {entity: [found[entity][name] for name in names] for entity, names in ids.items()}

    def wait_for_state(self, run: DagRun, task_id: str, state: str, *, seconds: float = RUN_TIMEOUT) -> None:
        wait_until(
            lambda: self.api.tasks(run).get(task_id) == state,
            seconds=seconds,
            what=f"{task_id} is {state}",
            detail=lambda: self.api.tasks(run),
        )

    def wait_until_worker_freed(self, run: DagRun, task_id: str) -> None:
        """Wait until the scheduler has noticed that a waiting task left its worker.

        If the task resumes earlier, the scheduler sees its worker exit while the task is queued, and fails it ("state
        mismatch"): without this wait 2 of 6 approvals failed, with it none (measured with Airflow 3.3.2). A
        human-in-the-loop task has no trigger, so only the scheduler's log shows it.
        """
        log = self.stack.processes.log(SCHEDULER)

        def worker_freed() -> bool:
            finished = (line for line in log.read_text().splitlines() if "TaskInstance Finished: " in line)
            of_task = (line for line in finished if f"task_id={task_id}, run_id={run.run_id}," in line)
            return any("executor_state=success" in line for line in of_task)

        wait_until(worker_freed, seconds=RUN_TIMEOUT, what=f"the scheduler noticed that {task_id} left its worker")

    def wait_for_end(self, run: DagRun, *, seconds: float = RUN_TIMEOUT) -> str:
        """Wait until a run has finished; return its state."""
        wait_until(
            lambda: self.api.run(run).finished,
            seconds=seconds,
            what=f"{run.run_id} ends",
            detail=lambda: self.api.tasks(run),
        )
        return self.api.run(run).state

    def wait_for_no_leftovers(self, *, seconds: float = CLEANUP_TIMEOUT) -> Leftovers:
        """Wait until the recoveries have left nothing behind; return what remains after the timeout."""
        deadline = time.monotonic() + seconds
        while (found := find_leftovers(self.stack)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    @contextmanager
    def outage(self, *, entity: str | None = None) -> Iterator[str]:
        """Reject all sends, or those to an entity, until the fault with the yielded id is cleared."""
        served = self.stack.primary.served
        yield served.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity=entity))
        served.clear_faults()

    def primary_connections(self) -> int:
        return int(metric(self.stack.primary, "connections"))

    def restart_triggerer(self) -> None:
        self.stack.airflow.start_component(TRIGGERER.removeprefix("airflow-"), self.stack.processes)


@contextmanager
def platform(root: Path, *, dags: Path = DAGS, dag_ids: Sequence[str] = ()) -> Iterator[Platform]:
    """Start all processes, and stop them at the end.

    :param root: an empty or new folder.
    :param dag_ids: DAGs that Airflow must have parsed before this returns.
    """
    stack = Stack.create(Home(root), dags=dags, options=OPTIONS)
    try:
        api = stack.start()
        backlog.provision(stack.primary, stack.secondary)
        for dag_id in dag_ids:
            api.wait_for_dag(dag_id, seconds=60)
        yield Platform(stack, api)
    finally:
        stack.processes.stop()
