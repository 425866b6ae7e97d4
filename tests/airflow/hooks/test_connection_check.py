"""``test_connection`` from the hook, from Airflow's API and from its command line."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from servicebus_pair.hooks.servicebus_namespace import ServiceBusNamespaceHook
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import CONN_ID, KEY, PROJECT, Pair

PAGE = (PROJECT / "provider" / "docs" / "connections.md").read_text()

ALL = "reach yes, authenticate yes, send yes, listen yes, manage yes"
UNTRIED = "send not known (no queue to test), listen not known (no queue to test)"


def test_the_result_covers_both_namespaces_even_if_one_is_down(pair: Pair):
    hook = ServiceBusPairHook(CONN_ID)
    assert hook.test_connection() == (
        True,
        f"primary contoso: {ALL}; secondary contoso-dr: reach yes, authenticate yes, {UNTRIED}, manage yes",
    )
    pair.secondary.kill()
    succeeded, reported = hook.test_connection()
    assert not succeeded
    assert reported.startswith(f"primary contoso: {ALL}; secondary contoso-dr: reach no (")
    assert "Traceback" not in reported
    assert KEY not in reported


async def test_the_check_works_inside_a_running_event_loop(pair: Pair):  # noqa: ARG001  it must run
    assert ServiceBusPairHook(CONN_ID).test_connection()[0]


def test_an_unknown_connection_fails_the_check():
    assert ServiceBusPairHook("nowhere").test_connection() == (False, "The conn_id `nowhere` isn't defined")
    assert ServiceBusNamespaceHook("nowhere").test_connection() == (False, "The conn_id `nowhere` isn't defined")


def test_the_api_tests_an_unsaved_connection(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    """Airflow passes it as a URI, with an id of its own."""
    from airflow.models.connection import Connection

    connection = Connection(conn_id="unsaved", conn_type="servicebus_pair", extra=pair.extra())
    monkeypatch.setenv("AIRFLOW_CONN_UNSAVED", connection.get_uri())
    assert connection.test_connection()[0]


def airflow(words: str, **environment: str) -> tuple[int, str]:
    """Run the command line of Airflow, in a process of its own."""
    name, *arguments = shlex.split(words)
    done = subprocess.run(
        [str(Path(sys.executable).parent / name), *arguments],
        env={**os.environ, "AIRFLOW__CORE__TEST_CONNECTION": "Enabled", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("airflow_db", "pair")
def test_the_command_line_adds_and_tests_the_documented_connection(monkeypatch: pytest.MonkeyPatch):
    [shown] = re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)
    # Names that do not resolve.
    *added, tested = shown.replace(".servicebus", "-7f3a91c2.servicebus").splitlines()
    saved = os.environ["AIRFLOW_CONN_CONTOSO_PAIR"]
    monkeypatch.delenv("AIRFLOW_CONN_CONTOSO_PAIR")
    try:
        for line in added:
            assert airflow(line)[0] == 0
        code, reported = airflow(tested)
        assert (code, "Connection failed!" in reported) == (1, True), reported
        assert "primary contoso-7f3a91c2: reach no" in reported
        assert "secondary contoso-dr-7f3a91c2: reach no" in reported
        assert "Traceback" not in reported
    finally:
        for line in added:
            airflow(f"airflow connections delete {shlex.split(line)[3]}")
    code, reported = airflow(tested, AIRFLOW_CONN_CONTOSO_PAIR=saved)
    assert (code, "Connection success!" in reported) == (0, True), reported
    assert KEY not in reported
