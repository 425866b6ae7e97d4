"""The embedded Service Bus as a process of its own, which can be killed and started again."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import IO, Final, Self, cast

from servicebus_emulator.hosting import connection_string
from servicebus_emulator.security.rules import DEFAULT_KEY
from servicebus_emulator.security.settings import KEY_VARIABLE

__all__ = ["EmulatorProcess", "ServedNamespace"]

_READY: Final = re.compile(r"ready namespace=(\S+) amqp=(\S+):(\d+) admin=\S+:(\d+) ca=(.+)")
_TRIES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedNamespace:
    """Where a namespace of another process is reached, and the key of its root rule as the process was given it.

    :ivar ca_file: the certificates that a TLS client has to trust: the SDK's option ``connection_verify``.
    """

    name: str
    host: str
    amqp_port: int
    admin_port: int
    ca_file: Path
    key: str = field(default=DEFAULT_KEY, repr=False)

    @property
    def tls_connection_string(self) -> str:
        """What clients connect with over TLS, beside ``connection_verify`` and ``custom_endpoint_address``."""
        return connection_string(self.host, port=self.amqp_port, key=self.key, tls=True)

    @property
    def endpoint_address(self) -> str:
        """Where clients of messages connect to over TLS or WebSocket: their option ``custom_endpoint_address``."""
        return f"sb://{self.host}:{self.amqp_port}"

    @property
    def connection_string(self) -> str:
        """What clients of messages connect with."""
        return connection_string(self.host, port=self.amqp_port, key=self.key)

    @property
    def admin_connection_string(self) -> str:
        """What administration clients connect with."""
        return connection_string(self.host, port=self.admin_port, key=self.key)


class EmulatorProcess:
    """Runs ``python -m servicebus_emulator``.

    After a :meth:`kill` or :meth:`stop`, :meth:`start` brings the namespaces back on the same ports, and
    with `data` with everything that had been answered.

    :param names: the namespaces.
    :param data: the folder in which the state is kept; None = in memory only.
    :param config: a configuration file.
    :param host: the address to listen on.
    :param open: whether everybody is let in, unchecked.
    :param key: both keys of each namespace's root rule; None = those of the environment, else the well-known one,
        unless the configuration file sets them: connection strings are made with the key that is known here.
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
    ) -> None:
        self._open = open
        self._key = os.environ.get(KEY_VARIABLE) if key is None else key
        self._names = tuple(names)
        self._data = data
        self._config = config
        self._host = host
        self._process: subprocess.Popen[str] | None = None
        self._served: dict[str, ServedNamespace] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, name: str) -> ServedNamespace:
        """Return where a namespace is reached."""
        return self._served[name]

    @property
    def pid(self) -> int:
        """The process's id.

        :raises RuntimeError: when it does not run.
        """
        return self._running().pid

    def start(self, *, timeout: float = 10) -> None:
        """Start the process and wait until it is ready.

        :param timeout: how long to wait, in seconds.
        :raises RuntimeError: when it runs already, ends, or is not ready in time; its output is on standard error.
        """
        if self._process is not None:
            raise RuntimeError("the embedded Service Bus runs already; stop() or kill() it first")
        process = subprocess.Popen(  # noqa: S603 - our own command
            self._command(),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Not an argument: everybody on the machine can read those.
            env=os.environ if self._key is None else {**os.environ, KEY_VARIABLE: self._key},
        )
        self._process = process
        lines: Queue[str] = Queue()
        threading.Thread(target=_forward, args=(cast("IO[str]", process.stdout), lines), daemon=True).start()
        try:
            for _ in self._names:
                self._note(lines.get(timeout=timeout))
        except (Empty, ValueError) as error:
            self.kill()
            raise RuntimeError(f"the embedded Service Bus was not ready in {timeout} s; see standard error") from error

    def stop(self, *, timeout: float = 10) -> None:
        """Ask the process to stop and wait until it has. Stopping twice does nothing.

        :param timeout: how long to wait before it is killed, in seconds.
        """
        if self._process is None:
            return
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
        """Stop the process where it stands: its peers still get their bytes acknowledged, and nothing else."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        os.kill(self.pid, signal.SIGCONT)

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

    def _note(self, line: str) -> None:
        match = _READY.match(line)
        if match is None:
            raise ValueError(f"unexpected output {line!r}")
        name, host, amqp_port, admin_port, ca_file = match.groups()
        self._served[name] = ServedNamespace(
            name=name,
            host=host,
            amqp_port=int(amqp_port),
            admin_port=int(admin_port),
            ca_file=Path(ca_file),
            key=DEFAULT_KEY if self._key is None else self._key,
        )

    def _command(self) -> list[str]:
        if len(self._served) == 0:
            amqp_port, admin_port = _free_ports(self._host, runs=2, length=len(self._names))
        else:
            first = self._served[self._names[0]]
            amqp_port, admin_port = first.amqp_port, first.admin_port
        command = [sys.executable, "-m", "servicebus_emulator", "--host", self._host, "--log-level", "WARNING"]
        command += ["--amqp-port", str(amqp_port), "--admin-port", str(admin_port)]
        for name in self._names:
            command += ["--namespace", name]
        if self._open:
            command.append("--open")
        for option, path in (("--data", self._data), ("--config", self._config)):
            if path is not None:
                command += [option, str(path)]
        return command


def _forward(stream: IO[str], lines: Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _free_ports(host: str, *, runs: int, length: int) -> list[int]:
    """Return the first ports of several runs of consecutive ports that are free now."""
    with ExitStack() as taken:
        return [_free_run(host, length=length, taken=taken) for _ in range(runs)]


def _free_run(host: str, *, length: int, taken: ExitStack) -> int:
    for _ in range(_TRIES):
        with ExitStack() as mine:
            try:
                first = mine.enter_context(_bound(host, port=0)).getsockname()[1]
                for offset in range(1, length):
                    mine.enter_context(_bound(host, port=first + offset))
            except (OSError, OverflowError):
                continue
            taken.push(mine.pop_all())
            return int(first)
    raise RuntimeError(f"no {length} consecutive ports are free on {host}")


def _bound(host: str, *, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound
