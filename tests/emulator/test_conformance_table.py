"""The table of what was run against the embedded Service Bus says what `make conformance` prints."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.conformance.clients.matrix import HERE, Client, known_clients

README = Path(__file__).parents[2] / "provider" / "servicebus_emulator" / "README.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in README.read_text("utf-8").partition("### What was run against it")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| what")
]
NAMES = {
    "python-qpid-proton, BlockingConnection": "python-qpid-proton's `BlockingConnection`",
    "Celery worker over kombu": "Celery with a worker of its own",
    "Airflow's official Azure provider": "the operators of Airflow's official Azure provider",
    "bytes as .NET opens": "the bytes with which .NET opens",
}


def row_of(client: Client) -> list[str]:
    """Return the row that names a client, or its distribution with its version among others."""
    distribution, _, version = client.name.partition(" ")
    shown = "the newest" if version in {"newest", "latest"} else version.partition(" ")[0]
    [row] = [
        row
        for row in ROWS
        if row[0].startswith(NAMES.get(client.name, f"{distribution} "))
        and (client.name in NAMES or re.search(rf"\b{re.escape(shown)}\b", row[0]))
    ]
    return row


@pytest.mark.parametrize("client", known_clients(), ids=lambda client: client.name)
def test_each_client_is_listed_with_the_number_of_its_steps(client: Client):
    steps = len(re.findall(r'^ *(?:with|await) step\("', (HERE / client.script).read_text("utf-8"), flags=re.MULTILINE))
    assert row_of(client)[1].removesuffix(" each") == f"{steps} of {steps}"


def test_the_tests_that_cannot_pass_are_counted():
    expected = tomllib.loads((HERE.parent / "expected.toml").read_text("utf-8"))
    [row] = [row for row in ROWS if row[0].endswith("messaging")]
    assert f"{len(expected['cannot-pass'])} contradict their own version" in row[2]
    assert (expected["differs"], expected["needs-azure"]) == ({}, {})
