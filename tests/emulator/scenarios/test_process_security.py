"""Keys, clients and open access of an emulator process."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest
from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient
from proton import Message
from proton.utils import BlockingConnection

from servicebus_emulator import EmulatorProcess
from servicebus_emulator.security.sas import sign
from servicebus_emulator.security.settings import KEY_VARIABLE
from tests.emulator.support.authorizers import CANARY, config_with_rules
from tests.emulator.support.command import refusal_of
from tests.emulator.support.plain_http import BlockingPlainTransport


def test_an_invalid_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "key"
    file.write_text("\n")
    refusals = [refusal_of("--key-file", str(file))]
    for key in ("", "two\nlines"):
        monkeypatch.setenv(KEY_VARIABLE, key)
        refusals.append(refusal_of())
    for refusal in refusals:
        assert "PrimaryKey is 'of" in refusal
        assert "allowed: 1 to 256 printable characters" in refusal


def test_the_key_is_not_on_the_command_line_of_the_process(tmp_path: Path):
    with EmulatorProcess(["contoso"], key=CANARY, data=tmp_path) as process:
        served = process["contoso"]
        assert f"SharedAccessKey={CANARY};" in served.connection_string
        assert CANARY not in repr(served) + repr(process)
        assert CANARY not in Path(f"/proc/{process.pid}/cmdline").read_text(encoding="utf-8")


def test_a_policy_survives_a_kill_of_the_process(tmp_path: Path):
    given = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        key_name="app",
        rights=["Manage", "Send", "Listen"],
        primary_key=CANARY,
    )
    with EmulatorProcess(["contoso"], data=tmp_path) as process:
        with _administration(process["contoso"].admin_connection_string) as client:
            client.create_queue("made", authorization_rules=[given])
        process.kill()
        process.start()
        later = int(time.time()) + 60
        token = sign("https://contoso/made", rule="app", key=CANARY, expires=later)
        url = f"http://127.0.0.1:{process['contoso'].admin_port}/made?api-version=2021-05"
        request = urllib.request.Request(url, headers={"Authorization": token})
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310 - the same
            assert CANARY in response.read().decode()


def _administration(text: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(text, transport=BlockingPlainTransport())


def test_an_open_process_requires_no_token(tmp_path: Path):
    file = tmp_path / "config.json"
    file.write_text(config_with_rules())
    with EmulatorProcess(["contoso"], config=file, open=True) as process:
        connection = BlockingConnection(
            f"amqp://127.0.0.1:{process['contoso'].amqp_port}", timeout=5, allowed_mechs="ANONYMOUS"
        )
        connection.create_sender("flights").send(Message(body="x"))
        connection.close()
