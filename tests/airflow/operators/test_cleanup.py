"""``ServiceBusPairCleanupOperator``: what is deleted, and what is kept."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG

from servicebus_pair.core.errors import ConfigurationError
from tests.airflow.conftest import BACKLOG, Pair, RunDag, define_connection, run_task
from tests.airflow.support.queues import queue_names, send_directly
from tests.airflow.support.tasks import cleanup, provision


def test_only_named_empty_extra_queues_are_deleted(pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch):
    """SPEC section 3."""
    pair.settings["backlog_queue_count"] = 4
    define_connection(monkeypatch, pair.extra())
    run_task(run_dag, provision)
    pair.settings["backlog_queue_count"] = 1
    define_connection(monkeypatch, pair.extra())
    extra = [f"contoso/x-servicebus-transfer/{index}" for index in (1, 2, 3)]
    send_directly(pair.secondary["contoso-dr"], extra[1])

    planned = run_task(run_dag, lambda: cleanup(plan_only=True))["cleanup"]
    named = run_task(run_dag, lambda: cleanup(only=[extra[0]]))["cleanup"]
    done = run_task(run_dag, cleanup)["cleanup"]

    assert (planned["planned"], planned["deleted"], planned["plan_only"]) == (extra, [], True)
    assert named["deleted"] == [extra[0]]
    assert (done["deleted"], done["kept"]) == ([extra[2]], {extra[1]: 1})
    assert done["counts"] == {"planned": 2, "deleted": 1, "kept": 1, "failed": 0}
    assert queue_names(pair.secondary["contoso-dr"]) == [BACKLOG[0], extra[1]]


def test_force_deletes_all_queues_with_messages(pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch):
    """Those of both kinds, and those beyond the number in the connection."""
    pair.settings |= {"ordering": "session", "backlog_queue_count": 3}
    define_connection(monkeypatch, pair.extra())
    run_task(run_dag, provision)
    send_directly(pair.secondary["contoso-dr"], BACKLOG[0])
    every = queue_names(pair.secondary["contoso-dr"])
    pair.settings |= {"ordering": "none", "backlog_queue_count": 2}
    define_connection(monkeypatch, pair.extra())

    done = run_task(run_dag, lambda: cleanup(what="{{ 'all' }}", force=True))["cleanup"]

    assert (len(every), sorted(done["deleted"])) == (6, every)
    assert queue_names(pair.secondary["contoso-dr"]) == []


@pytest.mark.parametrize("rendered", [None, ""])
async def test_a_task_that_names_no_queues_does_not_choose_all(rendered: str | None):
    with DAG("cleans", schedule=None):
        operator = cleanup(only=provision().output)
    operator.only = rendered

    with pytest.raises(ConfigurationError, match=r"only is .*: the task that names the queues has no result"):
        await operator.aexecute({})
