"""Bad input ends in one clear error, before anything happens where that can be, that says what was and was not sent."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.operators.cleanup import ServiceBusPairCleanupOperator
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.backlog import ServiceBusBacklogSensor
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from tests.airflow.conftest import CONN_ID, KEY, RunDag, results, states
from tests.airflow.keyed import SIDES, extra_of, keyed_namespaces, known_by

if TYPE_CHECKING:
    from servicebus_emulator import EmulatorProcess, ServedNamespace

NOWHERE = "Endpoint=sb://{}.invalid;SharedAccessKeyName=app;SharedAccessKey=key;UseDevelopmentEmulator=true;"

Define: TypeAlias = Callable[..., None]
Fail: TypeAlias = Callable[..., str]
KeyOf: TypeAlias = Callable[[str, str], dict[str, str]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    """Two namespaces; nothing here changes them."""
    with keyed_namespaces(tmp_path_factory.mktemp("bad_input")) as process:
        yield process


@pytest.fixture
def define(both: EmulatorProcess, monkeypatch: pytest.MonkeyPatch, fresh_state: None) -> Define:  # noqa: ARG001  order
    """Define the connection, in order but for what is said."""

    def change(**changes: Any) -> None:
        connection = {"conn_type": "servicebus_pair", "extra": {**extra_of(both), **changes}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps(connection))

    change()
    return change


@pytest.fixture
def key_of(both: EmulatorProcess) -> KeyOf:
    """Know one namespace by the key of a rule."""
    return lambda side, rule: known_by(both, side, rule)


@pytest.fixture
def fail(run_dag: RunDag, capfd: pytest.CaptureFixture[str]) -> Fail:
    """Run one task that fails; its log."""
    from airflow.sdk import DAG

    def run(make: Callable[[], object]) -> str:
        with DAG("bad_input", schedule=None) as dag:
            make()
        assert set(states(run_dag(dag)).values()) == {"failed"}
        printed = capfd.readouterr()
        assert KEY not in printed.out + printed.err
        return printed.out + printed.err

    return run


def send(**parameters: Any) -> ServiceBusPairSendOperator:
    given: Mapping[str, Any] = {"messages": ["a"]} if not {"json_lines", "path"} & set(parameters) else {}
    return ServiceBusPairSendOperator(task_id="task", conn_id=CONN_ID, **{"entity": "flights", **given, **parameters})


def drain(**parameters: Any) -> ServiceBusPairSyphonOperator:
    """As tasks are that look after a pair: a failure is tried again."""
    again = {"retries": 1, "retry_delay": timedelta(seconds=1)}
    return ServiceBusPairSyphonOperator(task_id="task", conn_id=CONN_ID, **again, **parameters)


def held(both: EmulatorProcess) -> int:
    """How many messages all queues hold."""
    from servicebus_pair.core import Endpoint
    from servicebus_pair.core.administration import ServiceBusAdministration

    async def count(served: ServedNamespace) -> int:
        endpoint = Endpoint.from_connection_string(
            served.connection_string, namespace=served.name, administration=f"{served.host}:{served.admin_port}"
        )
        async with ServiceBusAdministration(endpoint) as administration:
            return sum(each.active + each.dead_lettered for each in await administration.depths(""))

    return sum(asyncio.run(count(both[name])) for name in SIDES.values())


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("failover_interval", "soon", "setting failover_interval is 'soon': it must be a number"),
        ("failover_interval", 3601, "failover_interval is 1:00:01: allowed is 0:00:00 .. 1:00:00"),
        ("failover_intervall", 5, "setting 'failover_intervall' is unknown: allowed are backlog_queue_count, close"),
        ("primary_connection_string", "no", "setting primary_connection_string: connection string: Endpoint is mis"),
        ("primary_transport", "udp", "setting primary_transport is 'udp': allowed are amqp, websocket"),
    ],
)
def test_a_wrong_option_of_the_connection_is_named_with_its_value_and_what_is_allowed(
    define: Define, fail: Fail, setting: str, value: Any, told: str
):
    define(**{setting: value})

    log = fail(send)

    assert f"ConfigurationError: connection {CONN_ID}: {told}" in log
    assert "; nothing was sent" in log


@pytest.mark.usefixtures("fresh_state")
def test_an_unknown_connection_is_named(fail: Fail):
    log = fail(lambda: ServiceBusPairSendOperator(task_id="task", conn_id="nowhere", entity="flights", messages=["a"]))

    assert "The conn_id `nowhere` isn't defined" in log
    assert "nothing was sent" in log


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: send(entity="fligths"),
            "nothing was sent to fligths: open a link to fligths on contoso: MessagingEntityNotFoundError",
        ),
        (
            lambda: send(entity="seats"),
            "nothing was sent to seats: send to seats on contoso: ServiceBusError: message 0 of 1 has no session id",
        ),
    ],
    ids=["unknown entity", "session missing"],
)
@pytest.mark.usefixtures("define")
def test_what_the_primary_refuses_is_told_and_is_no_outage(
    both: EmulatorProcess, fail: Fail, make: Callable[[], object], told: str
):
    before = held(both)

    assert f"SendError: {told}" in fail(make)
    assert held(both) == before


@pytest.mark.usefixtures("define")
def test_a_message_without_a_session_behind_one_with_a_session_is_the_only_one_not_sent(fail: Fail):
    log = fail(lambda: send(entity="seats", messages=[{"body": "a", "session_id": "22L"}, "b"]))

    assert "SendError: 1 messages for seats were accepted, 1 by the primary and 0 by the backlog" in log
    assert "the others were not: send to seats on contoso: ServiceBusError: message 0 of 1 has no session id" in log


def test_a_key_that_may_only_listen_sends_nothing_and_makes_no_outage(
    define: Define, both: EmulatorProcess, key_of: KeyOf, fail: Fail
):
    before = held(both)
    define(**key_of("primary", "listener"))

    log = fail(send)
    waited = fail(lambda: ServiceBusPrimaryHealthSensor(task_id="task", conn_id=CONN_ID, entities=["flights"]))

    assert "SendError: nothing was sent to flights: open a link to flights on contoso: ServiceBusAuthorization" in log
    assert "'Send' claim(s) are required" in log
    assert "the primary answers and refuses flights (AuthorizationError): name entities that exist there" in waited
    assert held(both) == before


def test_an_outage_with_a_backlog_that_may_not_be_sent_to_names_both_failures(
    define: Define, key_of: KeyOf, fail: Fail
):
    primary = NOWHERE.format("nowhere")
    define(**{**key_of("secondary", "listener"), "primary_connection_string": primary})

    log = fail(send)

    assert re.search("NoBacklogQueueError: nothing was sent to flights: flights is failed over .*not known", log)
    assert "'Send' claim(s) are required" in log


def test_a_key_that_may_only_send_drains_nothing_and_manages_nothing(define: Define, key_of: KeyOf, fail: Fail):
    define(**key_of("secondary", "sender"))

    drained = fail(lambda: ServiceBusPairSyphonOperator(task_id="task", conn_id=CONN_ID))
    assert "AuthorizationError: peek at contoso/x-servicebus-transfer/" in drained
    assert "'Listen' claim(s) are required" in drained
    for make in (
        lambda: ServiceBusPairProvisionOperator(task_id="task", conn_id=CONN_ID),
        lambda: ServiceBusPairCleanupOperator(task_id="task", conn_id=CONN_ID, what="all"),
        lambda: ServiceBusBacklogSensor(task_id="task", conn_id=CONN_ID),
    ):
        assert "queues on contoso-dr: HTTP 401 (the right Manage is needed): " in fail(make)


@pytest.fixture(
    params=[
        (("secondary", "sender"), r"the right Listen on contoso/x-servicebus-transfer/\d is needed"),
        (("primary", "listener"), "the right Send on flights is needed"),
        (
            None,
            r"the backlog queue fabrikam/x-servicebus-transfer/\d does not exist: create the backlog with provision",
        ),
    ],
    ids=["may not listen", "may not send", "not provisioned"],
)
def needed(define: Define, key_of: KeyOf, run_dag: RunDag, request: pytest.FixtureRequest) -> str:
    """Leave a message in the backlog, and define a connection without what a drain of it needs; what that is."""
    from airflow.sdk import DAG

    define(primary_connection_string=NOWHERE.format("away"))
    with DAG("away", schedule=None) as dag:
        send()
    run_dag(dag)
    limited, told = request.param
    define(**({"primary_namespace": "fabrikam"} if limited is None else key_of(*limited)))
    return str(told)


@pytest.mark.parametrize("named", [{}, {"entities": ["flights"]}], ids=["all", "named"])
def test_a_drain_that_no_retry_mends_says_once_what_is_needed_and_is_not_tried_again(
    needed: str, fail: Fail, named: dict[str, Any]
):
    log = fail(lambda: drain(**named))

    assert log.count("AirflowFailException: ") == 1, "one error of one try"
    assert re.search(f"AirflowFailException: (AuthorizationError|EntityNotFoundError): .*{needed}", log)
    assert "rests=" not in log


def test_the_test_of_the_connection_names_the_rights_that_are_missing(define: Define, key_of: KeyOf):
    define(**key_of("primary", "listener"), **key_of("secondary", "sender"))

    succeeded, told = ServiceBusPairHook(CONN_ID).test_connection()

    assert not succeeded
    assert (
        "secondary contoso-dr: reach yes, authenticate yes, send yes, listen no (the right Listen is missing)" in told
    )
    assert told.count("manage no (the right Manage is missing)") == 2


@pytest.mark.parametrize(
    ("place", "told"),
    [("127.0.0.1:{port}", "Connect call failed"), ("{side}.invalid", "Name or service not known|No address")],
    ids=["unreachable", "unresolvable"],
)
def test_two_hosts_that_are_not_there_are_both_named_and_nothing_is_sent(
    define: Define, fail: Fail, place: str, told: str
):
    for_each = {
        f"{side}_connection_string": NOWHERE.replace("{}.invalid", place.format(side=side, port=closed_port()))
        for side in SIDES
    }
    administration = place.format(side="secondary", port=closed_port())
    define(**for_each, secondary_administration=administration)

    log = fail(send)
    provisioned = fail(lambda: ServiceBusPairProvisionOperator(task_id="task", conn_id=CONN_ID))

    assert re.search(
        f"NoBacklogQueueError: nothing was sent to flights: flights is failed over .*({told}).* and no backlog queue "
        f"took the 1 messages .*({told})",
        log,
    )
    assert re.search("UnreachableError: list queues on contoso-dr: .*Cannot connect to host", provisioned)


def test_a_host_of_the_primary_that_is_not_there_is_an_outage(
    define: Define, both: EmulatorProcess, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    """A wrong name cannot be told from a name service that is down: the test of the connection tells both."""
    from airflow.sdk import DAG

    before = held(both)
    define(primary_connection_string=NOWHERE.format("typo"))
    with DAG("typo", schedule=None) as dag:
        send()

    assert results(run_dag(dag))["task"]["diverted"] == 1
    assert held(both) == before + 1
    assert "flights" in capfd.readouterr().out
    assert "primary contoso: reach no" in ServiceBusPairHook(CONN_ID).test_connection()[1]


@pytest.mark.usefixtures("define")
def test_a_rate_of_nothing_is_refused_before_anything_is_received(fail: Fail):
    told = fail(lambda: ServiceBusPairSyphonOperator(task_id="task", conn_id=CONN_ID, rate="{{ 0 }}"))

    assert "ConfigurationError: rate is '0': it must be a number of messages a second above 0" in told


def written(folder: Path, name: str, data: bytes) -> str:
    file = folder / name
    file.write_bytes(data)
    return str(file)


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (("a.jsonl", b'"good"\n"\xff"\n'), r"line 2 is not JSON \('utf-8' codec can't decode byte 0xff"),
        (("a.jsonl", "\ufeff".encode("utf-16") + '"a"\n'.encode("utf-16-le")), "line 1 is not JSON"),
        (("a.jsonl", b"[" * 200_000), r"line 1 is not JSON \(maximum recursion depth"),
        (("a.jsonl", b'"a"\n"\\ud800"'), "line 2: body has half a character at position 0: allowed is what UTF-8 can"),
        (("a.jsonl", b'"' + b"x" * 50 + b'"\n[1]'), "line 2 is list: it must be a text or a mapping"),
        (("a.jsonl.gz", b'"a"\n'), "cannot be unpacked, BadGzipFile: Not a gzipped file"),
        (("a.jsonl.gz", gzip.compress(b'"a"\n' * 9)[:-9]), "cannot be unpacked, EOFError: .*: it must be whole, and"),
        (("a.jsonl.xz", b'"a"\n'), "cannot be unpacked, LZMAError: "),
    ],
    ids=["not UTF-8", "UTF-16", "too deep", "half a character", "wrong type", "not gzip", "cut off", "not xz"],
)
@pytest.mark.usefixtures("define")
def test_a_file_that_cannot_be_read_to_its_end_is_not_begun(
    both: EmulatorProcess,
    fail: Fail,
    tmp_path: Path,
    file: tuple[str, bytes],
    told: str,
):
    before = held(both)
    path = written(tmp_path, *file)

    log = fail(lambda: send(path=path))

    [error] = set(re.findall(r"^.*?ConfigurationError: (.*; nothing was sent)$", log, flags=re.MULTILINE))
    assert re.search(told, error)
    assert path in error
    assert held(both) == before


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("{{ 'missing' }}.jsonl", "path 'missing.jsonl' cannot be opened, FileNotFoundError"),
        ("/usr", "path '/usr' cannot be opened, IsADirectoryError"),
        ("s3://bucket/a.jsonl", "path 's3://bucket/a.jsonl' cannot be opened, ValueError: No filesystem registered"),
        ("file:///nowhere/a.jsonl", "path 'file:///nowhere/a.jsonl' cannot be opened, FileNotFoundError"),
        ("{{ '' }}", "path is '': it must be the path or address of a file, such as s3://bucket/messages.jsonl"),
    ],
)
@pytest.mark.usefixtures("define")
def test_a_file_that_is_not_there_is_named(fail: Fail, path: str, told: str):
    log = fail(lambda: send(path=path))

    assert f"ConfigurationError: {told}" in log
    assert "; nothing was sent" in log


@pytest.mark.usefixtures("define")
def test_an_empty_file_sends_nothing_and_says_so(run_dag: RunDag, capfd: pytest.CaptureFixture[str], tmp_path: Path):
    from airflow.sdk import DAG

    path = written(tmp_path, "empty.jsonl", b"\n")
    with DAG("empty", schedule=None) as dag:
        send(path=path)

    assert results(run_dag(dag))["task"]["sent"] == 0
    assert "entity=flights: there was no message to send" in capfd.readouterr().out


@pytest.mark.usefixtures("define")
def test_a_ledger_that_cannot_be_written_is_found_before_anything_is_sent(fail: Fail):
    log = fail(lambda: send(ledger="/proc/nowhere"))

    assert "ConfigurationError: ledger '/proc/nowhere' cannot be written, FileNotFoundError: No such file" in log
    assert "; nothing was sent" in log


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"timeout": "5"}, "timeout is '5': it must be a number of seconds above 0"),
        ({"timeout": float("nan")}, "timeout is nan: it must be"),
        ({"path": ""}, "path is '': it must be the path or address of a file"),
        ({"path": 5}, "path is 5: it must be the path or address of a file"),
        ({"entity": 5}, "entity is 5: it must be the path of a queue or topic"),
        ({"messages": [{"body": "a", "time_to_live": 0.5}]}, "time_to_live is 0.5: it must be a number of seconds fr"),
        ({"messages": [{"body": "a", "time_to_live": 5e9}]}, "must be a number of seconds from 1 to 4294967"),
        (
            {"messages": [{"body": "a", "scheduled_enqueue_time": "0001-01-01T00:00:00+14:00"}]},
            r"scheduled_enqueue_time is '0001-01-.*: it must be an ISO 8601 date and time",
        ),
        ({"messages": [{"body": "a", "subject": "\ud800"}]}, "subject has half a character at position 0"),
        (
            {"messages": [{"body": "a", "application_properties": {"x": "a\udfff"}}]},
            "application_properties: 'x' has half a character at position 1",
        ),
    ],
)
def test_a_wrong_parameter_is_refused_when_the_dag_is_parsed(parameters: dict[str, Any], told: str):
    with pytest.raises(ConfigurationError, match=told):
        send(**parameters)
