"""Commit messages of tasks are merged into the manifest of the write."""

from __future__ import annotations

from servicebus_pair.core.events import SLOT_SECONDS, MessageRef, MessagesAccepted, Route
from servicebus_pair.core.ledger import EntityManifest
from servicebus_pair.core.model.health_state import HEALTHY
from servicebus_pair.spark.datasource.commit_messages import (
    AcceptanceCounter,
    TaskCommitMessage,
    merge_commit_messages,
)

SLOT = 1000
AT = float(SLOT * SLOT_SECONDS)
QUEUE = "contoso/x-servicebus-transfer/0"


def test_tasks_are_merged_by_entity_route_and_slot():
    first, second = AcceptanceCounter(), AcceptanceCounter()
    refs = (MessageRef("m-1", 100), MessageRef("m-2", 50))
    first.observe(MessagesAccepted("flights", Route.PRIMARY, None, refs, AT))
    first.observe(MessagesAccepted("flights", Route.BACKLOG, QUEUE, refs[:1], AT + SLOT_SECONDS))
    second.observe(MessagesAccepted("flights", Route.BACKLOG, QUEUE, refs, AT + 1))
    assert first.summary() == "2 messages accepted by the primary and 1 by the backlog"
    tasks = [
        TaskCommitMessage("r", each.manifests({"flights": HEALTHY}), each.bytes, started_at, started_at + 3)
        for each, started_at in ((first, AT), (second, AT + 2))
    ]
    merged = merge_commit_messages(tasks)
    assert merged.entities == {
        "flights": EntityManifest(2, 3, HEALTHY, {SLOT: (2, 2), SLOT + 1: (0, 1)}, diverted_at=AT + 1)
    }
    assert (merged.run, merged.bytes, merged.seconds) == ("r", 400, 5.0)
