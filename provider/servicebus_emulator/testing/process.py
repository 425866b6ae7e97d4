"""The embedded Service Bus in a separate process, which can be killed and restarted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, Final, Self, cast

from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY
from servicebus_emulator.faults import Fault
from servicebus_emulator.faults.codec import fault_document
from servicebus_emulator.security.settings import KEY_VARIABLE
from servicebus_emulator.testing.remote_namespace import RemoteNamespace
from servicebus_emulator.testing.reserved_ports import ReservedPorts

_READY: Final = re.compile(r"ready namespace=(\S+) amqp=(\S+):(\d+) admin=\S+:(\d+) ca=(.+)")
_ARM_READY: Final = re.compile(r"ready arm=(\S+)")


class EmulatorProcess:
    """Runs ``python -m servicebus_emulator``.

    After a :meth:`kill` or :meth:`stop`, :meth:`start` serves the namespaces on the same ports again, with their state
    if `data` is given.

    :param data: the folder of the state; None = in memory only.
    :param config: a configuration file.
    :param open: whether clients need no token.
    :param key: both keys of each namespace's root rule, used in connection strings; None = that of the environment,
        otherwise the well-known one.
    :param amqp_port: AMQP port of the first namespace, counted up for the next; None = any free port.
    :param admin_port: administration port of the first namespace, counted up for the next; None = any free port.
    :param faults: the faults to set at each start.
    :param fault_seed: the seed of faults with a probability.
    :param allow_time_shift: whether the clock can be moved forward.
    :param log_level: the lowest level to log to standard error: DEBUG, INFO, WARNING or ERROR.
    :param log_format: text or json.
    :param deliver_pings: whether pings are delivered like other messages.
    :param options: more options of the command line, such as ``["--option", "value"]``.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        data: Path | None = None,
        config: Path | None = None,
        host: str = "127.0.0.1",
        open: bool = False,  # noqa: A002 - the word for it everywhere else
        key: str | None = None,
        amqp_port: int | None = None,
        admin_port: int | None = None,
        faults: Sequence[Fault] = (),
        fault_seed: int = 0,
        allow_time_shift: bool = False,
        log_level: str = "WARNING",
        log_format: str = "text",
        deliver_pings: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self._open = open
        self._key = os.environ.get(KEY_VARIABLE) if key is None else key
        self._names = tuple(names)
        self._data = data
        self._config = config
        self._host = host
        self._ports = (amqp_port, admin_port)
        self._faults = tuple(faults)
        self._options = ["--fault-seed", str(fault_seed), "--log-level", log_level, "--log-format", log_format]
        self._options += ["--allow-time-shift"] if allow_time_shift else []
        self._options += ["--deliver-pings"] if deliver_pings else []
        self._options += options
        self._process: subprocess.Popen[str] | None = None
        self._served: dict[str, RemoteNamespace] = {}
        self._arm_address: str | None = None
        self._reserved: ReservedPorts | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, name: str) -> RemoteNamespace:
        """Return a namespace by its name."""
        return self._served[name]

    @property
    def arm_url(self) -> str:
        """The base URL of clients of Azure Resource Manager.

        :raises RuntimeError: when the process was never started.
        """
        if self._arm_address is None:
            raise RuntimeError("the embedded Service Bus was never started; start() it first")
        return self._arm_address

    @property
    def pid(self) -> int:
        """The process id.

        :raises RuntimeError: when the process does not run.
        """
        return self._running().pid

    def start(self, *, timeout: float = 10) -> None:
        """Start the process and wait until it is ready.

        :param timeout: how long to wait, in seconds.
        :raises RuntimeError: when it runs already, ends, or is not ready in time; see standard error.
        """
        if self._process is not None:
            raise RuntimeError("the embedded Service Bus runs already; stop() or kill() it first")
        with TemporaryDirectory(prefix="servicebus-emulator-") as folder:
            faults = Path(folder, "faults.json")
            faults.write_text(json.dumps([fault_document(fault) for fault in self._faults]))
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                self._command(faults),
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                # Not an argument, because every user of the machine can read those.
                env=os.environ if self._key is None else {**os.environ, KEY_VARIABLE: self._key},
            )
            try:
                self._wait_until_ready(self._process, timeout=timeout)
            except (Empty, ValueError) as error:
                self.kill()
                reason = f"the embedded Service Bus was not ready in {timeout} s; see standard error"
                raise RuntimeError(reason) from error

    def stop(self, *, timeout: float = 10) -> None:
        """Ask the process to stop and wait until it has. Stopping twice does nothing.

        :param timeout: how long to wait before it is killed, in seconds.
        """
        if self._process is None:
            return
        # A frozen process handles no signal.
        self.thaw()
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """End the process at once, as ``kill -9`` does."""
        self._running().kill()
        self._reap()

    def freeze(self) -> None:
        """Suspend the process: its kernel acknowledges bytes, but nothing is sent."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume a frozen process."""
        self._running().send_signal(signal.SIGCONT)

    def restore(self) -> None:
        """Start a process that was killed or stopped, or resume a frozen one."""
        if self._process is None:
            self.start()
        else:
            self.thaw()

    def _wait_until_ready(self, process: subprocess.Popen[str], *, timeout: float) -> None:
        lines: Queue[str] = Queue()
        threading.Thread(target=_forward, args=(cast("IO[str]", process.stdout), lines), daemon=True).start()
        # One line for each namespace, then that of the ARM interface.
        while not self._parse(lines.get(timeout=timeout)):
            pass

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the embedded Service Bus does not run; start() it first")
        return self._process

    def _reap(self) -> None:
        process = self._running()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None

    def _parse(self, line: str) -> bool:
        """Store the addresses in a line; return whether it is the last line."""
        arm, match = _ARM_READY.match(line), _READY.match(line)
        if arm is not None:
            self._arm_address = arm[1]
        elif match is not None:
            name, host, amqp_port, admin_port, ca_file = match.groups()
            self._served[name] = RemoteNamespace(
                name=name,
                host=host,
                amqp_port=int(amqp_port),
                admin_port=int(admin_port),
                ca_file=Path(ca_file),
                key=DEFAULT_KEY if self._key is None else self._key,
            )
        else:
            raise ValueError(f"unexpected output {line!r}")
        return arm is not None

    def _command(self, faults: Path) -> list[str]:
        if self._reserved is None:
            count = len(self._names)
            self._reserved = ReservedPorts(self._host, lengths=(count, count, 1))
        amqp_port, admin_port, arm_port = (
            reserved if chosen is None else chosen
            for reserved, chosen in zip(self._reserved.firsts, (*self._ports, None), strict=True)
        )
        command = [sys.executable, "-m", "servicebus_emulator", "--host", self._host, *self._options]
        command += ["--amqp-port", str(amqp_port), "--admin-port", str(admin_port), "--faults", str(faults)]
        command += ["--arm-port", str(arm_port)]
        for name in self._names:
            command += ["--namespace", name]
        if self._open:
            command.append("--open")
        for option, path in (("--data", self._data), ("--config", self._config)):
            if path is not None:
                command += [option, str(path)]
        return command


@dataclass(frozen=True, slots=True, kw_only=True)
class DedicatedNamespace(RemoteNamespace):
    """A namespace in its own process."""

    process: EmulatorProcess

    @classmethod
    def of(cls, process: EmulatorProcess, *, name: str) -> DedicatedNamespace:
        """Return a namespace of a running process."""
        served = process[name]
        return cls(**{each.name: getattr(served, each.name) for each in fields(RemoteNamespace)}, process=process)

    def kill(self) -> None:
        """End the process at once, as ``kill -9`` does."""
        self.process.kill()

    def freeze(self) -> None:
        """Suspend the process: its kernel acknowledges bytes, but nothing is sent."""
        self.process.freeze()

    def restore(self) -> None:
        """Start the killed process on the same ports, or resume the frozen one."""
        self.process.restore()


@dataclass(frozen=True, slots=True, kw_only=True)
class DedicatedNamespacePair:
    """Two independent namespaces."""

    primary: DedicatedNamespace
    secondary: DedicatedNamespace


def _forward(stream: IO[str], lines: Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")
