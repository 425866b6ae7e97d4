"""Keys, clients and open access of an emulator process."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from servicebus_emulator import EmulatorProcess
from servicebus_emulator.security.settings import KEY_VARIABLE
from tests.emulator.support.authorizers import CANARY, config_with_rules
from tests.emulator.support.command import refusal_of


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


def test_an_open_process_requires_no_token(tmp_path: Path):
    file = tmp_path / "config.json"
    file.write_text(config_with_rules())
    with EmulatorProcess(["contoso"], config=file, open=True) as process:
        connection = BlockingConnection(
            f"amqp://127.0.0.1:{process['contoso'].amqp_port}", timeout=5, allowed_mechs="ANONYMOUS"
        )
        connection.create_sender("flights").send(Message(body="x"))
        connection.close()
