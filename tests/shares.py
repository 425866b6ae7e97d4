"""What the workers of a run of the tests take, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

__all__ = ["Shares", "longest_first"]

HERE = Path(__file__).parent
# Of these every test is a share of its own; the tests of test_served have a process in common.
SINGLE = {"core", "emulator"}
TOGETHER = {"emulator/test_served.py"}
# Each starts a whole Airflow: more than two at a time would leave no processor for the clocks of the others.
WHOLE = {
    "system/test_whole_airflow.py": "one Airflow",
    "system/test_readme.py": "one Airflow",
    "system/test_example_dags.py": "another Airflow",
    "system/test_canary.py": "another Airflow",
    "system/test_page_in_browser.py": "one Airflow",
}
# A cluster of its own, and no session of the other tests of Spark.
APART = {"spark/test_standalone.py"}
# Of Spark's tests those of the data source; the others are those of the jobs and of what they are made of.
SOURCE = {
    "test_publish.py",
    "test_publish_job.py",
    "test_read.py",
    "test_sessions.py",
    "test_stream.py",
    "test_stream_killed.py",
    "test_write.py",
}
# What nobody can share and takes longest, the longest first, as measured: it must not begin last.
LONGEST = [
    *WHOLE,
    *APART,
    "spark/test_publish_job.py",
    "spark/test_drain_job.py",
    "system/test_chaos.py",
    "airflow/test_sending.py",
    "airflow/test_operators.py",
    "airflow/test_syphoning.py",
    "airflow/test_operating_dags.py",
    "airflow/test_page_actions.py",
    "airflow/test_looking.py",
    "airflow/test_page.py",
    "system/test_emulator_page.py",
    "airflow/test_sources.py",
    "airflow/test_official_provider.py",
    "airflow/test_canaries.py",
    "emulator/test_served.py",
    "airflow/test_links.py",
    "airflow/test_backlog_sensor.py",
    "airflow/test_decorator.py",
    "airflow/test_waiting.py",
    "airflow/test_secrets.py",
    "core/test_pair_model.py",
    "core/test_pair_kill.py",
    "emulator/test_wire_sizes.py",
    "emulator/test_process.py",
    "emulator/test_wire_security.py",
]


class Shares(LoadScopeScheduling):  # type: ignore[misc]  # the package has no types
    """Who takes what: a file is one share, for its tests have fixtures in common.

    Spark is two shares but for its cluster, since each worker that takes one of its files starts a Java virtual
    machine, and what starts a whole Airflow is two. Of the core and of the embedded Service Bus every test is a share
    of its own: most of them wait for time to pass, and whoever has nothing to do takes the next.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.partition("::")[0])
        name = f"{file.parent.name}/{file.name}"
        if file.parent.name in SINGLE and name not in TOGETHER:
            return nodeid
        if file.parent.name == "spark" and name not in APART:
            return "data source" if file.name in SOURCE else "jobs"
        return WHOLE.get(name, name)


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests in the order in which they are to begin; single ones, which fill every gap, come last."""
    ranks = {HERE / name: rank for rank, name in enumerate(LONGEST)}
    single = {HERE / name for name in SINGLE}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks) + (item.path.parent in single)))
