"""Starting processes so that they, all their descendants, and nothing else can be stopped again.

Each process leads a session of its own. Airflow's tasks move to other process groups, and Spark's Java outlives its
parent for a moment, but neither leaves the session. What was started is written down with its start time, because a
process id alone may belong to somebody else by the next run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Leader", "Processes", "StartError", "stop_recorded"]

CLOCK_SLACK = 3.0  # seconds; the start time is derived from the boot time, which moves when the clock is set
MARK = "SERVICEBUS_PAIR_DEMO"  # in the environment of what is started: tells it from others' processes
GRACE = 5.0  # seconds between asking and killing; nothing of the demo is kept, so nobody needs longer


class StartError(RuntimeError):
    """A process of the demo ended, or did not become ready in time; the message ends with what it printed."""


@dataclass(frozen=True, slots=True)
class Leader:
    """A process that was started here: the leader of its own session."""

    name: str
    pid: int
    started: float  # seconds since the epoch

    def is_alive(self) -> bool:
        """Tell whether this very process, not another with its id, still runs."""
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.started) < CLOCK_SLACK and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def session(self) -> list[psutil.Process]:
        """Return the living members of the session, the leader's descendants among them."""
        if not self.is_alive() and psutil.pid_exists(self.pid) and not is_zombie(self.pid):
            return []  # the id was given away; so the session has ended, as its number would be in use otherwise
        return [process for process in psutil.process_iter() if session_of(process) == self.pid]


class Processes:
    """All that one demo started, by name."""

    def __init__(self, *, record: Path, logs: Path) -> None:
        self._record = record
        self._logs = logs
        self._leaders: list[Leader] = []
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._mark = uuid.uuid4().hex

    def start(self, name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> Path:
        """Start a process in a session of its own and return the log file that its output is added to."""
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
        """Return the file that the process's output is added to."""
        return self._logs / f"{name}.log"

    def check(self, name: str) -> None:
        """Raise StartError when the process has ended."""
        status = self._children[name].poll()
        if status is not None:
            raise StartError(f"{name} ended with status {status}. Its last lines:\n{tail(self.log(name))}")

    def wait_for_line(self, name: str, text: str, *, after: int, seconds: float) -> None:
        """Wait until the process has printed a line that contains a text, beyond an offset of its log in bytes."""
        deadline = time.monotonic() + seconds
        while text.encode() not in self.log(name).read_bytes()[after:]:
            self.check(name)
            if time.monotonic() > deadline:
                lines = tail(self.log(name))
                raise StartError(f"{name} did not say {text!r} within {seconds:.0f} s. Its last lines:\n{lines}")
            time.sleep(0.05)

    def run(self, name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        """Run a process to its end; raise StartError when its status is not 0."""
        self.start(name, command, env=env, cwd=cwd)
        if self._children[name].wait() != 0:
            self.check(name)

    def kill(self, name: str) -> None:
        """End a process at once, as an outage does."""
        child = self._children[name]
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def kill_alone(self, name: str) -> list[psutil.Process]:
        """End only the process itself at once, and return its session's others, who have to find out by themselves."""
        child = self._children[name]
        child.kill()
        child.wait()
        return self.members(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process, such as SIGSTOP to freeze it."""
        self._children[name].send_signal(number)

    def members(self, name: str) -> list[psutil.Process]:
        """Return the living processes of the session that a process leads."""
        return [member for leader in self._leaders if leader.name == name for member in leader.session()]

    def stop(self) -> None:
        """Stop everything that was started, the last one first, also what an interrupt kept from being noted."""
        stop([*reversed(self._leaders), *self._unnoted()])
        for child in self._children.values():
            child.wait()
        self._record.unlink(missing_ok=True)

    def _unnoted(self) -> list[Leader]:
        """Return what was started here and not written down, and nothing that somebody else started."""
        known = {leader.pid for leader in self._leaders}
        found = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                if child.pid not in known and child.environ().get(MARK) == self._mark:
                    found.append(Leader("unnoted", child.pid, child.create_time()))
        return found


def stop_recorded(record: Path) -> list[str]:
    """Stop what an earlier run wrote down and left running; return the names of what was still alive."""
    if not record.exists():
        return []
    leaders = [Leader(**item) for item in json.loads(record.read_text())]
    alive = [leader.name for leader in leaders if leader.session()]
    stop(reversed(leaders))
    record.unlink()
    return alive


def stop(leaders: Iterable[Leader]) -> None:
    """Ask all members of the sessions to end, then kill those that have not, and what they still started meanwhile."""
    leaders = list(leaders)
    for end in (psutil.Process.terminate, psutil.Process.kill, psutil.Process.kill):
        members = [process for leader in leaders for process in leader.session()]
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(process)
        psutil.wait_procs(members, timeout=GRACE)


def session_of(process: psutil.Process) -> int | None:
    """Return the session's id, or None for a process that has ended or that only waits to be collected."""
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def is_zombie(pid: int) -> bool:
    """Tell whether a process has ended and only waits to be collected."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def tail(log: Path, *, lines: int = 20) -> str:
    """Return the last lines of a log file."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
