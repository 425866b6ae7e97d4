"""What the demo starts it stops, with all descendants, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.system.demo.processes import Processes, StartError, stop_recorded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A process that starts another one in a process group of its own, as Airflow does with its tasks.
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print("child", child.pid, "ready", flush=True)
time.sleep(600)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Processes of a demo in a scratch folder, stopped at the end whatever happens."""
    started = Processes(record=tmp_path / "processes.json", logs=tmp_path)
    yield started
    started.stop()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of the demo's business, although the test started it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True) as process:
        yield process
        process.kill()


def start(processes: Processes, name: str, code: str, cwd: Path) -> str:
    """Start Python code, wait until it is ready, and return what it printed."""
    log = processes.start(name, [sys.executable, "-c", code], env=os.environ, cwd=cwd)
    processes.wait_for_line(name, "ready", after=0, seconds=10)
    return log.read_text()


def recorded(tmp_path: Path) -> list[dict[str, object]]:
    """Return what is written down about the started processes."""
    items: list[dict[str, object]] = json.loads((tmp_path / "processes.json").read_text())
    return items


def test_stopping_ends_descendants_that_moved_to_another_process_group(processes: Processes, tmp_path: Path):
    child = psutil.Process(int(start(processes, "parent", PARENT, tmp_path).split()[1]))
    processes.stop()
    assert not child.is_running()
    assert not (tmp_path / "processes.json").exists()


def test_a_later_run_stops_what_an_earlier_one_left_running(processes: Processes, tmp_path: Path):
    child = psutil.Process(int(start(processes, "parent", PARENT, tmp_path).split()[1]))
    assert stop_recorded(tmp_path / "processes.json") == ["parent"]
    assert not child.is_running()
    assert stop_recorded(tmp_path / "processes.json") == []


def test_a_process_that_got_the_id_of_an_earlier_one_is_left_alone(stranger: subprocess.Popen[bytes], tmp_path: Path):
    long_ago = psutil.Process(stranger.pid).create_time() - 3600
    record = tmp_path / "processes.json"
    record.write_text(json.dumps([{"name": "scheduler", "pid": stranger.pid, "started": long_ago}]))
    assert stop_recorded(record) == []
    assert stranger.poll() is None


def test_a_process_that_does_not_listen_is_killed(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tests.system.demo.processes.GRACE", 0.5)
    start(processes, "deaf", DEAF, tmp_path)
    (deaf,) = recorded(tmp_path)
    processes.stop()
    assert not psutil.pid_exists(int(str(deaf["pid"])))


def test_a_process_that_ends_too_early_is_reported_with_what_it_printed(processes: Processes, tmp_path: Path):
    code = "print('port 5672 is taken'); raise SystemExit(3)"
    processes.start("servicebus", [sys.executable, "-c", code], env=os.environ, cwd=tmp_path)
    with pytest.raises(StartError, match=r"servicebus ended with status 3(?s:.*)port 5672 is taken"):
        processes.wait_for_line("servicebus", "ready", after=0, seconds=10)


def test_stopping_one_leaves_what_the_same_program_started_otherwise(
    processes: Processes, stranger: subprocess.Popen[bytes], tmp_path: Path
):
    other = Processes(record=tmp_path / "other.json", logs=tmp_path)
    try:
        start(processes, "mine", DEAF, tmp_path)
        start(other, "theirs", DEAF, tmp_path)
        processes.stop()
        other.check("theirs")
        assert stranger.poll() is None
    finally:
        other.stop()


def test_what_an_interrupt_kept_from_being_noted_is_stopped_too(processes: Processes, tmp_path: Path):
    start(processes, "unnoted", DEAF, tmp_path)
    [leader] = processes.members("unnoted")
    processes._leaders.clear()
    processes.stop()
    assert not leader.is_running()
