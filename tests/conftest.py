from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leaks import collect_leaks

HERE = Path(__file__).parent
# The files that take longest, the longest first, as measured: half a minute down to a quarter of one.
LONGEST = [
    "spark/test_publish.py",
    "airflow/test_sending.py",
    "core/test_pair_sharing.py",
    "core/test_session_order.py",
    "spark/test_publish_job.py",
    "core/test_pair_outage.py",
    "core/test_drill.py",
    "core/test_pair_account.py",
    "emulator/test_wire_fault_table.py",
    "core/test_pair_outages_cold.py",
    "emulator/test_wire_security.py",
    "emulator/test_wire_fault_connections.py",
    "core/test_syphon.py",
    "core/test_syphon_resting.py",
    "core/test_pair_outages_silent.py",
    "core/test_pair_outages_tokens.py",
    "core/test_pair_outages_answered.py",
    "core/test_pair_refusals.py",
    "emulator/test_wire_faults.py",
    "emulator/test_wire_fault_silence.py",
    "spark/test_reconcile_job.py",
    "airflow/test_official_provider.py",
    "airflow/test_secrets.py",
    "airflow/test_page.py",
    "emulator/test_wire_ways_in.py",
    "emulator/test_pytest_plugin.py",
    "emulator/test_process.py",
    "core/test_pair_scheduling.py",
    "system/test_emulator_page.py",
    "core/test_syphon_unreadable.py",
    "core/test_syphon_steering.py",
    "core/test_pair_faults.py",
    "core/test_pair_outages_lost.py",
    "core/test_cleanup.py",
    "core/test_pair_closing.py",
    "emulator/test_wire_memory.py",
    "emulator/test_served.py",
    "system/test_demo_processes.py",
    "emulator/test_wire_sizes.py",
    "emulator/test_security_settings.py",
    "core/test_existence.py",
    "emulator/test_wire_sessions.py",
    "emulator/test_wire_status.py",
    "airflow/test_waiting.py",
    "airflow/test_dags.py",
    "core/test_pair_kill.py",
]
RANKS = {HERE / name: rank for rank, name in enumerate(LONGEST)}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers take file after file: the longest first, so that none is left alone with one in the end."""
    items.sort(key=lambda item: RANKS.get(item.path, len(RANKS)))


@pytest.fixture
def leaks_collected() -> Iterator[None]:
    """After a test in which connections broke."""
    yield
    collect_leaks()
