"""The emulator as a process: start, stop, invalid arguments, and recovery after ``kill -9``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError

from servicebus_emulator import Emulator, EmulatorProcess
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.runtime.journal import JournalError
from servicebus_emulator.store.sqlite import SqliteJournal
from tests.emulator.support.command import refusal_of, run
from tests.emulator.support.sdk_client import connect_sdk

pytestmark = pytest.mark.usefixtures("leaks_collected")


def test_start_is_cheap_and_stop_is_clean(tmp_path: Path):
    process = EmulatorProcess(["contoso", "contoso-dr"], data=tmp_path / "data")
    process.start()
    running = process._running()
    try:
        first, second = process["contoso"], process["contoso-dr"]
        assert (second.amqp_port, second.admin_port) == (first.amqp_port + 1, first.admin_port + 1)
        assert (tmp_path / "data" / "contoso-dr.sqlite").exists()
        # CPU time rather than wall-clock time, because other tests run on the same machine.
        *_, user, system = Path(f"/proc/{process.pid}/stat").read_text().split()[:15]
        assert (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") < 3
    finally:
        process.stop()
    assert running.returncode == 0


# What an idle namespace does not need, by what loads it: HTTP, issuing a certificate and tokens, WebSocket, --data.
LOADED_ON_DEMAND = {
    "aiohttp",
    "attr",
    "cryptography",
    "email",
    "jwt",
    "prometheus_client",
    "sqlite3",
    "trustme",
    "wsproto",
}
SERVES = """
import atexit, sys
atexit.register(lambda: print("loaded", *{name.partition(".")[0] for name in sys.modules}))
from servicebus_emulator.__main__ import main
sys.exit(main(["--amqp-port", "0", "--admin-port", "0"]))
"""


def test_an_idle_namespace_loads_nothing_that_it_does_not_need():
    """Its memory depends on the machine: 33 MB where this was written, and 61 MB with all of these."""
    with subprocess.Popen([sys.executable, "-c", SERVES], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        namespace, arm = process.stdout.readline(), process.stdout.readline()
        assert Path(namespace.strip().partition(" ca=")[2]).is_file()
        assert arm.startswith("ready arm=")
        process.terminate()
        loaded = process.stdout.read().split()
    assert (process.returncode, loaded[0]) == (0, "loaded")
    assert LOADED_ON_DEMAND & set(loaded) == set()
    assert {"asyncio", "proton"} <= set(loaded)


def test_help_groups_its_options_and_shows_defaults():
    shown = run("--help-all")
    assert shown.returncode == 0
    ungrouped = shown.stdout.partition("options:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in ungrouped.splitlines()] == ["-h,", "--help-all", "--version"]
    for heading in ("content:", "addresses:", "security:", "faults and time:", "TLS and sizes:", "log:"):
        assert heading in shown.stdout
    assert "(default: 5672)" in " ".join(shown.stdout.split())
    assert run("--version").stdout.startswith("servicebus-emulator ")


def test_the_short_help_fits_a_screen_and_names_real_options():
    shown = run("--help").stdout
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) <= 80
    options = set(re.findall(r"--[a-z-]+", shown))
    assert {"--namespace", "--config", "--data", "--help-all"} <= options
    assert options <= set(re.findall(r"--[a-z-]+", run("--help-all").stdout))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--namespace", "a/b"], "namespace is 'a/b'; allowed: 1 to 50 letters"),
        (["--namespace", "a", "--namespace", "A"], "allowed: at least one, each once"),
        (["--amqp-port", "70000"], "amqp_port is 70000"),
        (["--amqp-port", "6000", "--admin-port", "6001", "--namespace", "a", "--namespace", "b"], "overlap"),
        (["--config", "nowhere.json"], "--config cannot be read"),
        (["--faults", "nowhere.json"], "--faults nowhere.json: the file of faults is 'No such file or directory'"),
        (["--fault", "rset"], "kind is 'rset'; allowed: refuse, reset"),
        (["--fault", "reset,count=0"], "count is 0; allowed"),
        (["--fault", "reset,namespace=other"], "namespace is 'other'; allowed: sbemulatorns"),
        (["--host", "0.0.0.0"], "or a key of your own (SERVICEBUS_EMULATOR_KEY or --key-file), or --open"),  # noqa: S104
        (["--key-file", "nowhere"], "--key-file cannot be read"),
        (["--client", "app"], "--client 'app' has no secret"),
        (["--client", "app:Reader"], "--client 'app' has a role that does not exist; allowed: Owner, Sender, Receiver"),
        (["--greeting-seconds", "0"], "greeting_seconds is 0.0; allowed: a number of seconds above 0"),
        (["--link-idle-seconds", "-1"], "--link-idle-seconds is -1; allowed: seconds above 0, or 0 for never"),
        (["--certificate", "none.pem", "--key", "none.key"], "certificate is 'none.pem'"),
        (["--arm-port", "-1"], "arm_port is -1; allowed: 0 .. 65535"),
        (["--arm-resource-group", "a/b"], "resource_group is 'a/b'; allowed: 1 to 90 letters"),
        (["--amqp-port", "x"], "invalid int value"),
    ],
)
def test_invalid_arguments_are_named(arguments: Sequence[str], message: str):
    assert message in refusal_of(*arguments)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", ":1: line 1, column 2 is 'Expecting property name"),
        (b"\xff\xfe", ": the document is \"no text: 'utf-8' codec"),
        (b"[]", ":1: the document is []; allowed: an object"),
    ],
)
def test_an_invalid_configuration_is_reported_with_its_file(tmp_path: Path, content: bytes, message: str):
    config = tmp_path / "config.json"
    config.write_bytes(content)
    assert f"error: --config {config}{message}" in refusal_of("--config", str(config))


def test_a_failure_to_serve_is_reported(tmp_path: Path):
    config, file = tmp_path / "config.json", tmp_path / "file"
    queue = {"Name": "flights", "Properties": {"ForwardTo": "nowhere"}}
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "contoso", "Queues": [queue]}]}}))
    file.touch()
    for arguments, message in (
        (["--config", str(config)], "the configuration's queue flights cannot be created: forward_to is 'nowhere'"),
        (["--data", str(file)], "File exists"),
        (["--host", "nowhere.invalid", "--open"], "host 'nowhere.invalid' has no address"),
    ):
        ended = run("--amqp-port", "0", "--admin-port", "0", *arguments)
        assert ended.returncode == 1
        assert message in ended.stderr
        assert "another process" not in ended.stderr


def test_a_port_or_folder_in_use_is_reported(tmp_path: Path):
    with EmulatorProcess(["contoso"], data=tmp_path / "data") as process:
        taken = process["contoso"]
        ports = ["--amqp-port", str(taken.amqp_port), "--admin-port", "0", "--namespace", "other"]
        assert re.search(r"error: .*address already in use; .*--amqp-port", (ended := run(*ports)).stderr)
        assert ended.returncode == 1
        free = ["--amqp-port", "0", "--admin-port", "0", "--namespace", "contoso", "--data", str(tmp_path / "data")]
        assert "is another process using the same --data folder?" in (ended := run(*free)).stderr
        assert ended.returncode == 1


class Answered:
    """The ids of messages whose sending or completion was answered."""

    def __init__(self, *, enough: int) -> None:
        self.ids: list[str] = []
        self.enough = asyncio.Event()
        self._enough = enough

    def note(self, *ids: str) -> None:
        self.ids += ids
        if len(self.ids) >= self._enough:
            self.enough.set()


async def send_until_killed(sender: ServiceBusSender, *, worker: int, answered: Answered) -> None:
    """Send numbered messages, in batches and alone."""
    with contextlib.suppress(ServiceBusError):
        for number in count():
            ids = [f"{worker}-{number}-{part}" for part in range(20 if number % 3 != 0 else 1)]
            await sender.send_messages([ServiceBusMessage("x" * 100, message_id=each) for each in ids])
            answered.note(*ids)


async def complete_until_killed(client: ServiceBusClient, *, answered: Answered) -> None:
    """Complete messages one by one."""
    async with client.get_queue_receiver("done", prefetch_count=100) as receiver:
        with contextlib.suppress(ServiceBusError):
            while True:
                for message in await receiver.receive_messages(50, max_wait_time=5):
                    await receiver.complete_message(message)
                    answered.note(message.message_id)


async def ids_in(client: ServiceBusClient, path: str) -> list[str]:
    receiver = client.get_queue_receiver(
        path, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, prefetch_count=500
    )
    ids: list[str] = []
    async with receiver:
        while True:
            received = await receiver.receive_messages(500, max_wait_time=1)
            if len(received) == 0:
                return ids
            ids += [message.message_id for message in received]


async def test_kill_9_loses_nothing_acknowledged(tmp_path: Path):
    sent, completed = Answered(enough=1000), Answered(enough=20)
    process = EmulatorProcess(["contoso"], data=tmp_path)
    process.start()
    for path in ("flights", "done"):
        process["contoso"].create_queue(path)
    try:
        async with ServiceBusClient.from_connection_string(
            process["contoso"].connection_string, retry_total=0
        ) as client:
            senders = [client.get_queue_sender("flights") for _ in range(3)]
            filler = client.get_queue_sender("done")
            await asyncio.gather(*(sender.__aenter__() for sender in (*senders, filler)))
            for start in range(0, 1000, 500):
                await filler.send_messages([ServiceBusMessage("x", message_id=str(start + i)) for i in range(500)])
            work = asyncio.gather(
                *(send_until_killed(sender, worker=number, answered=sent) for number, sender in enumerate(senders)),
                complete_until_killed(client, answered=completed),
            )
            await asyncio.gather(sent.enough.wait(), completed.enough.wait())
            process.kill()
            await work
            await asyncio.gather(*(sender.close() for sender in (*senders, filler)))
        process.start()
        async with ServiceBusClient.from_connection_string(process["contoso"].connection_string) as client:
            kept, left = await asyncio.gather(ids_in(client, "flights"), ids_in(client, "done"))
    finally:
        process.stop()
    assert set(sent.ids) <= set(kept)
    assert len(kept) == len(set(kept))
    # One completion may have been carried out and not yet answered.
    assert set(left) | set(completed.ids) >= {str(i) for i in range(1000)} - {str(len(completed.ids))}
    assert set(left).isdisjoint(completed.ids)
    assert 20 <= len(completed.ids) < 1000


async def test_a_namespace_that_cannot_persist_confirms_nothing_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(_: SqliteJournal) -> None:
        raise JournalError("disk full")

    async with Emulator(["contoso"], data=tmp_path) as emulator:
        hosted = emulator["contoso"]
        hosted.namespace.create_queue(QueueDescription("q"))
        async with connect_sdk(hosted) as sdk, sdk.opened(sdk.client.get_queue_sender("q")) as (sender,):
            with monkeypatch.context() as patch:
                patch.setattr(SqliteJournal, "commit", fail)
                with pytest.raises(ServiceBusError):
                    await sender.send_messages(ServiceBusMessage("x"), timeout=3)
                with pytest.raises(JournalError, match="disk full"):
                    await asyncio.wait_for(emulator.wait_for_failure(), timeout=1)
