"""Structured logs, one event per line, without keys and tokens; and a clean end."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from servicebus_emulator.logs import JsonFormatter, TextFormatter, event, masked

KEY = "c2VjcmV0IGtleQ=="
CONNECTION = f"Endpoint=sb://localhost;SharedAccessKeyName=Root;SharedAccessKey={KEY};UseDevelopmentEmulator=true;"


class Started:
    """The command line, with what it logs."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self._log = log
        with log.open("w") as stream:
            command = [sys.executable, "-m", "servicebus_emulator", "--amqp-port", "0", "--admin-port", "0", *arguments]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True)
        ready = re.match(r"ready namespace=(\S+) amqp=\S+:(\d+) admin=\S+:(\d+)", self.process.stdout.readline())
        self.amqp_port, self.admin_port = int(ready[2]), int(ready[3])

    @property
    def log(self) -> str:
        return self._log.read_text()

    def events(self) -> dict[str, dict[str, Any]]:
        return {each["event"]: each for each in map(json.loads, self.log.splitlines())}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    all_started: list[Started] = []

    def begin(*arguments: str) -> Started:
        all_started.append(Started(*arguments, log=tmp_path / f"{len(all_started)}.log"))
        return all_started[-1]

    yield begin
    for each in all_started:
        each.process.kill()
        each.process.communicate()


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    return logging.getLogger("servicebus_emulator.admin.entities").makeRecord(
        "servicebus_emulator.admin.entities", logging.INFO, __file__, 1, message, arguments, None, extra=extra or None
    )


def test_an_event_is_one_object_with_time_level_event_and_fields():
    about = event("created", namespace="contoso", entity="flights", left_out=None, count=3)
    line = JsonFormatter().format(record("namespace %s:\ncreated", "contoso", **about))
    assert "\n" not in line
    document = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", document.pop("time"))
    assert document == {
        "level": "INFO",
        "event": "created",
        "message": "namespace contoso:\ncreated",
        "namespace": "contoso",
        "entity": "flights",
        "count": 3,
    }
    assert json.loads(JsonFormatter().format(record("x")))["event"] == "admin.entities"


def test_a_line_break_in_a_value_cannot_forge_an_event():
    assert "\n2026" not in TextFormatter().format(record("entity %s", "x\n2026-01-01T00:00:00.000Z INFO forged"))


@pytest.mark.parametrize(
    "secret",
    [
        CONNECTION,
        f"SharedAccessSignature sr=sb%3a%2f%2fx&sig={KEY}&se=1&skn=Root",
        f"Authorization: Bearer {KEY}",
        f"{{'body': 'sharedaccesskey={KEY}'}}",
    ],
)
@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_key_or_token_that_reaches_the_log_is_masked(formatter: logging.Formatter, secret: str):
    about = event("e", entity=secret)
    failed = record("it was %s", secret, **about)
    try:
        int(secret)
    except ValueError:
        failed.exc_info = sys.exc_info()
    written = formatter.format(failed)
    assert KEY not in written
    assert KEY.rstrip("=") not in written
    assert "***" in written


def test_other_text_is_not_masked():
    assert masked("SharedAccessKeyName=Root; entity=sig; design=1") == "SharedAccessKeyName=Root; entity=sig; design=1"


def test_the_json_log_has_all_addresses_and_faults_and_masks_the_key(start: Any):
    started = start("--log-format", "json", "--namespace", "contoso", "--fault", "server-busy,entity=flights")
    listening, fault = (started.events()[name] for name in ("listening", "fault-set"))
    assert (listening["namespace"], listening["amqp"]) == ("contoso", f"127.0.0.1:{started.amqp_port}")
    assert listening["administration"] == f"127.0.0.1:{started.admin_port}"
    assert listening["connection_string"].startswith(f"Endpoint=sb://127.0.0.1:{started.amqp_port};")
    assert "SharedAccessKey=***" in listening["connection_string"]
    assert "SAS_KEY_VALUE" not in started.log
    assert (fault["kind"], fault["entity"], fault["level"]) == ("server-busy", "flights", "WARNING")


def test_the_log_is_text_by_default_and_on_standard_error_only(start: Any):
    started = start("--fault", "server-busy,entity=flights", "--namespace", "contoso")
    assert re.match(r"\S+Z WARNING namespace contoso: fault 1 set: server-busy\n", started.log)
    assert started.process.stdout.readline().startswith("ready arm=")
    started.process.send_signal(signal.SIGTERM)
    rest, _ = started.process.communicate(timeout=60)
    assert rest == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_a_second_despite_connected_clients(start: Any, number: signal.Signals, tmp_path: Path):
    config = tmp_path / "config.json"
    spaces = [{"Name": "contoso", "Queues": [{"Name": "flights"}], "Topics": []}]
    config.write_text(json.dumps({"UserConfig": {"Namespaces": spaces}}))
    started = start("--log-format", "json", "--config", str(config))
    address = f"Endpoint=sb://127.0.0.1:{started.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
    client = ServiceBusClient.from_connection_string(
        f"{address}SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )
    with client, client.get_queue_sender("flights") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        with half_a_request(started.admin_port):
            begun = time.monotonic()
            started.process.send_signal(number)
            assert started.process.wait(5) == 0
            # More than the promise of one second: the machine that runs this may be busy.
            assert time.monotonic() - begun < 4
    assert started.events()["stopping"]["signal"] == number.name


def test_a_second_signal_ends_it_at_once(start: Any):
    started = start()
    with half_a_request(started.admin_port):
        # Both are there when it looks: however busy the machine is, the second does not come too late.
        started.process.send_signal(signal.SIGSTOP)
        started.process.send_signal(signal.SIGTERM)
        started.process.send_signal(signal.SIGINT)
        started.process.send_signal(signal.SIGCONT)
        assert started.process.wait(5) in {128 + signal.SIGTERM, 128 + signal.SIGINT}
    assert started.log.count("stopping: ") == 1


def half_a_request(port: int) -> socket.socket:
    """Begin a request that never ends."""
    connected = socket.create_connection(("127.0.0.1", port))
    connected.sendall(b"PUT /q?api-version=2021-05 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n<")
    return connected
