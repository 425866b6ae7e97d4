"""``ServiceBusPairSendOperator``: sources of messages, and what errors report."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from servicebus_pair.airflow_runtime.message_spec import MessageSpec
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from tests.airflow.conftest import AIRFLOW_HOME, CONN_ID, LogOfFailure, Pair, RunDag, results, run_task, states
from tests.airflow.support.queues import contents
from tests.airflow.support.tasks import send
from tests.airflow.support.versions import needs

BODY = "the-body-of-a-message-that-must-not-be-disclosed"


def bodies(pair: Pair, queue: str = "flights") -> list[str]:
    return [message.body for message in contents(pair.primary["contoso"], queue)]


def test_json_lines_are_sent_with_defaults(pair: Pair, run_dag: RunDag):
    result = run_task(
        run_dag,
        lambda: send(
            json_lines='"{{ 6 * 7 }}"\n{"body": "own", "session_id": "one"}\n',
            defaults={"session_id": "{{ 'all' }}", "time_to_live": 600, "application_properties": {"part": 7}},
        ),
    )["send"]

    first, second = contents(pair.primary["contoso"], "flights")
    assert (result["sent"], first.body, first.session_id, second.session_id) == (2, "42", "all", "one")
    assert (first.time_to_live, first.properties) == (600, {"part": 7})


def test_a_templated_file_is_sent_and_a_rerun_repeats_the_ids(pair: Pair, run_dag: RunDag, tmp_path: Path):
    from airflow.sdk import DAG

    (tmp_path / "by_file.jsonl").write_text("\n".join(json.dumps(f"m{number}") for number in range(20)))
    date = datetime(2026, 11, 1, tzinfo=UTC)

    for _ in range(2):
        with DAG("by_file", schedule=None) as dag:
            send(path=f"{tmp_path}/{{{{ dag.dag_id }}}}.jsonl")
        run = run_dag(dag, logical_date=date, run_after=date)
        assert results(run)["send"]["sent"] == 20

    assert bodies(pair) == [f"m{number}" for number in range(20)] * 2
    ids = [message.message_id for message in contents(pair.primary["contoso"], "flights")]
    assert ids[:20] == ids[20:]
    assert len(set(ids)) == 20


def test_another_tasks_result_is_sent_and_its_bodies_stay_in_its_xcom(pair: Pair, run_dag: RunDag):
    from airflow.sdk import DAG, task

    with DAG("handover", schedule=None) as dag:

        @task
        def messages() -> list[Any]:
            return [BODY, {"body": BODY, "subject": "shown"}]

        send(messages=messages())

    run = run_dag(dag)

    assert states(run) == {"messages": "success", "send": "success"}
    assert results(run)["send"]["sent"] == 2
    assert bodies(pair) == [BODY, BODY]
    kept = _stored_fields("rendered_task_instance_fields", "send")
    assert "2 messages, not shown" in kept
    assert BODY not in kept
    assert BODY not in _stored_fields("xcom", "send")


def test_what_another_task_returned_is_no_template(pair: Pair, run_dag: RunDag):
    """A text from outside would otherwise read connections."""
    from airflow.sdk import DAG, task

    text = "{{ conn.contoso_pair.extra }}"
    with DAG("returned", schedule=None, default_args={"entity": "{{ 'flights' }}"}) as dag:

        @task
        def lists() -> list[list[str]]:
            return [[text]]

        @task
        def one() -> list[str]:
            return [text]

        @task
        def options() -> list[dict[str, Any]]:
            return [{"messages": [{"body": {"text": text}}], "defaults": {"subject": text}}]

        @task
        def arguments() -> list[dict[str, str]]:
            return [{"first": text}]

        @task.servicebus_send(servicebus_pair_conn_id=CONN_ID, entity="flights")
        def decorated(first: str, second: str) -> list[str]:
            return [first, second]

        common: dict[str, Any] = {"servicebus_pair_conn_id": CONN_ID}
        ServiceBusPairSendOperator(task_id="plain", **common, messages=one())
        ServiceBusPairSendOperator.partial(task_id="listed", **common).expand(messages=lists())
        ServiceBusPairSendOperator.partial(task_id="mapped", **common).expand_kwargs(options())
        decorated.partial(second="{{ 6 * 7 }}").expand_kwargs(arguments())
    run = run_dag(dag)

    assert set(states(run).values()) == {"success"}
    assert sorted(bodies(pair)) == ["42", json.dumps({"text": text}), *[text] * 3]


def test_a_mapped_send_redacts_bodies_too(pair: Pair, run_dag: RunDag):
    from airflow.sdk import DAG, task

    with DAG("mapped", schedule=None) as dag:

        @task
        def batches() -> list[list[str]]:
            return [[BODY], [BODY, "b"]]

        ServiceBusPairSendOperator.partial(task_id="send", servicebus_pair_conn_id=CONN_ID, entity="flights").expand(
            messages=batches()
        )

    assert set(states(run_dag(dag)).values()) == {"success"}
    assert sorted(bodies(pair)) == ["b", BODY, BODY]
    assert BODY not in _stored_fields("rendered_task_instance_fields", "send")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"path": "{{ 'missing' }}.jsonl"}, "path 'missing.jsonl' cannot be opened, FileNotFoundError"),
        ({"path": "{{ '' }}"}, "path is '': it must be a path or URL, such as s3://bucket/name"),
        ({"ledger": "/proc/nowhere"}, "ledger '/proc/nowhere' cannot be written, FileNotFoundError: No such file"),
    ],
)
@pytest.mark.usefixtures("pair")
def test_an_unusable_path_fails_the_task_before_sending(
    log_of_failure: LogOfFailure, parameters: dict[str, Any], message: str
):
    log = log_of_failure(lambda: send(**parameters))

    assert re.search(f"ConfigurationError: {message}.*; nothing was sent", log)


@pytest.mark.usefixtures("fresh_state")
@pytest.mark.parametrize(
    ("executor", "spool", "warned"),
    [
        ("CeleryExecutor", "/mnt/spool", True),
        ("hot:company.executors.FleetExecutor", "/mnt/spool", True),
        ("CeleryExecutor", "s3://bucket/spool", False),
        ("CeleryExecutor", None, False),
        ("LocalExecutor", "/mnt/spool", False),
        (None, "/mnt/spool", False),
    ],
)
def test_workers_that_may_have_folders_of_their_own_as_spools_are_warned_of(
    executor: str | None, spool: str | None, warned: bool, capfd: pytest.CaptureFixture[str]
):
    """SPEC section 10: what is in such a folder can only be seen on that worker."""
    send(executor=executor)._warn_of_separate_spools(spool)
    assert ("spool is /mnt/spool, a folder, and tasks run in" in capfd.readouterr().out) is warned


@pytest.mark.usefixtures("pair")
def test_an_empty_file_sends_nothing_and_logs_it(run_dag: RunDag, capfd: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "empty.jsonl").write_text("\n")

    assert run_task(run_dag, lambda: send(path=str(tmp_path / "empty.jsonl")))["send"]["sent"] == 0
    assert "entity=flights: there was no message to send" in capfd.readouterr().out


@pytest.mark.usefixtures("pair")
def test_a_failed_send_reports_what_was_accepted(log_of_failure: LogOfFailure, tmp_path: Path):
    file = tmp_path / "messages.jsonl"
    file.write_text("\n".join([*[json.dumps("x")] * 2_500, json.dumps("y" * 300_000)]))

    log = log_of_failure(lambda: send(path=str(file)))

    assert "SendError: 2000 messages for flights were accepted, 2000 by the primary and 0 by the backlog, inc" in log
    assert re.search(r"message '\w{32}' takes 300\d{3} bytes: the link takes 262144", log)


def test_json_bodies_and_properties_of_every_type_arrive(pair: Pair, run_dag: RunDag):
    from azure.servicebus import ServiceBusClient

    properties: dict[str, Any] = {
        "binary": b"\x00\xff",
        "id": UUID(int=7),
        "at": datetime(2026, 12, 1, 10, tzinfo=UTC),
        "text": "t",
        "number": 5,
        "share": 0.5,
        "flag": True,
    }
    message = {"body": {"gate": 7, "open": [True, None]}, "application_properties": properties}

    run_task(run_dag, lambda: send(messages=[message]))

    connection = pair.primary["contoso"].connection_string
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_receiver("flights") as queue:
        [received] = queue.peek_messages()
    assert json.loads(b"".join(received.body)) == message["body"]
    assert received.content_type == "application/json"
    milliseconds = int(properties["at"].timestamp() * 1000)
    raw: dict[Any, Any] = dict(received.application_properties or {})
    arrived = {name.decode(): value for name, value in raw.items()}
    assert arrived == {**properties, "at": milliseconds, "text": b"t"}


@pytest.fixture
def _unknown_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the service reject what the sender does not know to be too large."""
    from servicebus_pair.core.protocol import amqp_message

    monkeypatch.setattr(amqp_message, "MAX_PROPERTY_BYTES", 2**30)


