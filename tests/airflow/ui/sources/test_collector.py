from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core import NamespacePair
from servicebus_pair.core.pair.settings import PairSettings
from servicebus_pair.core.protocol import new_message
from servicebus_pair.core.protocol.backlog_queues import BACKLOG_QUEUE, session_queue_paths
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.ui.sources.airflow_queries import Records
from servicebus_pair.ui.sources.collector import Collector, _dead_letter_view
from servicebus_pair.ui.view.view_builder import build_pair_view
from servicebus_pair.ui.views import PairView
from tests.airflow.conftest import BACKLOG, CONN_ID, KEY, Pair, define_connection
from tests.airflow.support.queues import divert, divert_session


@pytest.fixture
def settings(pair: Pair) -> PairSettings:  # noqa: ARG001  its connection
    return ServiceBusPairHook(CONN_ID).get_settings()


def view_of(collector: Collector) -> PairView:
    return view_with(collector, collector.settings)


def view_with(collector: Collector, settings: PairSettings) -> PairView:
    return build_pair_view(CONN_ID, settings, collector.status, Records(), now=time.time())


@pytest.mark.usefixtures("pair")
async def test_missing_extra_and_drifted_queues_are_found(settings: PairSettings):
    collector = Collector(settings)
    async with ServiceBusAdministration(settings.secondary) as administration:
        await administration.create_queue(
            "contoso/x-servicebus-transfer/0", replace(BACKLOG_QUEUE, lock_duration="PT30S")
        )
        await administration.create_queue("contoso/x-servicebus-transfer/7", BACKLOG_QUEUE)
        await administration.create_queue("unrelated/queue", BACKLOG_QUEUE)
    await collector.collect()

    backlog = view_of(collector).backlog

    states = {queue.path: queue.state for queue in backlog.queues}
    assert states == {
        f"contoso/x-servicebus-transfer/{n}": state for n, state in ((0, "in use"), (1, "missing"), (7, "extra"))
    }
    assert [(drift.field, drift.expected, drift.actual) for drift in backlog.drift] == [
        ("lock_duration", "PT1M", "PT30S")
    ]
    assert (list(backlog.extra), list(backlog.missing)) == (
        ["contoso/x-servicebus-transfer/7"],
        ["contoso/x-servicebus-transfer/1"],
    )


async def test_session_queues_are_counted_and_not_peeked(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    """SPEC section 6: the broker gives a session to one at a time, so a look must not take it."""
    pair.settings |= {"ordering": "session"}
    define_connection(monkeypatch, pair.extra())
    settings = ServiceBusPairHook(CONN_ID).get_settings()
    collector = Collector(settings)
    async with NamespacePair(settings.primary, settings.secondary, settings.options) as opened:
        await opened.provision()
    used, empty = session_queue_paths("contoso", 2)
    await divert_session(pair, used, count=2)

    await collector.collect()

    backlog = view_of(collector).backlog
    counted = {queue.path: (queue.active, queue.requires_session, queue.state) for queue in backlog.queues}
    assert counted == {
        **dict.fromkeys(BACKLOG, (0, False, "in use")),
        used: (2, True, "in use"),
        empty: (0, True, "in use"),
    }
    assert (backlog.messages, backlog.oldest_seconds, backlog.error) == (2, None, None)
    assert collector.status.operations == 2
    unordered = replace(settings, options=replace(settings.options, ordering="none"))
    states = {queue.path: queue.state for queue in view_with(collector, unordered).backlog.queues}
    assert states == {**dict.fromkeys(BACKLOG, "in use"), used: "extra", empty: "extra"}


async def test_ages_destinations_and_dead_letters_are_peeked(pair: Pair, settings: PairSettings):
    await divert(pair, "flights", count=3)
    await divert(pair, "nowhere", count=2)
    async with NamespacePair(settings.primary, settings.secondary, settings.options) as opened:
        await opened.syphon(entities=["nowhere"]).drain()
    collector = Collector(settings)
    await collector.collect()

    view = view_of(collector)

    assert [(entity.entity, entity.state, entity.waiting) for entity in view.entities] == [("flights", "diverted", 3)]
    assert (view.backlog.messages, view.backlog.dead_lettered) == (3, 2)
    assert view.backlog.oldest_seconds is not None
    assert 0 <= view.backlog.oldest_seconds < 60
    (reason,) = view.backlog.dead_letter_reasons
    assert view.backlog.dead_letter_reasons[reason] == 2
    assert {letter.destination for letter in view.backlog.dead_letters} == {"nowhere"}
    assert collector.status.operations == 2 + 2


def test_a_dead_letter_shows_no_secret_that_an_application_wrote_as_its_reason():
    message: Any = SimpleNamespace(
        message_id="m",
        dead_letter_reason="SharedAccessKey=own",
        dead_letter_error_description=f"{'.' * 280} SharedAccessKey=own",
        enqueued_time=None,
        amqp=new_message("b", message_id="m"),
    )

    found = _dead_letter_view("queue", message)

    assert (found.reason, found.description) == ("SharedAccessKey=***", f"{'.' * 280} SharedAccessKey=***"[:300])


async def test_idle_pair_costs_one_operation_per_collection_and_one_per_minute(settings: PairSettings):
    collector = Collector(settings)

    for _ in range(3):
        await collector.collect()

    assert collector.status.operations == 3 + 1


async def test_a_spool_whose_library_is_missing_hides_nothing_else(
    settings: PairSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    settings = replace(settings, options=replace(settings.options, spool="s3://bucket/spool"))
    collector = Collector(settings)
    for _ in range(2):
        await collector.collect()

    view = view_of(collector)
    assert (view.primary.reachable, view.backlog.error) == (True, None)
    assert view.spool.error == "this server cannot open it, and its log says why"
    [line] = [each for each in caplog.records if "spool" in each.getMessage()]
    assert "Install s3fs" in line.getMessage()
    assert line.exc_info is None


async def test_collecting_from_two_dead_namespaces_ends_with_their_errors(pair: Pair, settings: PairSettings):
    collector = Collector(settings)
    pair.primary.kill()
    pair.secondary.freeze()
    started = time.monotonic()
    try:
        await collector.collect()
    finally:
        pair.secondary.thaw()

    view = view_of(collector)
    assert time.monotonic() - started < 10
    assert (view.primary.reachable, view.secondary.reachable) == (False, False)
    assert "Connect call failed" in (view.primary.error or "")
    assert (view.secondary.error, view.backlog.error) == ("no response within 3 s", "no response within 4 s")
    assert KEY not in json.dumps([view.primary.error, view.secondary.error, view.backlog.error])
