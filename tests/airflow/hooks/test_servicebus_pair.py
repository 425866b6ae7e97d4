"""The backlog queues that a hook names for a mapped drain."""

from __future__ import annotations

import pytest

from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import BACKLOG, CONN_ID, Pair, RunDag, define_connection, run_task
from tests.airflow.support.queues import divert, divert_session
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
