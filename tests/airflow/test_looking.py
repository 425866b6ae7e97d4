"""How the page looks at two namespaces: by every way in, in any state of the queues, and never for long."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

from servicebus_emulator import Emulator
from servicebus_pair.core import Endpoint, NamespacePair
from servicebus_pair.core.administration import ServiceBusAdministration
from servicebus_pair.core.backlog import BACKLOG_QUEUE
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.ui.building import build_pair
from servicebus_pair.ui.greeting import greet
from servicebus_pair.ui.looking import Looker
from servicebus_pair.ui.records import Note, Records
from servicebus_pair.ui.snapshot import PairView
from tests.airflow.conftest import CONN_ID, KEY, Pair
from tests.airflow.queues import divert

if TYPE_CHECKING:
    from pathlib import Path

    from servicebus_pair.core.configuration import PairSettings

NOW = 1_800_000_000.0


@pytest.fixture
def settings(pair: Pair) -> PairSettings:  # noqa: ARG001  its connection
    return ServiceBusPairHook(CONN_ID).get_settings()


def seen(looker: Looker) -> PairView:
    return build_pair(CONN_ID, looker.settings, looker.last, Records(), now=time.time())


@pytest.mark.parametrize("transport", ["amqp", "websocket"])
@pytest.mark.parametrize("tls", [False, True])
async def test_a_greeting_goes_by_every_way_in(transport: str, tls: bool):
    async with Emulator(["contoso"], key=KEY) as emulator:
        served = emulator["contoso"]
        text = f"Endpoint=sb://localhost:{served.amqp_port};SharedAccessKeyName=Root;SharedAccessKey={KEY}"
        endpoint = Endpoint.from_connection_string(
            text if tls else f"{text};UseDevelopmentEmulator=true",
            namespace="contoso",
            transport=transport,
            ca_file=str(served.ca_file) if tls else None,
        )

        assert 0 < await greet(endpoint, seconds=5) < 5


async def test_what_answers_otherwise_or_not_at_all_is_not_reached(unused_tcp_port: int):
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        await closing.wait()
        writer.close()

    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    def at(port: int) -> Endpoint:
        text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
        return Endpoint.from_connection_string(text, namespace="contoso")

    closing = asyncio.Event()
    for serve, failure in ((mute, TimeoutError), (web, ConnectionError)):
        async with await asyncio.start_server(serve, "127.0.0.1") as server:
            with pytest.raises(failure):
                await greet(at(server.sockets[0].getsockname()[1]), seconds=0.3)
            closing.set()
    with pytest.raises(ConnectionRefusedError):
        await greet(at(unused_tcp_port), seconds=5)


@pytest.mark.usefixtures("pair")
async def test_missing_extra_and_differing_queues_are_told(settings: PairSettings):
    looker = Looker(settings)
    async with ServiceBusAdministration(settings.secondary) as administration:
        from dataclasses import replace

        await administration.create_queue(
            "contoso/x-servicebus-transfer/0", replace(BACKLOG_QUEUE, lock_duration="PT30S")
        )
        await administration.create_queue("contoso/x-servicebus-transfer/7", BACKLOG_QUEUE)
        await administration.create_queue("somebody/elses", BACKLOG_QUEUE)
    await looker.look()

    backlog = seen(looker).backlog

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


async def test_ages_destinations_and_dead_letters_are_found_by_peeking(pair: Pair, settings: PairSettings):
    await divert(pair, "flights", count=3)
    await divert(pair, "nowhere", count=2)
    async with NamespacePair(settings.primary, settings.secondary, settings.options) as opened:
        await opened.syphon(entities=["nowhere"]).drain()
    looker = Looker(settings)
    await looker.look()

    view = seen(looker)

    # Left there by a sender that Airflow does not know.
    assert [(entity.entity, entity.state, entity.waiting) for entity in view.entities] == [("flights", "diverted", 3)]
    assert (view.backlog.messages, view.backlog.dead_lettered) == (3, 2)
    assert view.backlog.oldest_seconds is not None
    assert 0 <= view.backlog.oldest_seconds < 60
    (reason,) = view.backlog.dead_letter_reasons
    assert view.backlog.dead_letter_reasons[reason] == 2
    assert {letter.destination for letter in view.backlog.dead_letters} == {"nowhere"}
    assert looker.last.operations == 2 + 2


async def test_looks_at_an_idle_pair_cost_one_call_each_and_another_one_a_minute(settings: PairSettings):
    looker = Looker(settings)

    for _ in range(3):
        await looker.look()

    assert looker.last.operations == 3 + 1


@pytest.mark.apart
async def test_a_look_at_two_dead_namespaces_ends_and_says_why(pair: Pair, settings: PairSettings, tmp_path: Path):  # noqa: ARG001
    looker = Looker(settings)
    pair.primary.kill()
    pair.secondary.freeze()
    began = time.monotonic()
    try:
        await looker.look()
    finally:
        pair.secondary.thaw()

    view = seen(looker)
    assert time.monotonic() - began < 10
    assert (view.primary.reachable, view.secondary.reachable) == (False, False)
    assert "Connect call failed" in (view.primary.error or "")
    assert (view.secondary.error, view.backlog.error) == ("no answer within 3 s", "no answer within 4 s")
    assert KEY not in json.dumps([view.primary.error, view.secondary.error, view.backlog.error])


def test_a_connection_that_cannot_be_used_is_a_pair_with_a_problem():
    view = build_pair(CONN_ID, "conn_id 'contoso_pair': setting primary_host is ''", None, Records(), now=NOW)

    assert view.problem == "conn_id 'contoso_pair': setting primary_host is ''"
    assert (view.primary.name, view.entities, view.backlog.counted_at) == ("?", [], None)


def test_a_health_that_cannot_be_read_is_shown_as_such():
    records = Records(states={CONN_ID: {"health/flights": {"state": "exploded"}, "health/gates": 7, "other": 1}})

    view = build_pair(CONN_ID, "no settings", None, records, now=NOW)

    assert [(entity.entity, entity.state) for entity in view.entities] == [
        ("flights", "unreadable"),
        ("gates", "unreadable"),
    ]


def test_the_time_that_a_drain_still_takes_is_that_of_the_tasks_at_work(settings: PairSettings):
    from servicebus_pair.core.administration import QueueDepth
    from servicebus_pair.ui.looking import Look
    from servicebus_pair.ui.snapshot import NamespaceView

    def drain(number: int, state: str, syphoned: int, per_second: float) -> Note:
        notes = {"v": 1, "at": NOW - number, "syphoned": syphoned, "per_second": per_second}
        return Note("recovery", "run", "drain", number, state, drains=True, notes=notes)

    tasks = [
        drain(0, "success", 500, 90.0),
        drain(1, "running", 40, 8.0),
        drain(2, "running", 60, 2.0),
        drain(3, "deferred", 7, 9.0),
    ]
    depth = QueueDepth("contoso/x-servicebus-transfer/0", active=300, scheduled=0, dead_lettered=0, size_bytes=1)
    look = Look(primary=NamespaceView(name="a"), secondary=NamespaceView(name="b"), depths=[depth], counted_at=NOW)

    syphon = build_pair(CONN_ID, settings, look, Records(notes={CONN_ID: tasks}), now=NOW).syphon

    # What the run has moved, by the task that has ended too: otherwise the progress went back when one ends.
    assert (syphon.running, syphon.moved, syphon.per_second) == (3, 607, 10.0)
    assert (syphon.remaining, syphon.eta_seconds) == (300, 30.0)
    assert [task.map_index for task in syphon.drains] == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("counts", "per_second", "eta"),
    [
        ([(NOW - 30, 900), (NOW - 5, 350), (NOW, 300)], 20.0, 15.0),
        ([(NOW - 30, 100), (NOW, 300)], 0.0, None),
        ([(NOW, 300)], 0.0, None),
    ],
)
def test_a_drain_that_is_no_task_is_seen_by_how_the_backlog_shrinks(
    settings: PairSettings, counts: list[tuple[float, int]], per_second: float, eta: float | None
):
    from servicebus_pair.core.administration import QueueDepth
    from servicebus_pair.ui.looking import Look
    from servicebus_pair.ui.snapshot import NamespaceView

    depth = QueueDepth("contoso/x-servicebus-transfer/0", active=300, scheduled=0, dead_lettered=0, size_bytes=1)
    ends = {"primary": NamespaceView(name="a"), "secondary": NamespaceView(name="b")}
    look = Look(**ends, depths=[depth], counted_at=NOW, counts=counts)

    syphon = build_pair(CONN_ID, settings, look, Records(), now=NOW).syphon

    assert (syphon.running, syphon.per_second, syphon.eta_seconds) == (0, per_second, eta)