POISON = {"body": "poison", "message_id": "p", "application_properties": {"large": "x" * 33 * 1024}}


@pytest.mark.usefixtures("_unknown_limit")
def test_a_refused_message_fails_the_task_at_once_and_everything_around_it_is_sent_once(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    """SPEC section 4: a rejection is a verdict on the message; no retry changes it."""
    from airflow.sdk import DAG

    with DAG("refused", schedule=None) as dag:
        send(messages=["a", POISON, "b"], retries=3)
    [instance] = run_dag(dag).get_task_instances()

    assert (instance.state, instance.try_number) == ("failed", 1)
    assert bodies(pair) == ["a", "b"]
    printed = capfd.readouterr().out
    assert "the service refused 1 messages for flights (message ids p) and accepted the other 2" in printed


@needs("task_state")
@pytest.mark.usefixtures("_unknown_limit")
def test_a_retry_does_not_send_a_refused_message_again(pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch):
    from airflow.sdk import DAG, task

    from servicebus_pair.operators._support import send_task

    monkeypatch.setattr(send_task, "_MAX_CHUNK_MESSAGES", 1)
    tries: list[int] = []

    def yielding() -> Iterator[Any]:
        tries.append(1)
        yield POISON
        if len(tries) == 1:
            raise RuntimeError("the source of the messages failed")
        yield {"body": "good", "message_id": "g"}

    built: list[str] = []

    def build(spec: MessageSpec) -> Any:
        built.append(spec.message_id)
        return build_message(spec)

    build_message = MessageSpec.build
    monkeypatch.setattr(MessageSpec, "build", build)
    with DAG("refused_before", schedule=None) as dag:
        task.servicebus_send(task_id="send", servicebus_pair_conn_id=CONN_ID, entity="flights", retries=3)(yielding)()
    [instance] = run_dag(dag).get_task_instances()

    assert (instance.state, instance.try_number, built) == ("failed", 2, ["p", "g"])
    assert bodies(pair) == ["good"]


@pytest.mark.parametrize("lines", [1_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_large_file_is_validated_before_sending_with_bounded_memory(
    pair: Pair, log_of_failure: LogOfFailure, tmp_path: Path, lines: int
):
    file = tmp_path / "messages.jsonl"
    with file.open("w") as written:
        written.writelines(f'{{"body": "{number}", "session_id": "s"}}\n' for number in range(1, lines))
        written.write('{"body": "last", "sesion_id": "s"}\n')
    log_of_failure(lambda: send(path="missing.jsonl"))  # so that memory of the first task in the process is not counted
    before = _peak_megabytes(begin=True)

    log = log_of_failure(lambda: send(path=str(file)))

    assert f"{file}, line {lines}: field 'sesion_id' is unknown: allowed are body, message_id, session_id," in log
    assert "nothing was sent" in log
    assert bodies(pair) == []
    # The lines alone are 38 MB, as values many times that.
    assert _peak_megabytes() - before < 30


def _stored_fields(table: str, task_id: str) -> str:
    """The rows of a task in a table of Airflow's database, from all tests of this file."""
    with sqlite3.connect(AIRFLOW_HOME / "airflow.db") as database:
        rows = database.execute(f"SELECT * FROM {table} WHERE task_id = ?", (task_id,))  # noqa: S608  a table of ours
        return "\n".join(map(str, rows))


def _peak_megabytes(*, begin: bool = False) -> int:
    """The most memory that this process held since the beginning of the measurement."""
    if begin:
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) // 1024
