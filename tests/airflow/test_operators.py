"""Operators that look after a pair: provision, cleanup, failover and failback, drill, cost."""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.health import State
from servicebus_pair.operators.cleanup import ServiceBusPairCleanupOperator
from servicebus_pair.operators.cost import ServiceBusPairCostOperator
from servicebus_pair.operators.drill import ServiceBusPairDrillOperator
from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator, ServiceBusPairFailoverOperator
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from tests.airflow.conftest import CONN_ID, Pair, RunDag, events, run_task, shared_health, states
from tests.airflow.queues import contents, queue_names

QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
FAILOVERS, RECOVERIES = f"servicebus_pair.{CONN_ID}.failover", f"servicebus_pair.{CONN_ID}.recovery"


def provision(**parameters: Any) -> ServiceBusPairProvisionOperator:
    return ServiceBusPairProvisionOperator(task_id="provision", conn_id=CONN_ID, **parameters)


def cleanup(**parameters: Any) -> ServiceBusPairCleanupOperator:
    return ServiceBusPairCleanupOperator(task_id="cleanup", conn_id=CONN_ID, **parameters)


def fail_over(**parameters: Any) -> ServiceBusPairFailoverOperator:
    return ServiceBusPairFailoverOperator(
        task_id="fail_over", conn_id=CONN_ID, **{"entities": "flights", "reason": "maintenance", **parameters}
    )


def fail_back(**parameters: Any) -> ServiceBusPairFailbackOperator:
    return ServiceBusPairFailbackOperator(
        task_id="fail_back", conn_id=CONN_ID, **{"entities": ["Flights"], "reason": "it is over", **parameters}
    )


def send() -> ServiceBusPairSendOperator:
    return ServiceBusPairSendOperator(task_id="send", conn_id=CONN_ID, entity="flights", messages=["x"])


def drill(**parameters: Any) -> ServiceBusPairDrillOperator:
    return ServiceBusPairDrillOperator(task_id="drill", conn_id=CONN_ID, entity="flights", **parameters)


def cost(**parameters: Any) -> ServiceBusPairCostOperator:
    return ServiceBusPairCostOperator(task_id="cost", conn_id=CONN_ID, **parameters)


def failure(run_dag: RunDag, capfd: pytest.CaptureFixture[str], task: Any) -> str:
    """What the log says of one task, which must fail."""
    from airflow.sdk import DAG

    with DAG("failing", schedule=None) as dag:
        task()
    assert set(states(run_dag(dag)).values()) == {"failed"}
    printed = capfd.readouterr()
    return printed.out + printed.err


