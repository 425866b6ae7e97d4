"""The drain job (SPEC section 6): at least once, counted, and rejected by preflight checks before any task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from servicebus_pair.spark.jobs import drain as job
from tests.spark.conftest import CANARY, Pair, Session
from tests.spark.support.job_files import arguments, read_json
from tests.spark.support.ledger_files import records, syphoned
from tests.spark.support.own_backlog import OwnBacklog, own_backlog


@pytest.fixture
def own(pair: Pair, tmp_path: Path) -> OwnBacklog:
    return own_backlog(pair, tmp_path)


def run(pair: Pair, folder: Path, **changes: str | None) -> int:
    """Run the job; a changed argument that is ``None`` is a flag."""
    options: Mapping[str, str | None] = {
        "--pair": pair.reference,
        "--ledger": str(folder / "ledger"),
        "--run": "drain",
        "--report": str(folder / "drain.json"),
        **{f"--{name.strip('_').replace('_', '-')}": value for name, value in changes.items()},
    }
    return job.main(arguments(options))


def test_diverted_messages_are_drained_and_recorded(
    session: Session, own: OwnBacklog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    one, two = own.fresh_queue(), own.fresh_queue()
    ids = {queue: own.divert(tmp_path / "ledger", queue, count) for queue, count in ((one, 300), (two, 41))}
    assert run(own, tmp_path, entities=one) == 0
    assert read_json(tmp_path / "drain.json")["moved"] == {one: 300}
    assert len(own.peek_backlog()) == 41, "other destinations are not drained"
    assert run(own, tmp_path, tasks="5") == 0
    assert own.peek_backlog() == []
    assert {queue: set(own.arrived(queue)) for queue in (one, two)} == ids
    found = read_json(tmp_path / "drain.json")
    assert (found["moved"], found["left"], found["lost_attempts"], found["tasks"]) == ({two: 41}, 0, 0, 5)
    assert (found["repeated"], found["duplicates_possible"]) == (0, 0)
    operations = found["operations"]
    assert (operations["receives"], operations["sends"], operations["settlements"]) == (41, 41, 41)
    assert "drained 41 messages, 0 dead-lettered, 0 remaining" in capsys.readouterr().out
    assert syphoned(tmp_path / "ledger") == 341, "each is recorded for reconcile"
    assert CANARY not in session.event_log()


@pytest.mark.usefixtures("spark")
def test_section_6_sessions_are_drained_in_order_with_the_others(pair: Pair, tmp_path: Path):
    own = own_backlog(pair, tmp_path, ordering="session")
    queue = own.fresh_queue()
    names = ("a", "b", "c")
    ids = {name: [f"{queue}-{name}-{number}" for number in range(30)] for name in names}
    assert all(own.divert_session(queue, 30, session=name) == set(ids[name]) for name in names)
    assert run(own, tmp_path) == 0
    found = read_json(tmp_path / "drain.json")
    assert (found["moved"], found["left"], found["tasks"]) == ({queue: 90}, 0, 4)
    arrived = [found.key[1] for found in own.peek(queue)]
    assert {name: [each for each in arrived if each in ids[name]] for name in names} == ids


@pytest.mark.usefixtures("spark")
def test_rate_is_divided_among_tasks(own: OwnBacklog, tmp_path: Path):
    queue = own.fresh_queue()
    own.divert(tmp_path / "ledger", queue, 200)
    assert run(own, tmp_path, rate="50") == 0
    times = sorted(record["at"] for record in records(tmp_path / "ledger") if record["kind"] == "syphoned")
    # Each of the two tasks starts with an empty token bucket that holds at most one second's worth.
    assert len(times) == 200
    assert times[-1] - times[0] >= 200 / 50 - 2


@pytest.mark.usefixtures("spark")
def test_undeliverable_messages_are_dead_lettered_and_reported(own: OwnBacklog, tmp_path: Path):
    queue = own.fresh_queue()
    own.divert(tmp_path / "ledger", queue, 5)
    own.divert(tmp_path / "ledger", "gone", 3)
    assert run(own, tmp_path) == 0
    found = read_json(tmp_path / "drain.json")
    assert (found["moved"], found["dead_lettered"], found["left"]) == ({queue: 5}, {"EntityNotFound": 3}, 0)
    assert len(own.peek_backlog()) == 3
    assert run(own, tmp_path, redrive=None, entities="gone") == 1, "the destination is still missing"
    assert read_json(tmp_path / "drain.json")["left"] == 3


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_remaining_messages_set_exit_status_1(own: OwnBacklog, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    well, closed = own.fresh_queue(), own.fresh_queue()
    own.divert(tmp_path / "ledger", well, 4)
    own.divert(tmp_path / "ledger", closed, 6)
    own.allow_sending(closed, allowed=False)
    assert run(own, tmp_path) == 1
    found = read_json(tmp_path / "drain.json")
    assert (found["moved"], found["left"]) == ({well: 4}, 6)
    assert closed in found["failures"]
    assert "6 messages remain" in capsys.readouterr().err
    own.allow_sending(closed, allowed=True)
    assert run(own, tmp_path) == 0
    assert read_json(tmp_path / "drain.json")["moved"] == {closed: 6}


REJECTED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "rate is 0.0: it must be more than 0": ({}, {"rate": "0"}),
    "tasks is 0: it must be at least 1": ({}, {"tasks": "0"}),
    "queue 'orders' is not a backlog queue of this pair": ({}, {"queues": "orders"}),
    "ledger folder '/dev/null' cannot be created": ({}, {"ledger": "/dev/null"}),
    "ledger is a URL of 'nosuchstore', which cannot be opened": ({}, {"ledger": "nosuchstore://a/ledger"}),
    "the backlog cannot be read (EntityNotFoundError": ({"primary_namespace": "never-provisioned"}, {}),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("error", REJECTED)
def test_invalid_argument_is_rejected_before_any_task(
    error: str, own: OwnBacklog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    changes, options = REJECTED[error]
    own.file.write_text(json.dumps(own.settings | changes))
    (tmp_path / "drain.json").write_text("of an earlier drain")
    assert run(own, tmp_path, **options) == 2
    assert error in capsys.readouterr().err
    assert not list(tmp_path.glob("ledger/*")), "no task opened a file of the ledger"
    assert not (tmp_path / "drain.json").exists()


@pytest.mark.usefixtures("spark")
def test_failed_task_prints_one_line_and_sets_exit_status_1(
    own: OwnBacklog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    own.divert(tmp_path / "ledger", own.fresh_queue(), 2)
    monkeypatch.setenv("DRIVER_ONLY", own.file.read_text())  # executors were started before
    (tmp_path / "drain.json").write_text("of an earlier drain")
    assert run(own, tmp_path, pair_="env:DRIVER_ONLY") == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("drain: ")]
    assert "env:DRIVER_ONLY names an environment variable that is not set on this executor: pass" in line
    assert line.endswith("moved messages stay moved")
    assert not (tmp_path / "drain.json").exists()
    assert len(own.peek_backlog()) == 2
