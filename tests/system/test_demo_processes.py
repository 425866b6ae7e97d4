from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes, StartError, stop_recorded

# Starts a child in another process group, as Airflow does with its tasks.
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print("child", child.pid, "ready", flush=True)
time.sleep(600)
"""
IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.system.demo.processes.GRACE_SECONDS", 0.5)


@pytest.fixture
def unrelated() -> Iterator[subprocess.Popen[bytes]]:
    """A process that the demo did not start."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True) as process:
        yield process
        process.kill()


def start(processes: Processes, name: str, code: str, cwd: Path) -> str:
    """Run Python code, wait until it prints "ready", and return its output."""
    log = processes.start(name, [sys.executable, "-c", code], env=os.environ, cwd=cwd)
    processes.wait_for_line(name, "ready", after=0, seconds=10)
    return log.read_text()


def recorded(tmp_path: Path) -> list[dict[str, object]]:
    items: list[dict[str, object]] = json.loads((tmp_path / "processes.json").read_text())
    return items


def test_stop_includes_descendants_in_other_process_groups(processes: Processes, tmp_path: Path):
    child = psutil.Process(int(start(processes, "parent", PARENT, tmp_path).split()[1]))
    processes.stop()
    assert not child.is_running()
    assert not (tmp_path / "processes.json").exists()


def test_stop_recorded_stops_processes_of_an_earlier_run(processes: Processes, tmp_path: Path):
    child = psutil.Process(int(start(processes, "parent", PARENT, tmp_path).split()[1]))
    assert stop_recorded(tmp_path / "processes.json") == ["parent"]
    assert not child.is_running()
    assert stop_recorded(tmp_path / "processes.json") == []


def test_process_with_a_reused_id_is_not_stopped(unrelated: subprocess.Popen[bytes], tmp_path: Path):
    long_ago = psutil.Process(unrelated.pid).create_time() - 3600
    record = tmp_path / "processes.json"
    record.write_text(json.dumps([{"name": "scheduler", "pid": unrelated.pid, "started": long_ago}]))
    assert stop_recorded(record) == []
    assert unrelated.poll() is None


@pytest.mark.usefixtures("short_grace")
def test_process_that_ignores_sigterm_is_killed(processes: Processes, tmp_path: Path):
    start(processes, "stubborn", IGNORES_SIGTERM, tmp_path)
    (stubborn,) = recorded(tmp_path)
    processes.stop()
    assert not psutil.pid_exists(int(str(stubborn["pid"])))


def test_early_exit_is_reported_with_the_output(processes: Processes, tmp_path: Path):
    code = "print('port 5672 is taken'); raise SystemExit(3)"
    processes.start("servicebus", [sys.executable, "-c", code], env=os.environ, cwd=tmp_path)
    with pytest.raises(StartError, match=r"servicebus exited with status 3(?s:.*)port 5672 is taken"):
        processes.wait_for_line("servicebus", "ready", after=0, seconds=10)


@pytest.mark.usefixtures("short_grace")
def test_stop_affects_only_its_own_processes(processes: Processes, unrelated: subprocess.Popen[bytes], tmp_path: Path):
    other = Processes(record=tmp_path / "other.json", logs=tmp_path)
    try:
        start(processes, "mine", IGNORES_SIGTERM, tmp_path)
        start(other, "theirs", IGNORES_SIGTERM, tmp_path)
        processes.stop()
        other.check("theirs")
        assert unrelated.poll() is None
    finally:
        other.stop()


@pytest.mark.usefixtures("short_grace")
def test_stop_includes_processes_missing_from_the_record(processes: Processes, tmp_path: Path):
    start(processes, "unrecorded", IGNORES_SIGTERM, tmp_path)
    [leader] = processes.members("unrecorded")
    processes._leaders.clear()
    processes.stop()
    assert not leader.is_running()


def test_two_demos_reserve_different_ports():
    one, other = PortReservation(), PortReservation()
    chosen = [one.next_free(25672), other.next_free(25672), one.next_free(25672)]
    assert len(set(chosen)) == 3
