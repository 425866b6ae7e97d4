"""``test_connection``: from the hook, from Airflow's API and from its command line."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from servicebus_pair.hooks.servicebus_namespace import ServiceBusNamespaceHook
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import CONN_ID, KEY, PROJECT, Pair

PAGE = (PROJECT / "provider" / "docs" / "connections.md").read_text()

ALL = "reach yes, authenticate yes, send yes, listen yes, manage yes"
UNTRIED = "send not known (no queue to try on), listen not known (no queue to try on)"
# As the hook promises.
LONGEST = 20


@pytest.mark.apart
def test_each_namespace_is_told_of_and_a_killed_one_too(pair: Pair):
    hook = ServiceBusPairHook(CONN_ID)
    assert hook.test_connection() == (
        True,
        f"primary contoso: {ALL}; secondary contoso-dr: reach yes, authenticate yes, {UNTRIED}, manage yes",
    )
    pair.secondary.kill()
    succeeded, told = hook.test_connection()
    assert not succeeded
    assert told.startswith(f"primary contoso: {ALL}; secondary contoso-dr: reach no (")
    assert "Traceback" not in told
    assert KEY not in told


@pytest.mark.apart
def test_silent_namespaces_do_not_hold_it_up(pair: Pair):
    pair.primary.freeze()
    pair.secondary.freeze()
    began = time.monotonic()
    succeeded, told = ServiceBusPairHook(CONN_ID).test_connection()
    pair.primary.restore()
    pair.secondary.restore()
    assert time.monotonic() - began < LONGEST
    assert (succeeded, told.count("reach no (no answer within 6 s)")) == (False, 2), told


async def test_it_may_be_asked_where_an_event_loop_runs(pair: Pair):  # noqa: ARG001  it must run
    assert ServiceBusPairHook(CONN_ID).test_connection()[0]


def test_an_unknown_connection_is_told():
    assert ServiceBusPairHook("nowhere").test_connection() == (False, "The conn_id `nowhere` isn't defined")
    assert ServiceBusNamespaceHook("nowhere").test_connection() == (False, "The conn_id `nowhere` isn't defined")


def test_the_button_of_the_page_tests_a_pair_that_is_not_saved_yet(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    """Airflow hands it over as a URI, under an id of its own."""
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
@pytest.mark.usefixtures("airflow_db")
def test_the_command_line_adds_and_tests_what_the_page_shows(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    [shown] = re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)
    # Under names that no network knows.
    *added, tested = shown.replace("servicebus.windows.net", "servicebus.invalid").splitlines()
    monkeypatch.delenv(f"AIRFLOW_CONN_{CONN_ID.upper()}")
    try:
        for line in added:
            assert airflow(line)[0] == 0
        code, told = airflow(tested)
        assert (code, "Connection failed!" in told) == (1, True), told
        assert "primary contoso: reach no" in told
        assert "secondary contoso-dr: reach no" in told
        assert "Traceback" not in told
    finally:
        for line in added:
            airflow(f"airflow connections delete {shlex.split(line)[3]}")
    code, told = airflow(tested, AIRFLOW_CONN_CONTOSO_PAIR=pair.connection())
    assert (code, "Connection success!" in told) == (0, True), told
    assert KEY not in told
