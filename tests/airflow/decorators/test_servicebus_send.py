"""``@task.servicebus_send`` sends what a function returns or yields."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG, task

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.decorators.servicebus_send import servicebus_send_task
from tests.airflow.conftest import CONN_ID, Pair, RunDag, results, states
from tests.airflow.support.queues import contents


def dag_of(function: Callable[..., Any], *arguments: Any, **parameters: Any) -> DAG:
    with DAG("decorated", schedule=None) as dag:
        decorate = task.servicebus_send(servicebus_pair_conn_id=CONN_ID, **{"entity": "flights", **parameters})
        decorate(function)(*arguments)
    return dag


def bodies(pair: Pair) -> list[str]:
    return [message.body for message in contents(pair.primary["contoso"], "flights")]


def test_the_decorator_is_registered():
    from airflow.providers_manager import ProvidersManager

    assert ProvidersManager().taskflow_decorators["servicebus_send"] is servicebus_send_task


def one() -> dict[str, Any]:
    return {"body": "one", "session_id": "own"}


def many(number: int) -> list[str | bytes]:
    return [b"first", f"second of {number}"]


@pytest.mark.parametrize(
    ("function", "arguments", "sent"), [(one, (), ["one"]), (many, (2,), ["first", "second of 2"])]
)
def test_returned_messages_are_sent_and_a_rerun_repeats_their_ids(
    pair: Pair, run_dag: RunDag, function: Callable[..., Any], arguments: tuple[Any, ...], sent: list[str]
):
    date = datetime(2026, 11, 1, tzinfo=UTC)
    dag = dag_of(function, *arguments, defaults={"session_id": "{{ dag.dag_id }}"})
    run = run_dag(dag, logical_date=date, run_after=date)

    assert states(run) == {function.__name__: "success"}
    assert results(run)[function.__name__] == {
        "entity": "flights",
        "sent": len(sent),
        "primary": len(sent),
        "diverted": 0,
        "spooled": 0,
        "backlog_queues": [],
        "operations": {"sends": len(sent)},
    }
    assert bodies(pair) == sent
    assert {message.session_id for message in contents(pair.primary["contoso"], "flights")} <= {"own", "decorated"}
    run_dag(dag_of(function, *arguments), logical_date=date, run_after=date)
    ids = [message.message_id for message in contents(pair.primary["contoso"], "flights")]
    assert ids[: len(sent)] == ids[len(sent) :]
    assert len(set(ids)) == len(sent)


def test_yielded_messages_are_sent_in_chunks_from_the_task_thread(pair: Pair, run_dag: RunDag):
    """A database cursor, for example, may only be used in the thread that created it."""
    taken: list[int] = []

    def rows(dag_run: Any) -> Iterator[str]:
        with sqlite3.connect(":memory:") as database:
            for (number,) in database.execute(
                "WITH RECURSIVE n(i) AS (SELECT 0 UNION SELECT i + 1 FROM n LIMIT 4500) SELECT i FROM n"
            ):
                if number == 4499:
                    taken.append(len(bodies(pair)))
                yield f"{number} of {dag_run.dag_id}"

    run = run_dag(dag_of(rows))

    assert states(run) == {"rows": "success"}
    assert results(run)["rows"]["sent"] == 4500
    assert taken == [100]  # earlier chunks were sent before the last row was read; a peek returns at most 100
    assert bodies(pair)[0] == "0 of decorated"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "returned NoneType: it must return or yield messages"),
        (["a", 1], r"messages\[1\] is int: it must be a text or a mapping; nothing was sent"),
    ],
)
def test_invalid_messages_fail_the_task_before_anything_is_sent(
    pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str], given: Any, message: str
):
    def rows() -> Any:
        return given

    assert states(run_dag(dag_of(rows))) == {"rows": "failed"}
    assert re.search(message, capfd.readouterr().out)
    assert bodies(pair) == []


async def awaited() -> str:
    return "x"


async def streamed() -> AsyncIterator[str]:
    yield "x"


@pytest.mark.parametrize("function", [awaited, streamed])
def test_asynchronous_functions_are_refused_at_parse_time(function: Callable[..., Any]):
    refusal = (
        f"{function.__name__} is asynchronous: allowed are functions that return or yield messages; await in a separ"
    )

    with pytest.raises(ConfigurationError, match=refusal):
        dag_of(function)


def test_a_missing_entity_is_refused_at_parse_time():
    with pytest.raises(ConfigurationError, match="entity is ''"):
        dag_of(one, entity="")
