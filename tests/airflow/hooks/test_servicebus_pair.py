"""What a hook does for plain tasks: it sends, and names the backlog queues of a mapped drain."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.assets import pair_asset
from servicebus_pair.core.model.errors import ConfigurationError, PairClosedError
from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import (
    BACKLOG,
    CONN_ID,
    Pair,
    RunDag,
    define_connection,
    results,
    run_task,
)
from tests.airflow.support.queues import contents, divert, divert_session
from tests.airflow.support.tasks import provision


async def test_queues_with_messages_are_named_session_queues_too(
    pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
):
    """SPEC section 6: with session order the backlog is in queues that require sessions as well."""
    pair.settings |= {"ordering": "session"}
    define_connection(monkeypatch, pair.extra())
    hook = ServiceBusPairHook(CONN_ID)
    sessions = session_queue_paths("contoso", 2)
    assert hook.backlog_queue_names() == (*BACKLOG, *sessions)
    assert hook.filled_backlog_queues() == (), "not provisioned yet"
    run_task(run_dag, provision)
    assert hook.filled_backlog_queues() == ()
    await divert(pair, count=1)
    await divert_session(pair, sessions[1])
    used = hook.filled_backlog_queues()
    assert len(used) == 2
    assert used[1] == sessions[1]
    assert hook.filled_backlog_queues(sessions) == sessions[1:]


def test_a_plain_task_sends_over_the_hook(pair: Pair, run_dag: RunDag):
    from airflow.sdk import DAG, task

    with DAG("plain", schedule=None) as dag:

        @task(inlets=[pair_asset(CONN_ID)])
        def send() -> list[int]:
            hook = ServiceBusPairHook(CONN_ID)
            once = hook.send("flights", {"body": {"a": 1}, "message_id": "m"})
            with hook.get_conn() as opened:
                several = opened.send("flights", ["b", b"c", ServiceBusMessage("d")], timeout=timedelta(seconds=30))
                assert opened.run(lambda each: each.ping("flights"))
            return [once.primary, several.primary]

        send()

    assert results(run_dag(dag))["send"] == [1, 3]
    arrived = contents(pair.primary["contoso"], "flights")
    assert [each.body for each in arrived] == ['{"a": 1}', "b", "c", "d"]
    assert arrived[0].message_id == "m"


@pytest.mark.usefixtures("pair")
def test_a_connection_is_used_inside_its_block_only_and_an_invalid_message_sends_nothing():
    connection = ServiceBusPairHook(CONN_ID).get_conn()

    with pytest.raises(PairClosedError, match="use it inside `with"):
        connection.send("flights", "a")
    with connection as opened, pytest.raises(ConfigurationError, match=r"messages\[1\]: field 'bodi' is unknown"):
        opened.send("flights", ["a", {"bodi": "b"}])
    with pytest.raises(PairClosedError):
        connection.send("flights", "a")
