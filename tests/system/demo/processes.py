"""Starts processes so that they and all their descendants, and nothing else, can be stopped.

Each process leads its own session. Airflow's tasks move to other process groups, and Spark's Java outlives its parent
briefly, but neither leaves the session. The record on disk contains start times, because process ids are reused.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

CLOCK_SLACK = 3.0  # seconds; the start time derives from the boot time, which shifts when the clock is set
MARK = "SERVICEBUS_PAIR_DEMO"  # environment variable of the started processes, identifies them
GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL


class StartError(RuntimeError):
    """A process exited or was not ready in time; the message ends with its output."""


@dataclass(frozen=True, slots=True)
class Leader:
    """A started process, which leads its own session."""

    name: str
    pid: int
    started: float  # seconds since the epoch

    def is_alive(self) -> bool:
        """Return whether this process is running, and not another one with the same id."""
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.started) < CLOCK_SLACK and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def session(self) -> list[psutil.Process]:
        if not self.is_alive() and psutil.pid_exists(self.pid) and not is_zombie(self.pid):
            return []  # the id was reused, which the kernel does only after the session has ended
        return [process for process in psutil.process_iter() if session_of(process) == self.pid]


class Processes:
    """The processes of one demo, by name."""

    def __init__(self, *, record: Path, logs: Path) -> None:
        self._record = record
        self._logs = logs
        self._leaders: list[Leader] = []
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._mark = uuid.uuid4().hex

    def start(self, name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> Path:
        """Start a process in its own session and return its log file."""
        log = self.log(name)
        with log.open("ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**env, MARK: self._mark},
                cwd=cwd,
                start_new_session=True,
            )
        self._children[name] = child
        self._leaders.append(Leader(name, child.pid, psutil.Process(child.pid).create_time()))
        self._record.write_text(json.dumps([asdict(leader) for leader in self._leaders]))
        return log

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def check(self, name: str) -> None:
        """Raise StartError if the process has exited."""
        status = self._children[name].poll()
        if status is not None:
            raise StartError(f"{name} exited with status {status}. Its last lines:\n{tail(self.log(name))}")

    def wait_for_line(self, name: str, text: str, *, after: int, seconds: float) -> None:
        """Wait until a text appears in the log of a process.

        :param after: offset in the log, in bytes.
        """
        deadline = time.monotonic() + seconds
        while text.encode() not in self.log(name).read_bytes()[after:]:
            self.check(name)
            if time.monotonic() > deadline:
                lines = tail(self.log(name))
                raise StartError(f"{name} did not print {text!r} within {seconds:.0f} s. Its last lines:\n{lines}")
            time.sleep(0.05)

    def run(self, name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        """Run a process to completion; raise StartError if its status is not 0."""
        self.start(name, command, env=env, cwd=cwd)
        if self._children[name].wait() != 0:
            self.check(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process and its group."""
        os.killpg(self._children[name].pid, number)

    def kill(self, name: str) -> None:
        """Kill a process and its group with SIGKILL."""
        self.signal(name, signal.SIGKILL)
        self._children[name].wait()

    def kill_leader_only(self, name: str) -> list[psutil.Process]:
        """Kill only the process itself, and return the other processes of its session."""
        child = self._children[name]
        child.kill()
        child.wait()
        return self.members(name)

    def members(self, name: str) -> list[psutil.Process]:
        return [member for leader in self._leaders if leader.name == name for member in leader.session()]

    def stop(self) -> None:
        """Stop all processes in reverse order, including those that an interrupt kept from being recorded."""
        stop([*reversed(self._leaders), *self._unrecorded()])
        for child in self._children.values():
            child.wait()
        self._record.unlink(missing_ok=True)

    def _unrecorded(self) -> list[Leader]:
        known = {leader.pid for leader in self._leaders}
        found = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):  # it has exited
                if child.pid not in known and child.environ().get(MARK) == self._mark:
                    found.append(Leader("unrecorded", child.pid, child.create_time()))
        return found


def stop_recorded(record: Path) -> list[str]:
    """Stop the processes that an earlier run recorded and left running; return the names of those still running."""
    if not record.exists():
        return []
    leaders = [Leader(**item) for item in json.loads(record.read_text())]
    alive = [leader.name for leader in leaders if leader.session()]
    stop(reversed(leaders))
    record.unlink()
    return alive


def stop(leaders: Iterable[Leader]) -> None:
    """Terminate the processes of all sessions, then kill the remaining ones, twice for processes started meanwhile."""
    leaders = list(leaders)
    for end in (psutil.Process.terminate, psutil.Process.kill, psutil.Process.kill):
        members = [process for leader in leaders for process in leader.session()]
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(process)
        psutil.wait_procs(members, timeout=GRACE_SECONDS)


def session_of(process: psutil.Process) -> int | None:
    """Return the session id, or ``None`` for an exited process or a zombie."""
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def tail(log: Path, *, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
