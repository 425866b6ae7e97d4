"""A RabbitMQ server on loopback, with its own ports and data, and a Shovel that empties its queues."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import psutil
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from servicebus_emulator.testing.reserved_ports import ReservedPorts
from tests.benchmarks.peers.debian import Unpacked

_PREFETCH: Final = 1000
_START_SECONDS: Final = 180
_DRAIN_SECONDS: Final = 120
_STOP_SECONDS: Final = 20
_POLL_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 0.5
_IDLE_SHARE: Final = 0.1
_PLUGINS: Final = "[rabbitmq_amqp1_0,rabbitmq_management,rabbitmq_shovel,rabbitmq_shovel_management]."
_DESTINATION: Final = "destination"


class RabbitMQ:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], *, amqp_port: int, http_port: int) -> None:
        self._server = process
        self._amqp = f"amqp://127.0.0.1:{amqp_port}"
        self._http = f"http://127.0.0.1:{http_port}/api"

    def fill(self, queues: Sequence[str], count: int, *, body_bytes: int) -> None:
        """Create durable queues and send persistent messages to them, evenly."""
        for queue in (*queues, _DESTINATION):
            self._ask("PUT", f"queues/%2f/{queue}", {"durable": True})
        Container(_Sender(self._amqp, queues, count // len(queues), body=b"x" * body_bytes)).run()

    def drain(self, queues: Sequence[str], count: int) -> float:
        """Move the messages with one Shovel for each queue; return the messages per second.

        Each Shovel deletes itself once it has moved its messages, and they are confirmed and acknowledged.
        """
        started = perf_counter()
        for queue in queues:
            value = {
                "src-protocol": "amqp091",
                "src-uri": self._amqp,
                "src-queue": queue,
                "src-prefetch-count": _PREFETCH,
                "src-delete-after": count // len(queues),
                "dest-protocol": "amqp091",
                "dest-uri": self._amqp,
                "dest-queue": _DESTINATION,
                "ack-mode": "on-confirm",
            }
            self._ask("PUT", f"parameters/shovel/%2f/{queue}", {"value": value})
        while len(self._ask("GET", "parameters/shovel/%2f")) > 0:
            if perf_counter() - started > _DRAIN_SECONDS:
                raise TimeoutError(f"the Shovels did not move {count} messages within {_DRAIN_SECONDS} s")
            time.sleep(_POLL_SECONDS)
        rate = count / (perf_counter() - started)
        self._await_count(count)
        self._ask("DELETE", f"queues/%2f/{_DESTINATION}/contents")
        return rate

    def await_idle(self) -> None:
        """Wait until the server has cleaned up after a drain, which would slow down what is measured next."""
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            server = psutil.Process(self._server.pid)
            processes = [server, *server.children(recursive=True)]
            before = sum(sum(each.cpu_times()[:2]) for each in processes)
            time.sleep(_IDLE_SECONDS)
            if sum(sum(each.cpu_times()[:2]) for each in processes) - before < _IDLE_SHARE * _IDLE_SECONDS:
                return

    def await_start(self) -> None:
        """:raises RuntimeError: the server ended, or does not answer."""
        deadline = time.monotonic() + _START_SECONDS
        while self._server.poll() is None and time.monotonic() < deadline:
            try:
                self._ask("GET", "overview")
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise RuntimeError("RabbitMQ did not start")

    def _await_count(self, count: int) -> None:
        """Check that the messages arrived; the server counts them every five seconds."""
        deadline = time.monotonic() + _STOP_SECONDS
        while (arrived := self._ask("GET", f"queues/%2f/{_DESTINATION}").get("messages", 0)) != count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{arrived} of {count} messages arrived")
            time.sleep(0.5)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(f"{self._http}/{path}", method=method)  # noqa: S310 - http on loopback
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data, timeout=_STOP_SECONDS) as response:  # noqa: S310
            answered = response.read()
        return json.loads(answered) if len(answered) > 0 else {}


class _Sender(MessagingHandler):
    def __init__(self, url: str, queues: Sequence[str], count: int, *, body: bytes) -> None:
        super().__init__()
        self._url, self._queues, self._body = url, queues, body
        self._left = dict.fromkeys(queues, count)
        self._unconfirmed = count * len(queues)

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url, user="guest", password="guest", sasl_enabled=True)
        for queue in self._queues:
            event.container.create_sender(connection, f"/amq/queue/{queue}", name=queue)

    def on_sendable(self, event: Any) -> None:
        name = event.sender.name
        while event.sender.credit > 0 and self._left[name] > 0:
            event.sender.send(Message(body=self._body, id=f"{name}-{self._left[name]}", durable=True, inferred=True))
            self._left[name] -= 1

    def on_accepted(self, event: Any) -> None:
        self._unconfirmed -= 1
        if self._unconfirmed == 0:
            event.connection.close()


@contextmanager
def serve(unpacked: Unpacked) -> Iterator[RabbitMQ]:
    """Run a server until the block ends."""
    reserved = ReservedPorts("127.0.0.1", lengths=(1, 1, 1, 1))
    amqp, http, distribution, mapper = reserved.firsts
    with TemporaryDirectory(prefix="bench-rabbitmq-") as name:
        folder = Path(name)
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{amqp}\n"
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {http}\n"
            "log.console = false\nlog.file.level = warning\n"
        )
        (folder / "enabled_plugins").write_text(_PLUGINS)
        environment = _environment(unpacked, folder, distribution=distribution, mapper=mapper)
        mapping = _process([str(unpacked.bin / "epmd"), "-address", "127.0.0.1"], environment)
        with mapping, _process([str(unpacked.server)], environment) as process:
            server = RabbitMQ(process, amqp_port=amqp, http_port=http)
            server.await_start()
            yield server


def _environment(unpacked: Unpacked, folder: Path, *, distribution: int, mapper: int) -> Mapping[str, str]:
    """Return the environment of the server; the programs of Debian expect Erlang in its usual place, ours is given."""
    programs = folder / "bin"
    programs.mkdir()
    erl = programs / "erl"
    erl.write_text(
        f"#!/bin/sh\nexport ROOTDIR={unpacked.erlang} BINDIR={unpacked.bin} EMU=beam PROGNAME=erl\n"
        'exec "$BINDIR/erlexec" ${1+"$@"}\n'
    )
    erl.chmod(0o700)
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(mapper),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }


@contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a process group of its own, which is ended with the block."""
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