def test_a_dry_run_of_provisioning_tells_the_plan_and_creates_nothing(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    """SPEC section 3: a plan comes from the same function as the action."""
    told = run_task(run_dag, lambda: provision(plan_only="{{ 1 == 1 }}"))["provision"]

    assert told == {"found": 0, "missing": 2, "created": 0, "drifted": 0, "extra": 0, "failed": 0}
    assert queue_names(pair.secondary["contoso-dr"]) == []
    assert f"queue={QUEUES[1]} is missing: it would be created" in capfd.readouterr().out


def test_drift_is_a_warning_or_fails_the_task_after_what_is_missing_was_created(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    """SPEC section 3: an existing queue whose description differs is used as it is and reported."""
    pair.secondary["contoso-dr"].create_queue(QUEUES[0])

    told = failure(run_dag, capfd, lambda: provision(on_drift="fail"))
    warned = run_task(run_dag, provision)["provision"]

    assert f"queue={QUEUES[0]} drifted: max_delivery_count is 10, expected 2147483647" in told
    assert "1 backlog queues differ from the description" in told
    assert warned == {"found": 2, "missing": 0, "created": 0, "drifted": 1, "extra": 0, "failed": 0}


def test_a_cleanup_deletes_what_is_extra_and_empty_and_only_what_was_named(
    pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
):
    """SPEC section 3."""
    pair.settings["backlog_queue_count"] = 4
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", pair.connection())
    run_task(run_dag, provision)
    pair.settings["backlog_queue_count"] = 1
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", pair.connection())
    extra = [f"contoso/x-servicebus-transfer/{index}" for index in (1, 2, 3)]
    _put(pair, extra[1])

    planned = run_task(run_dag, lambda: cleanup(plan_only=True))["cleanup"]
    named = run_task(run_dag, lambda: cleanup(only=[extra[0]]))["cleanup"]
    done = run_task(run_dag, cleanup)["cleanup"]

    assert (planned["planned"], planned["deleted"], planned["plan_only"]) == (extra, [], True)
    assert named["deleted"] == [extra[0]]
    assert (done["deleted"], done["kept"]) == ([extra[2]], {extra[1]: 1})
    assert done["counts"] == {"planned": 2, "deleted": 1, "kept": 1, "failed": 0}
    assert queue_names(pair.secondary["contoso-dr"]) == [QUEUES[0], extra[1]]


def test_a_forced_cleanup_of_all_deletes_queues_with_what_they_hold(pair: Pair, run_dag: RunDag):
    run_task(run_dag, provision)
    _put(pair, QUEUES[0])

    done = run_task(run_dag, lambda: cleanup(what="{{ 'all' }}", force=True))["cleanup"]

    assert done["deleted"] == QUEUES
    assert queue_names(pair.secondary["contoso-dr"]) == []


@pytest.mark.usefixtures("pair")
def test_a_failover_by_hand_holds_is_shared_and_announced_once_and_ends_by_hand(run_dag: RunDag):
    """SPEC section 4: both are recorded with who and when."""
    run_task(run_dag, provision)

    over = run_task(run_dag, fail_over)["fail_over"]
    again = run_task(run_dag, fail_over)["fail_over"]
    held = shared_health("flights")
    diverted = run_task(run_dag, send)["send"]
    back = run_task(run_dag, lambda: fail_back(by="{{ 'ada' }}"))["fail_back"]
    direct = run_task(run_dag, send)["send"]

    who = "dag_test by tasks"
    assert over == {"changed": ["flights"], "unchanged": [], "by": who, "reason": "maintenance"}
    assert again["unchanged"] == ["flights"]
    assert (held.state, held.by, held.reason) == (State.FAILED_OVER, who, "maintenance")
    assert held.held_until is not None
    assert held.held_until - held.since == pytest.approx(3600, abs=60)
    assert (diverted["primary"], diverted["diverted"]) == (0, 1)
    assert (back["changed"], back["by"]) == (["Flights"], "ada")
    assert (direct["primary"], direct["diverted"]) == (1, 0)
    [announced] = events(FAILOVERS)
    assert (announced["entity"], announced["reason"], announced["by"]) == ("flights", "maintenance", who)
    [recovery] = events(RECOVERIES)
    assert (recovery["entity"], recovery["reason"], recovery["by"]) == ("Flights", "it is over", "ada")


@pytest.mark.usefixtures("pair")
def test_a_failover_by_hand_that_cannot_be_shared_fails_its_task(
    run_dag: RunDag, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Nobody else would know of it: a failover that only its own task sees is none."""
    from servicebus_pair.hooks.health import AirflowHealthStore

    async def lost(self: AirflowHealthStore, entity: str, health: object) -> None:
        """The fault: a store that takes and forgets."""

    monkeypatch.setattr(AirflowHealthStore, "save", lost)

    told = failure(run_dag, capfd, fail_over)

    assert "flights is failed_over by hand, but the state of the asset servicebus-pair://contoso_pair" in told
    assert events(FAILOVERS) == []


def test_a_drill_passes_and_leaves_everything_as_it_was_and_announces_only_if_asked(pair: Pair, run_dag: RunDag):
    """SPEC sections 4 and 5."""
    run_task(run_dag, provision)

    report = run_task(run_dag, lambda: drill(messages="{{ 3 }}", limit=30))["drill"]
    silent = events(FAILOVERS)
    run_task(run_dag, lambda: drill(messages=1, announce=True))

    assert (report["passed"], report["sent"], report["arrived"], report["findings"]) == (True, 3, 3, [])
    assert report["operations"]["diverts"] == 3
    assert shared_health("flights").state is State.HEALTHY
    assert silent == []
    assert len(events(FAILOVERS)) == len(events(RECOVERIES)) == 1
    assert len(contents(pair.primary["contoso"], "flights")) == 4


@pytest.mark.usefixtures("pair")
def test_a_drill_with_findings_fails_its_task_and_one_without_a_backlog_says_so(
    run_dag: RunDag, capfd: pytest.CaptureFixture[str]
):
    assert "the marked messages were not sent" in failure(run_dag, capfd, drill)
    assert shared_health("flights").state is State.HEALTHY

    run_task(run_dag, provision)
    run_task(run_dag, fail_over)
    told = failure(run_dag, capfd, drill)

    assert "flights is failed over already (maintenance): drill when it is healthy" in told


@pytest.mark.usefixtures("pair")
def test_the_cost_of_an_idle_pair_is_that_of_its_polls(run_dag: RunDag):
    """SPEC section 6: two queues polled every 15 minutes for 30 days are 5,760 receives."""
    report = run_task(run_dag, cost)["cost"]

    assert report["planned"] == {"operations": {"empty_receives": 5760}, "total": 5760, "billable": 0, "amount": "0.00"}
    assert report["measured"] is None
    assert report["prices"] == {"as_of": "2026-11-20", "currency": "USD"}


@pytest.mark.usefixtures("pair")
def test_the_cost_report_counts_ledgers_and_meters_and_takes_dated_prices(
    run_dag: RunDag,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
):
    """SPEC section 8: operations first, money second."""
    row = {"v": 1, "id": "m", "entity": "flights", "queue": None, "at": time.time() - 60, "run": "r"}
    rows = [
        {**row, "kind": "sent", "route": "primary", "bytes": 65_536},
        {**row, "kind": "sent", "route": "backlog", "bytes": 65_537},
        {**row, "kind": "syphoned", "route": "primary", "bytes": 65_537},
        {**row, "kind": "sent", "route": "primary", "bytes": 1, "at": time.time() - 3 * 86_400},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join([*map(json.dumps, rows), '{"v": 1, "kind": "se']))
    prices = {"as_of": "2026-12-01", "currency": "EUR", "tiers": [{"beyond": 0, "per_million": "1000.00"}]}

    report = run_task(
        run_dag,
        lambda: cost(
            period=timedelta(days=1),
            ledger=str(tmp_path),
            operations=[{"pings": 2}, {"pings": 1, "sends": 1}],
            prices=prices,
            messages=1000,
            outage=3600,
        ),
    )["cost"]

    assert report["measured"]["operations"] == {
        "sends": 3,
        "diverts": 1,
        "pings": 3,
        "receives": 1,
        "settlements": 1,
        "further_increments": 3,
    }
    assert (report["measured"]["total"], report["measured"]["amount"]) == (12, "0.01")
    # 2 queues polled 96 times a day, 3,600 pings of one second, and 6 operations for each message.
    assert (report["planned"]["total"], report["planned"]["amount"]) == (192 + 3600 + 6000, "9.79")
    assert report["prices"] == {"as_of": "2026-12-01", "currency": "EUR"}
    told = capfd.readouterr().out
    assert "operations measured over 1 day" in told
    assert "ledger: 1 lines are no records" in told


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: provision(on_drift="ignore"), "on_drift is 'ignore': allowed are warn, fail"),
        (lambda: provision(plan_only="perhaps"), "plan_only is 'perhaps': allowed are true and false"),
        (lambda: cleanup(what="some"), "what is 'some': allowed are extra, all"),
        (lambda: cleanup(only="a"), "only is 'a': it must be a list of paths"),
        (lambda: fail_over(entities=[]), "entities is .*: it must be the path of a queue or topic, or a list of them"),
        (lambda: fail_over(entities=["a", 1]), "entities is 1: it must be the path"),
        (lambda: fail_over(reason=" "), "reason is ' ': it must be a text of at least one character"),
        (lambda: fail_over(hold=-1), "hold is -1: it must be a timedelta or a number of seconds, from 0 to 604800 s"),
        (lambda: drill(messages=0), "messages is 0: it must be a whole number from 1 to 10000"),
        (lambda: drill(messages="many"), "messages is 'many': it must be a whole number"),
        (lambda: drill(limit=True), "limit is True: it must be a timedelta or a number of seconds, from 1 to 3600 s"),
        (lambda: cost(period="a month"), "period is 'a month': it must be a timedelta or a number of seconds"),
        (lambda: cost(before=-1), "before is -1: it must be a whole number from 0"),
    ],
)
def test_a_wrong_parameter_is_refused_when_the_dag_is_parsed(make: Any, told: str):
    with pytest.raises(ConfigurationError, match=told):
        make()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: provision(on_drift="{{ 'ignore' }}"), "on_drift is 'ignore': allowed are warn, fail"),
        (lambda: cleanup(what="{{ 'some' }}"), "what is 'some': allowed are extra, all"),
        (lambda: fail_over(hold="{{ 'long' }}"), "hold is 'long': it must be a timedelta or a number of seconds"),
        (lambda: drill(messages="{{ 10 ** 6 }}"), "messages is '1000000': it must be a whole number from 1 to 10000"),
        (lambda: cost(ledger="nowhere"), "ledger 'nowhere' is no folder"),
        (lambda: cost(operations={"sent": 1}), "operations: 'sent' is unknown: allowed are sends, diverts"),
        (lambda: cost(prices={"as_of": "today"}), "prices has .*: it must be a mapping with as_of, currency, tiers"),
        (lambda: cost(outage=31 * 86_400), "outage is 31 days, 0:00:00: it must not be longer than the period"),
    ],
)
def test_a_wrong_parameter_that_only_the_run_knows_fails_it_before_anything_is_done(
    run_dag: RunDag, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, make: Any, told: str
):
    nobody = "Endpoint=sb://{};SharedAccessKeyName=n;SharedAccessKey=k"
    extra = {f"{side}_connection_string": nobody.format(f"{side}.invalid") for side in ("primary", "secondary")}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps({"conn_type": "servicebus_pair", "extra": extra}))

    assert re.search(told, failure(run_dag, capfd, make))


def _put(pair: Pair, path: str) -> None:
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with (
        ServiceBusClient.from_connection_string(pair.secondary["contoso-dr"].connection_string) as client,
        client.get_queue_sender(path) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
