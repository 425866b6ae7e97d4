"""The ledger of a task in an object store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath
from fsspec.implementations.memory import MemoryFileSystem

from servicebus_pair.airflow_runtime.task_ledger import local_copy, open_ledger
from servicebus_pair.core.events import MessageRef, MessagesAccepted, Route
from servicebus_pair.core.ledger.reader import read_records
from servicebus_pair.core.ledger.segments import ledger_storage
from servicebus_pair.core.model.errors import ConfigurationError, ObserverError
from servicebus_pair.spark.base.folded_ledger import fold
from tests.airflow.conftest import RunDag, run_task
from tests.airflow.support import tasks

STORE = "memory://bucket/ledger"


@pytest.fixture(autouse=True)
def empty_store() -> Iterator[None]:
    import fsspec
    from airflow.sdk.io import attach

    memory = fsspec.filesystem("memory")
    attach("memory", fs=memory)  # Airflow knows the stores of its providers only
    yield
    memory.store.clear()


def records() -> list[dict[str, Any]]:
    files = sorted(ObjectStoragePath(STORE).rglob("*.jsonl"), key=str)
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line for line in lines if line["kind"] != "closed"]


def accepted(message_id: str) -> MessagesAccepted:
    return MessagesAccepted("flights", Route.PRIMARY, None, (MessageRef(message_id, 5),), 1.0)


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("given", [STORE, ObjectStoragePath(STORE)], ids=["url", "path"])
def test_every_task_with_a_ledger_writes_it_to_an_object_store_and_cost_reads_it(run_dag: RunDag, given: Any):
    """SPEC section 9: one record for each accepted message, and another for each moved one."""
    run_task(run_dag, tasks.provision)
    run_task(run_dag, lambda: tasks.fail_over(hold=0))
    sent = run_task(run_dag, lambda: tasks.send(ledger=given))["send"]
    drained = run_task(run_dag, lambda: tasks.drain(ledger=given))["drain"]
    run_task(run_dag, lambda: tasks.drill(ledger=given, messages=1))
    cost = run_task(run_dag, lambda: tasks.cost(ledger=given))["cost"]

    assert (sent["sent"], drained["moved"].get("flights", 0)) == (2, sent["diverted"])
    found = Counter(each["kind"] for each in records())
    assert found == {"sent": 2 + 1, "syphoned": sent["diverted"] + 1}
    assert cost["measured"]["operations"]["settlements"] == found["syphoned"]


def test_a_compacted_ledger_is_counted_in_an_object_store():
    """SPEC section 9: what was folded and is still there counts once."""
    with open_ledger(STORE, run="r") as ledger:
        ledger.observe(accepted("a"))
    [segment] = ledger_storage(STORE).list()
    fold(STORE, segment.name.rpartition("/")[0])
    with open_ledger(STORE, run="r") as ledger:
        ledger.observe(accepted("b"))
    with local_copy(STORE) as folder:
        assert sorted(each.message_id for each in read_records(folder) if each is not None) == ["a", "b"]


def test_a_store_that_does_not_take_an_object_fails_the_ledger(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError("read only")

    ledger: Any = open_ledger(STORE, run="r")
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    ledger.observe(accepted("a"))

    with pytest.raises(
        ObserverError, match=rf"ledger in {STORE.replace('//', '/+')} cannot be written, PermissionError: read"
    ):
        ledger.close()


def test_an_unknown_store_is_named():
    with pytest.raises(ConfigurationError, match=r"ledger 'nowhere://bucket' cannot be written, \w+: .*it must be"):
        open_ledger("nowhere://bucket", run="r")


def test_what_lies_in_a_folder_is_not_copied(tmp_path: Path):
    """A planted file with holes may be larger than the disk."""
    with open_ledger(f"file://{tmp_path}", run="r") as ledger:
        ledger.observe(accepted("a"))
    with local_copy(f"file://{tmp_path}") as folder:
        assert Path(folder) == tmp_path
        assert [each.message_id for each in read_records(folder) if each is not None] == ["a"]
