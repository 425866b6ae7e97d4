"""Missing rights and unreachable hosts end in one clear error; what can be diverted is diverted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from servicebus_emulator import EmulatorProcess, RemoteNamespace
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.sensors.backlog import ServiceBusBacklogSensor
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from tests.airflow.conftest import CONN_ID, LogOfFailure, RunDag, connection_extra, define_connection, results
from tests.airflow.support import tasks
from tests.airflow.support.queues import endpoint_of
from tests.airflow.support.shared_access_keys import SIDES, connection_string_of, keyed_namespaces

NOWHERE = "Endpoint=sb://{}.invalid;SharedAccessKeyName=app;SharedAccessKey=key;UseDevelopmentEmulator=true;"

Define: TypeAlias = Callable[..., None]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    """Both namespaces; the tests leave them as they are."""
    with keyed_namespaces(tmp_path_factory.mktemp("unusable")) as process:
        yield process


@pytest.fixture
def define(keyed: EmulatorProcess, monkeypatch: pytest.MonkeyPatch, fresh_state: None) -> Define:  # noqa: ARG001  order
    """Define a working connection with the given settings changed."""

    def change(**changes: Any) -> None:
        define_connection(monkeypatch, {**connection_extra(keyed["contoso"], keyed["contoso-dr"]), **changes})

    change()
    return change


def send(**parameters: Any) -> ServiceBusPairSendOperator:
    return tasks.send(**{"messages": ["a"], **parameters})


def count_messages(keyed: EmulatorProcess) -> int:
    """Return the number of messages in all queues."""
    from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration

    async def count(served: RemoteNamespace) -> int:
        async with ServiceBusAdministration(endpoint_of(served)) as administration:
            return sum(each.active + each.dead_lettered for each in await administration.queue_depths(""))

    return sum(asyncio.run(count(keyed[name])) for name in SIDES.values())


@pytest.mark.usefixtures("fresh_state")
def test_an_unknown_connection_is_named(log_of_failure: LogOfFailure):
    log = log_of_failure(
        lambda: ServiceBusPairSendOperator(
            task_id="task", servicebus_pair_conn_id="nowhere", entity="flights", messages=["a"]
        )
    )

    assert "The conn_id `nowhere` isn't defined" in log
    assert "nothing was sent" in log


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: send(entity="fligths"),
            "nothing was sent to fligths: fligths does not exist on contoso, so its token was refused",
        ),
        (
            lambda: send(entity="seats"),
            "nothing was sent to seats: send to seats on contoso: ServiceBusError: message 0 of 1 has no session id",
        ),
    ],
    ids=["unknown entity", "session missing"],
)
@pytest.mark.usefixtures("define")
def test_permanent_refusals_of_the_primary_are_raised_and_not_diverted(
    keyed: EmulatorProcess, log_of_failure: LogOfFailure, make: Callable[[], object], message: str
):
    before = count_messages(keyed)

    assert f"SendError: {message}" in log_of_failure(make)
    assert count_messages(keyed) == before


def test_a_listen_only_key_sends_nothing_and_causes_no_failover(
    define: Define, keyed: EmulatorProcess, log_of_failure: LogOfFailure
):
    before = count_messages(keyed)
    define(**connection_string_of(keyed, "primary", "listener"))

    log = log_of_failure(send)
    waited = log_of_failure(
        lambda: ServiceBusPrimaryHealthSensor(task_id="task", servicebus_pair_conn_id=CONN_ID, entities=["flights"])
    )

    assert "SendError: nothing was sent to flights: open a link to flights on contoso: ServiceBusAuthorization" in log
    assert "'Send' claim(s) are required" in log
    assert "the primary answers and refuses flights (AuthorizationError): name entities that exist there" in waited
    assert count_messages(keyed) == before


def test_an_outage_with_a_forbidden_backlog_names_both_failures(
    define: Define, keyed: EmulatorProcess, log_of_failure: LogOfFailure
):
    primary = NOWHERE.format("nowhere")
    define(**{**connection_string_of(keyed, "secondary", "listener"), "primary_connection_string": primary})

    log = log_of_failure(send)

    assert re.search("NoBacklogQueueError: nothing was sent to flights: flights is failed over .*not known", log)
    assert "'Send' claim(s) are required" in log


def test_a_send_only_key_cannot_drain_or_manage(define: Define, keyed: EmulatorProcess, log_of_failure: LogOfFailure):
    define(**connection_string_of(keyed, "secondary", "sender"))

    drained = log_of_failure(lambda: tasks.drain(retries=1))
    assert drained.count("AirflowFailException: AuthorizationError: peek at contoso/x-servicebus-transfer/") == 1
    assert "'Listen' claim(s) are required" in drained
    assert "retry_in=" not in drained
    for make in (
        tasks.provision,
        lambda: tasks.cleanup(what="all"),
        lambda: ServiceBusBacklogSensor(task_id="task", servicebus_pair_conn_id=CONN_ID),
    ):
        assert "queues on contoso-dr: HTTP 401 (the Manage right is needed): " in log_of_failure(make)


@pytest.mark.parametrize(
    ("place", "message"),
    [("127.0.0.1:{port}", "Connect call failed"), ("{side}.invalid", "Name or service not known|No address")],
    ids=["unreachable", "unresolvable"],
)
def test_two_unreachable_hosts_are_both_named(
    define: Define, log_of_failure: LogOfFailure, unused_tcp_port_factory: Callable[[], int], place: str, message: str
):
    hosts = {side: place.format(side=side, port=unused_tcp_port_factory()) for side in SIDES}
    for_each = {f"{side}_connection_string": NOWHERE.replace("{}.invalid", host) for side, host in hosts.items()}
    define(**for_each, secondary_administration=hosts["secondary"])

    log = log_of_failure(send)
    provisioned = log_of_failure(tasks.provision)

    assert re.search(
        f"NoBacklogQueueError: nothing was sent to flights: flights is failed over .*({message}).* and no backlog "
        f"queue took the 1 messages .*({message})",
        log,
    )
    assert re.search("UnreachableError: list queues on contoso-dr: .*Cannot connect to host", provisioned)


def test_an_unreachable_primary_host_is_an_outage(
    define: Define, keyed: EmulatorProcess, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    """A wrong host name is indistinguishable from an outage; the connection test names it."""
    from airflow.sdk import DAG

    before = count_messages(keyed)
    define(primary_connection_string=NOWHERE.format("typo"))
    with DAG("typo", schedule=None) as dag:
        send()

    assert results(run_dag(dag))["send"]["diverted"] == 1
    assert count_messages(keyed) == before + 1
    assert "flights" in capfd.readouterr().out
    assert "primary contoso: reach no" in ServiceBusPairHook(CONN_ID).test_connection()[1]
