"""How parallel workers share the tests, and in which order tests start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

HERE = Path(__file__).parent
# Every test in these folders is a share of its own; the tests of test_remote_namespace share a process.
SINGLE = {"core", "emulator"}
TOGETHER = {"emulator/testing/test_remote_namespace.py"}
# Each starts a whole Airflow: more than two at a time would starve tests that depend on time.
WHOLE = {
    "system/test_recovery_under_failures.py": "one Airflow",
    "system/test_readme.py": "one Airflow",
    "system/test_example_dags.py": "another Airflow",
    "system/test_no_secret_is_disclosed.py": "another Airflow",
    "system/test_page_in_browser.py": "one Airflow",
}
# Starts a cluster of its own and does not share a Spark session.
APART = {"spark/scenarios/test_standalone_cluster.py"}
# Spark tests that share the session of the data source's tests; all others share that of the jobs.
SOURCE = (
    "spark/datasource/",
    "spark/jobs/test_publish.py",
    "spark/scenarios/test_stream",
    "spark/transfer/test_publishing.py",
)
# Workers that take tests of Airflow: its first task costs each of them five seconds of processor time.
MOST_AIRFLOWS = 4
# Files that cannot be split and take longest, the longest first, as measured: they must not start last.
LONGEST = [
    *WHOLE,
    *APART,
    "spark/jobs/test_publish.py",
    "spark/jobs/test_drain.py",
    "system/test_chaos.py",
    "airflow/dags/test_servicebus_pair_recovery.py",
    "airflow/operators/test_receive.py",
    "airflow/scenarios/test_outage.py",
    "airflow/operators/test_drill.py",
    "airflow/operators/test_syphon.py",
    "airflow/dags/test_maintenance_dags.py",
    "airflow/ui/api/test_actions_service.py",
    "airflow/ui/sources/test_collector.py",
    "airflow/ui/scenarios/test_outage_on_page.py",
    "system/test_emulator_readme.py",
    "airflow/operators/test_send.py",
    "airflow/scenarios/test_official_provider.py",
    "emulator/testing/test_remote_namespace.py",
    "airflow/links/test_servicebus_pair.py",
    "airflow/sensors/test_backlog.py",
    "airflow/decorators/test_servicebus_send.py",
    "airflow/triggers/test_primary_health.py",
    "airflow/scenarios/test_masked_secrets.py",
    "core/scenarios/test_process_kill.py",
    "emulator/scenarios/test_message_sizes.py",
    "emulator/scenarios/test_process.py",
]


class Shares(LoadScopeScheduling):  # type: ignore[misc]  # the package has no types
    """Decides which tests a worker takes together.

    A file is one share, because its tests share fixtures. Spark has two shares, because each worker that takes one of
    its files starts a Java virtual machine, and so has whatever starts a whole Airflow. In core and in the emulator
    every test is a share of its own: most of them wait, and an idle worker takes the next.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._airflows: set[Any] = set()

    def _assign_work_unit(self, node: Any) -> None:
        """Give the worker the first share that it may take, or the first one of all."""
        full = node not in self._airflows and len(self._airflows) >= MOST_AIRFLOWS
        share = next((name for name in self.workqueue if not (full and _is_airflow(name))), next(iter(self.workqueue)))
        if _is_airflow(share):
            self._airflows.add(node)
        self.workqueue.move_to_end(share, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        name = nodeid.partition("::")[0].removeprefix("tests/")
        room = name.partition("/")[0]
        if room in SINGLE and name not in TOGETHER:
            return nodeid
        if room == "spark" and name not in APART:
            return "data source" if name.startswith(SOURCE) else "jobs"
        return WHOLE.get(name, name)


def _is_airflow(share: str) -> bool:
    return share.startswith("airflow/")


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the tests into the order in which they start; single ones, which fill every gap, come last.

    :raises ValueError: a file that is named here has moved.
    """
    if moved := [name for name in {*LONGEST, *TOGETHER} if not (HERE / name).is_file()]:
        raise ValueError(f"tests/shares.py names files that are not there: {', '.join(sorted(moved))}")
    ranks = {HERE / name: rank for rank, name in enumerate(LONGEST)}
    single = {HERE / name for name in SINGLE}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks) + (not single.isdisjoint(item.path.parents))))
