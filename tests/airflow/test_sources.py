"""What a send task sends: values, JSON lines, files, and what other tasks return; and what it says when it cannot."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from tests.airflow.conftest import AIRFLOW_HOME, CONN_ID, Pair, RunDag, results, run_task, states
from tests.airflow.queues import contents

BODY = "the-body-of-a-message-that-nobody-should-read"


def sending(**parameters: Any) -> ServiceBusPairSendOperator:
    return ServiceBusPairSendOperator(task_id="send", conn_id=CONN_ID, **{"entity": "flights", **parameters})


def bodies(pair: Pair, queue: str = "flights") -> list[str]:
    return [message.body for message in contents(pair.primary["contoso"], queue)]


def log_of(run_dag: RunDag, capfd: pytest.CaptureFixture[str], make: Callable[[], object]) -> str:
    """What the log says of tasks of which one fails."""
    from airflow.sdk import DAG

    with DAG("failing", schedule=None) as dag:
        make()
    assert "failed" in states(run_dag(dag)).values()
    printed = capfd.readouterr()
    return printed.out + printed.err


def test_a_text_of_json_lines_is_sent_with_what_the_lines_have_in_common(pair: Pair, run_dag: RunDag):
    result = run_task(
        run_dag,
        lambda: sending(
            json_lines='"{{ 6 * 7 }}"\n{"body": "own", "session_id": "one"}\n',
            defaults={"session_id": "{{ 'all' }}", "time_to_live": 600, "application_properties": {"part": 7}},
        ),
    )["send"]

    first, second = contents(pair.primary["contoso"], "flights")
    assert (result["sent"], first.body, first.session_id, second.session_id) == (2, "42", "all", "one")
    assert (first.time_to_live, first.properties) == (600, {"part": 7})


def test_a_time_of_the_defaults_schedules_what_has_no_own(pair: Pair, run_dag: RunDag):
    from azure.servicebus import ServiceBusClient

    run_task(
        run_dag,
        lambda: sending(
            messages=["later", {"body": "latest", "scheduled_enqueue_time": "2101-01-01T00:00:00"}],
            defaults={"scheduled_enqueue_time": "2100-01-01T01:00:00+01:00", "reply_to": "answers", "to": "crew"},
        ),
    )

    with (
        ServiceBusClient.from_connection_string(pair.primary["contoso"].connection_string) as client,
        client.get_queue_receiver("flights") as receiver,
    ):
        later, latest = receiver.peek_messages(max_message_count=10)
    assert later.scheduled_enqueue_time_utc == datetime(2100, 1, 1, tzinfo=UTC)
    assert latest.scheduled_enqueue_time_utc == datetime(2101, 1, 1, tzinfo=UTC)
    assert (later.reply_to, later.to) == ("answers", "crew")


def test_a_file_of_a_templated_path_is_sent_and_the_same_run_again_repeats_the_ids(
    pair: Pair, run_dag: RunDag, tmp_path: Path
):
    from airflow.sdk import DAG

    (tmp_path / "by_file.jsonl").write_text("\n".join(json.dumps(f"m{number}") for number in range(20)))
    moment = datetime(2026, 11, 1, tzinfo=UTC)

    for _ in range(2):
        with DAG("by_file", schedule=None) as dag:
            sending(path=f"{tmp_path}/{{{{ dag.dag_id }}}}.jsonl")
        run = run_dag(dag, logical_date=moment, run_after=moment)
        assert results(run)["send"]["sent"] == 20

    assert bodies(pair) == [f"m{number}" for number in range(20)] * 2
    ids = [message.message_id for message in contents(pair.primary["contoso"], "flights")]
    assert ids[:20] == ids[20:]
    assert len(set(ids)) == 20


def test_what_another_task_returns_is_sent_and_its_bodies_stay_in_that_tasks_xcom(pair: Pair, run_dag: RunDag):
    from airflow.sdk import DAG, task

    with DAG("handover", schedule=None) as dag:

        @task
        def messages() -> list[Any]:
            return [BODY, {"body": BODY, "subject": "shown"}]

        sending(messages=messages())

    run = run_dag(dag)

    assert states(run) == {"messages": "success", "send": "success"}
    assert results(run)["send"]["sent"] == 2
    assert bodies(pair) == [BODY, BODY]
    kept = _kept("rendered_task_instance_fields", "send")
    assert "2 messages, not shown" in kept
    assert BODY not in kept
    assert BODY not in _kept("xcom", "send")


def test_a_mapped_send_keeps_bodies_from_its_page_too(pair: Pair, run_dag: RunDag):
    from airflow.sdk import DAG, task

    with DAG("mapped", schedule=None) as dag:

        @task
        def batches() -> list[list[str]]:
            return [[BODY], [BODY, "b"]]

        ServiceBusPairSendOperator.partial(task_id="send", conn_id=CONN_ID, entity="flights").expand(messages=batches())

    assert set(states(run_dag(dag)).values()) == {"success"}
    assert sorted(bodies(pair)) == ["b", BODY, BODY]
    assert BODY not in _kept("rendered_task_instance_fields", "send")


def test_a_wrong_line_of_a_file_fails_the_task_before_anything_is_sent(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str], tmp_path: Path
):
    file = tmp_path / "messages.jsonl"
    file.write_text('"good"\n{"body": "bad", "time_to_live": -1}\n')

    log = log_of(run_dag, capfd, lambda: sending(path=str(file)))

    assert (
        f"{file}, line 2: time_to_live is -1: it must be a number of seconds from 1 to 4294967; nothing was sent" in log
    )
    assert bodies(pair) == []


@pytest.mark.usefixtures("pair")
def test_a_file_that_is_not_there_fails_the_task(run_dag: RunDag, capfd: pytest.CaptureFixture[str]):
    log = log_of(run_dag, capfd, lambda: sending(path="{{ 'missing' }}.jsonl"))

    assert re.search("path 'missing.jsonl' cannot be opened, FileNotFoundError: .*; nothing was sent", log)


@pytest.mark.usefixtures("pair")
def test_a_file_that_changed_after_it_was_checked_is_sent_as_far_as_it_is_in_order(
    run_dag: RunDag, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from servicebus_pair.operators import lines

    file = tmp_path / "messages.jsonl"
    good, bad = ["x"] * 2_500, ["x"] * 2_400 + [17]
    file.write_text("\n".join(map(json.dumps, good)))
    reads = lines.LinesFile.lines

    def changing(self: lines.LinesFile) -> Iterator[bytes]:
        yield from reads(self)
        file.write_text("\n".join(map(json.dumps, bad)))

    monkeypatch.setattr(lines.LinesFile, "lines", changing)

    log = log_of(run_dag, capfd, lambda: sending(path=str(file)))

    assert f"{file}, line 2401 is int: it must be a text or a mapping; 2000 messages for flights were accepted" in log
    assert "2000 by the primary and 0 by the backlog, all of the first 2000 among them; the others were not" in log


@pytest.mark.usefixtures("pair")
def test_a_send_that_ends_early_says_what_was_accepted(
    run_dag: RunDag, capfd: pytest.CaptureFixture[str], tmp_path: Path
):
    file = tmp_path / "messages.jsonl"
    file.write_text("\n".join([*[json.dumps("x")] * 2_500, json.dumps("y" * 300_000)]))

    log = log_of(run_dag, capfd, lambda: sending(path=str(file)))

    assert "SendError: 2000 messages for flights were accepted, 2000 by the primary and 0 by the backlog, all" in log
    assert re.search(r"message '\w{32}' takes 300\d{3} bytes: the link takes 262144", log)


@pytest.mark.parametrize("lines", [1_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_wrong_line_at_the_end_of_many_is_found_before_the_first_is_sent_and_few_are_in_memory(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str], tmp_path: Path, lines: int
):
    file = tmp_path / "messages.jsonl"
    with file.open("w") as written:
        written.writelines(f'{{"body": "{number}", "session_id": "s"}}\n' for number in range(1, lines))
        written.write('{"body": "last", "sesion_id": "s"}\n')
    log_of(run_dag, capfd, lambda: sending(path="missing.jsonl"))  # what the first task of a process takes is not asked
    before = _peak_megabytes(begin=True)

    log = log_of(run_dag, capfd, lambda: sending(path=str(file)))

    assert f"{file}, line {lines}: field 'sesion_id' is unknown: allowed are body, message_id, session_id," in log
    assert "nothing was sent" in log
    assert bodies(pair) == []
    # The lines alone are 38 MB, as values many times that.
    assert _peak_megabytes() - before < 30


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({}, "no source given: allowed is one of messages, json_lines, path"),
        ({"messages": ["a"], "path": "b"}, "messages and path given: allowed is one of"),
        ({"messages": ["a", {"bodi": "b"}]}, r"messages\[1\]: field 'bodi' is unknown"),
        ({"messages": "a"}, "messages is str: it must be a list"),
        ({"messages": ["a"], "entity": ""}, "entity is '': it must be the path of a queue or topic"),
        ({"messages": ["a"], "defaults": {"body": "b"}}, "defaults: field 'body' is unknown"),
        ({"messages": ["a"], "timeout": 0}, "timeout is 0: it must be a number of seconds above 0"),
    ],
)
def test_a_wrong_parameter_is_refused_when_the_dag_is_parsed(parameters: dict[str, Any], told: str):
    with pytest.raises(ConfigurationError, match=told):
        sending(**parameters)


def _kept(table: str, task_id: str) -> str:
    """What Airflow's database keeps of a task in a table, all tests of this file together."""
    with sqlite3.connect(AIRFLOW_HOME / "airflow.db") as database:
        rows = database.execute(f"SELECT * FROM {table} WHERE task_id = ?", (task_id,))  # noqa: S608  a table of ours
        return "\n".join(map(str, rows))


def _peak_megabytes(*, begin: bool = False) -> int:
    """The most memory that this process held since the beginning of the measurement."""
    if begin:
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) // 1024
