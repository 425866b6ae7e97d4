"""Waiters in one process share one client per namespace, pings and readings."""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.request
from contextvars import ContextVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from servicebus_emulator import Fault, FaultKind, RemoteNamespace
from servicebus_pair.airflow_runtime.waiting.pair_cache import SingleFlightCache, shared_pair
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger
from tests.airflow.conftest import CONN_ID, Pair, define_connection
from tests.airflow.support.queues import divert_session

MANY = 40
waiter: ContextVar[str] = ContextVar("waiter", default="none")


def metric(served: RemoteNamespace, name: str) -> float:
    """The sum of a metric of the embedded Service Bus."""
    with urllib.request.urlopen(f"http://{served.host}:{served.admin_port}/metrics", timeout=10) as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    return sum(
        sample.value for family in families for sample in family.samples if sample.name == f"servicebus_emulator_{name}"
    )


async def test_many_triggers_share_one_connection_and_one_ping_per_interval(pair: Pair):
    primary = pair.primary["contoso"]
    fault = primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    triggers = [
        PrimaryHealthTrigger(servicebus_pair_conn_id=CONN_ID, entities=["flights"], interval=1) for _ in range(MANY)
    ]
    began = time.monotonic()
    waiting = [asyncio.ensure_future(anext(trigger.run())) for trigger in triggers]
    connections = set()
    while (pings := metric(primary, "faults_struck_total")) < 3:
        connections.add(metric(primary, "connections"))
        await asyncio.wait(waiting, timeout=0.02)
    seconds = time.monotonic() - began

    assert max(connections) <= 1  # none between two pings
    assert pings <= seconds + 2  # one a second, however many wait
    primary.clear_faults(fault)
    events = await asyncio.wait_for(asyncio.gather(*waiting), 60)

    assert {tuple(event.payload["answered"]) for event in events} == {("flights",)}
    assert metric(primary, "connections") == 0


class LogByContext(logging.Handler):
    """Keeps log lines by the waiter in whose context they were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[str]] = {}
        self.two_waiters = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.setdefault(waiter.get(), []).append(record.getMessage())
        if len(self.lines) > 1:
            self.two_waiters.set()


async def test_a_shared_ping_is_logged_in_the_context_of_each_waiter(pair: Pair):
    """Airflow finds the log of a trigger by the context in which a line is logged."""
    pair.primary["contoso"].set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    handler = LogByContext()
    logger = logging.getLogger("servicebus_pair.airflow_runtime.waiting.primary")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    async def wait(name: str) -> None:
        waiter.set(name)
        await anext(PrimaryHealthTrigger(servicebus_pair_conn_id=CONN_ID, entities=["flights"], interval=1).run())

    try:
        waiting = [asyncio.create_task(wait(name)) for name in ("first", "second")]
        await asyncio.wait_for(handler.two_waiters.wait(), 60)
        pair.primary["contoso"].clear_faults()
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)

    assert sorted(handler.lines) == ["first", "second"]
    assert handler.lines["first"] == handler.lines["second"]
    assert handler.lines["first"][-1] == "entity=flights: the primary answers (answered)"


async def test_an_edited_connection_opens_a_second_pair(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    hook = ServiceBusPairHook(CONN_ID)
    async with shared_pair(hook) as before, shared_pair(hook) as same:
        pair.settings["failover_interval"] = 2
        define_connection(monkeypatch, pair.extra())
        async with shared_pair(hook) as after:
            intervals = [each.pair.options.failover_interval.total_seconds() for each in (before, same, after)]

    assert same is before
    assert intervals == [1, 1, 2]


async def test_only_one_waiter_emits_a_recovery(pair: Pair):
    hook = ServiceBusPairHook(CONN_ID)
    pair.primary.kill()
    async with shared_pair(hook) as shared:
        await shared.pair.fail_over("flights", reason="test")
        triggers = [
            PrimaryHealthTrigger(servicebus_pair_conn_id=CONN_ID, entities=["flights"], interval=1) for _ in range(5)
        ]
        waiting = [asyncio.ensure_future(anext(trigger.run())) for trigger in triggers]
        pair.primary.start()
        events = await asyncio.wait_for(asyncio.gather(*waiting), 30)

    assert [sorted(event.payload["recovered"]) for event in events if event.payload["recovered"]] == [["flights"]]


async def test_results_and_errors_are_cached_up_to_max_age():
    cache: SingleFlightCache[int] = SingleFlightCache()
    calls: list[int] = []

    async def call() -> int:
        calls.append(1)
        if len(calls) > 1:
            raise ConfigurationError("no")
        return 7

    assert await asyncio.gather(*(cache.get("a", call, max_age=60) for _ in range(5))) == [7] * 5
    assert len(calls) == 1
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            await cache.get("b", call, max_age=60)
    assert len(calls) == 2
    await cache.close()


async def test_a_result_can_be_asked_for_as_soon_as_it_is_there():
    cache: SingleFlightCache[int] = SingleFlightCache()

    async def call() -> int:
        return 7

    first = asyncio.ensure_future(cache.get("a", call, max_age=60))
    await asyncio.sleep(0)
    task = cache._calls["a"]
    while not task.done():
        await asyncio.sleep(0)
        # After the task's end and before its callbacks.
        assert await cache.get("a", call, max_age=60) == 7
    assert await first == 7
    cancelled = asyncio.ensure_future(cache.get("b", call, max_age=60))
    await asyncio.sleep(0)
    cache._calls["b"].cancel()
    await asyncio.wait({cancelled})
    assert await cache.get("b", call, max_age=60) == 7


async def test_a_call_continues_when_its_first_waiter_is_cancelled():
    cache: SingleFlightCache[int] = SingleFlightCache()
    go = asyncio.Event()

    async def call() -> int:
        await go.wait()
        return 7

    first = asyncio.ensure_future(cache.get("a", call, max_age=60))
    second = asyncio.ensure_future(cache.get("a", call, max_age=60))
    await asyncio.wait({first}, timeout=0.05)
    first.cancel()
    await asyncio.wait({first})
    go.set()

    assert await second == 7


async def test_an_entity_whose_session_a_syphon_holds_is_found(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    """SPEC section 6: only the holder of a session can peek it, and a killed one holds it for another minute."""
    pair.settings |= {"ordering": "session"}
    define_connection(monkeypatch, pair.extra())
    queue = session_queue_paths("contoso", 2)[0]
    async with shared_pair(ServiceBusPairHook(CONN_ID)) as shared:
        await shared.pair.provision()
        for entity in ("Flights", "delays", "e" * 200):
            await divert_session(pair, queue, entity, count=1)
        assert sorted((await shared.first_page(max_age=0)).destinations) == ["Flights", "delays", "e" * 200]
        held = shared.pair._open().secondary.session_link(queue, wait=1, session_id="flights")
        await held.accept(timeout=5)
        assert sorted((await shared.first_page(max_age=0)).destinations) == ["delays", "e" * 200, "flights"]
