"""The backlog comes home by Spark (SPEC section 6): at least once, counted, and refused before any task begins."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import AccessRights, AuthorizationRule
from pyspark.sql import SparkSession

from servicebus_pair.spark.jobs import drain as job
from tests.spark.conftest import CANARY, Pair, Session
from tests.spark.diverting import OwnBacklog, own_backlog
from tests.spark.recorded import syphoned


@pytest.fixture
def own(pair: Pair, tmp_path: Path) -> OwnBacklog:
    return own_backlog(pair, tmp_path, f"own-{uuid.uuid4().hex[:8]}")


def run(pair: Pair, home: Path, **changes: str | None) -> int:
    """Run the job; a changed argument that is ``None`` is a flag."""
    given: Mapping[str, str | None] = {
        "--pair": pair.reference,
        "--ledger": str(home / "ledger"),
        "--run": "home",
        "--report": str(home / "drain.json"),
        **{f"--{name.replace('_', '-')}": value for name, value in changes.items()},
    }
    return job.main([word for option in given.items() for word in option if word is not None])


def report(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "drain.json").read_text())
    return found


def test_what_was_diverted_comes_home_and_the_ledger_has_it(
    session: Session, own: OwnBacklog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    one, two = own.fresh_queue(), own.fresh_queue()
    ids = {queue: own.divert(tmp_path / "ledger", queue, count) for queue, count in ((one, 300), (two, 41))}
    assert run(own, tmp_path, entities=one) == 0
    assert report(tmp_path)["moved"] == {one: 300}
    assert len(own.held_by_backlog()) == 41, "what was not asked for stays"
    assert run(own, tmp_path) == 0
    assert own.held_by_backlog() == []
    assert {queue: set(own.arrived(queue)) for queue in (one, two)} == ids
    found = report(tmp_path)
    assert (found["moved"], found["left"], found["lost_attempts"], found["tasks"]) == ({two: 41}, 0, 0, 2)
    assert (found["repeated"], found["duplicates_possible"]) == (0, 0)
    operations = found["operations"]
    assert (operations["receives"], operations["sends"], operations["settlements"]) == (41, 41, 41)
    assert "drained 41 messages, 0 dead-lettered, 0 left" in capsys.readouterr().out
    assert syphoned(tmp_path / "ledger") == 341, "the ledger has each of them, for reconcile to judge"
    assert CANARY not in session.event_log()


@pytest.mark.usefixtures("spark")
def test_a_rate_is_shared_by_the_tasks(own: OwnBacklog, tmp_path: Path):
    queue = own.fresh_queue()
    own.divert(tmp_path / "ledger", queue, 200)
    assert run(own, tmp_path, rate="50") == 0
    times = sorted(
        record["at"]
        for file in (tmp_path / "ledger").glob("*.jsonl")
        for record in map(json.loads, file.open())
        if record["kind"] == "syphoned"
    )
    # Each of the two tasks begins with nothing and saves up no more than a second's worth.
    assert len(times) == 200
    assert times[-1] - times[0] >= 200 / 50 - 2


@pytest.mark.usefixtures("spark")
def test_what_can_never_be_delivered_is_dead_lettered_and_said(own: OwnBacklog, tmp_path: Path):
    queue = own.fresh_queue()
    own.divert(tmp_path / "ledger", queue, 5)
    own.divert(tmp_path / "ledger", "gone", 3)
    assert run(own, tmp_path) == 0
    found = report(tmp_path)
    assert (found["moved"], found["dead_lettered"], found["left"]) == ({queue: 5}, {"EntityNotFound": 3}, 0)
    assert len(own.held_by_backlog()) == 3
    assert run(own, tmp_path, redrive=None, entities="gone") == 1, "the cause is not mended"
    assert report(tmp_path)["left"] == 3


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_what_is_left_is_said_by_the_exit_status(own: OwnBacklog, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    well, closed = own.fresh_queue(), own.fresh_queue()
    own.divert(tmp_path / "ledger", well, 4)
    own.divert(tmp_path / "ledger", closed, 6)
    own.allow_sending(closed, allowed=False)
    assert run(own, tmp_path) == 1
    found = report(tmp_path)
    assert (found["moved"], found["left"]) == ({well: 4}, 6)
    assert closed in found["failures"]
    assert "6 messages are left" in capsys.readouterr().err
    own.allow_sending(closed, allowed=True)
    assert run(own, tmp_path) == 0
    assert report(tmp_path)["moved"] == {closed: 6}


Change = Callable[[dict[str, Any]], dict[str, Any]]
LISTENER = "bGlzdGVucyBvbmx5LCBhbmQgbm90aGluZyBlbHNlLg=="
UNREACHABLE = "127.0.0.1:1"
REFUSED: dict[str, tuple[Change, dict[str, str]]] = {
    "rate is 0.0: it must be more than 0": (lambda settings: settings, {"rate": "0"}),
    "tasks is 0: it must be at least 1": (lambda settings: settings, {"tasks": "0"}),
    "queue 'orders' is not a backlog queue of this pair": (lambda settings: settings, {"queues": "orders"}),
    "ledger '/dev/null' cannot be a folder": (lambda settings: settings, {"ledger": "/dev/null"}),
    "ledger is 'abfss://c@a/ledger', which is a URL": (lambda settings: settings, {"ledger": "abfss://c@a/ledger"}),
    "the backlog cannot be read (EntityNotFoundError": (
        lambda settings: settings | {"primary_namespace": "never-provisioned"},
        {},
    ),
    "the backlog cannot be read (Unreachable": (
        lambda settings: settings | {"secondary_connection_string": moved(settings["secondary_connection_string"])},
        {},
    ),
    "the primary does not answer: ": (
        lambda settings: settings | {"primary_connection_string": moved(settings["primary_connection_string"])},
        {},
    ),
    # What the SDK makes of a wrong key, and of one that may listen only, is the same.
    "refuses these credentials the right to send: q-": (
        lambda settings: settings | {"primary_connection_string": known_as("listener", LISTENER, settings)},
        {},
    ),
    "the right to send: q-": (
        lambda settings: settings | {"primary_connection_string": known_as("nobody", "wrong", settings)},
        {},
    ),
}


def known_as(name: str, key: str, settings: dict[str, Any]) -> str:
    """Return the connection string of the primary with another key."""
    changed = settings["primary_connection_string"].replace("RootManageSharedAccessKey", name).replace(CANARY, key)
    return str(changed)


def moved(connection_string: str) -> str:
    """Return the connection string with an address where nobody listens."""
    first, _, rest = connection_string.partition(";")
    assert first.startswith("Endpoint=sb://")
    return f"Endpoint=sb://{UNREACHABLE};{rest}"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("says", REFUSED)
def test_what_cannot_work_is_refused_before_any_task(
    says: str, own: OwnBacklog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    change, arguments = REFUSED[says]
    rules = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            rights=[AccessRights.LISTEN],
            key_name="listener",
            primary_key=LISTENER,
            secondary_key=LISTENER,
        )
    ]
    own.divert(tmp_path / "ledger", own.fresh_queue(authorization_rules=rules), 2)
    records = set((tmp_path / "ledger").iterdir())
    own.file.write_text(json.dumps(change(own.settings)))
    (tmp_path / "drain.json").write_text("of an earlier drain")
    assert run(own, tmp_path, **arguments) == 2
    assert says in capsys.readouterr().err
    assert set((tmp_path / "ledger").iterdir()) == records, "no task opened a file of the ledger"
    assert not (tmp_path / "drain.json").exists()


@pytest.mark.usefixtures("spark")
def test_a_task_that_fails_for_good_is_told_in_one_line_and_by_the_exit_status(
    own: OwnBacklog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    own.divert(tmp_path / "ledger", own.fresh_queue(), 2)
    monkeypatch.setenv("ONLY_OF_THE_DRIVER", own.file.read_text())  # executors have the environment of before
    (tmp_path / "drain.json").write_text("of an earlier drain")
    arguments = ["--pair", "env:ONLY_OF_THE_DRIVER", "--ledger", str(tmp_path / "ledger"), "--run", "home"]
    assert job.main([*arguments, "--report", str(tmp_path / "drain.json")]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("drain: ")]
    assert "env:ONLY_OF_THE_DRIVER names an environment variable that is not set on this executor: hand" in line
    assert line.endswith("what was moved stays moved")
    assert not (tmp_path / "drain.json").exists()
    assert len(own.held_by_backlog()) == 2


def test_speculation_is_refused_since_it_would_send_twice(
    spark: SparkSession, own: OwnBacklog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    configured = spark.sparkContext._conf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "session", lambda _: spark)  # the program's own session switches it off
        configured.set("spark.speculation", "true")
        try:
            assert run(own, tmp_path) == 2
        finally:
            configured.set("spark.speculation", "false")
    assert "a speculative task would send twice" in capsys.readouterr().err
