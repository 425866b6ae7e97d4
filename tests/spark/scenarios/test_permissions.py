"""Jobs run with only the permissions documented in docs/security.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from servicebus_emulator import EmulatorProcess
from servicebus_pair.spark.jobs import drain, profile_backlog
from tests.system.demo.layout import PROJECT

KEY = "loopback-only-77c1e0"
SIDES = {"primary": "contoso", "secondary": "contoso-dr"}
BACKLOG = "contoso/x-servicebus-transfer/0"
RIGHTS = {"sender": "Send", "listener": "Listen"}
ROWS = {
    cells[0]: cells[1:]
    for line in (PROJECT / "provider" / "docs" / "security.md").read_text().splitlines()
    if line.startswith("|")
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}
JOBS: dict[str, Callable[[str, Path], int]] = {
    "Spark: profile": lambda pair, folder: profile_backlog.main(["--pair", pair, "--output", str(folder / "profile")]),
    "Spark: drain": lambda pair, folder: drain.main(
        ["--pair", pair, "--ledger", str(folder), "--run", "r", "--report", str(folder / "drain.json")]
    ),
}


@pytest.fixture(scope="module")
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    rules = [
        {"KeyName": name, "Rights": [right], "PrimaryKey": f"{KEY}-{name}", "SecondaryKey": f"{KEY}-{name}-2"}
        for name, right in RIGHTS.items()
    ]
    named = {"contoso": "flights", "contoso-dr": BACKLOG}
    described = [
        {"Name": name, "Queues": [{"Name": queue}], "AuthorizationRules": rules} for name, queue in named.items()
    ]
    config = tmp_path_factory.mktemp("rights") / "namespaces.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": described}}))
    with EmulatorProcess(list(SIDES.values()), config=config, key=KEY) as process:
        yield process


def settings(process: EmulatorProcess, rights: list[str]) -> dict[str, object]:
    """Return the settings of the pair, with a key for each right, or an unknown key for no right."""
    names = {right: name for name, right in RIGHTS.items()}
    given: dict[str, object] = {"backlog_queue_count": 1}
    for (side, namespace), right in zip(SIDES.items(), rights, strict=True):
        served, name = process[namespace], names.get(right, "unknown")
        at = f"Endpoint=sb://{served.host}:{served.amqp_port}"
        key = f"SharedAccessKeyName={name};SharedAccessKey={KEY}-{name}"
        given |= {f"{side}_namespace": namespace}
        given |= {f"{side}_connection_string": f"{at};{key};UseDevelopmentEmulator=true;"}
    return given


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", JOBS)
def test_jobs_need_only_the_documented_permissions(name: str, namespaces: EmulatorProcess, tmp_path: Path):
    with (
        ServiceBusClient.from_connection_string(namespaces["contoso-dr"].connection_string) as client,
        client.get_queue_sender(BACKLOG) as sender,
    ):
        sender.send_messages(ServiceBusMessage("a", application_properties={"x-ms-path": "flights"}))
    file = tmp_path / "pair.json"
    file.write_text(json.dumps(settings(namespaces, ROWS[name])))
    assert JOBS[name](f"file:{file}", tmp_path) == 0
