"""What waits in one process shares one client per namespace and the answers of the primary (issue 5)."""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.request
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.hooks.sharing import FreshAnswers, WatchedPair, watched_pair
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger
from tests.airflow.conftest import CONN_ID, Pair

if TYPE_CHECKING:
    from servicebus_emulator import ServedNamespace

MANY = 40
whose: ContextVar[str] = ContextVar("whose", default="nobody's")


def figure(served: ServedNamespace, name: str) -> float:
    """The sum of a metric of the embedded Service Bus."""
    with urllib.request.urlopen(f"http://{served.host}:{served.admin_port}/metrics", timeout=10) as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    return sum(
        sample.value for family in families for sample in family.samples if sample.name == f"servicebus_emulator_{name}"
    )


async def test_many_waiting_triggers_ping_an_entity_as_if_they_were_one_over_one_connection(pair: Pair):
    primary = pair.primary["contoso"]
    fault = primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    triggers = [PrimaryHealthTrigger(conn_id=CONN_ID, entities=["flights"], interval=1) for _ in range(MANY)]
    began = time.monotonic()
    waiting = [asyncio.ensure_future(anext(trigger.run())) for trigger in triggers]
    connections = set()
    while (pings := figure(primary, "faults_struck_total")) < 3:
        connections.add(figure(primary, "connections"))
        await asyncio.wait(waiting, timeout=0.02)
    seconds = time.monotonic() - began

    assert max(connections) == 1
    assert pings <= seconds + 2  # one a second, however many wait
    primary.clear_faults(fault)
    events = await asyncio.wait_for(asyncio.gather(*waiting), 60)

    assert {tuple(event.payload["answered"]) for event in events} == {("flights",)}
    assert figure(primary, "connections") == 0


class Told(logging.Handler):
    """Keeps log lines by whose context they were logged in."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[str]] = {}
        self.by_two = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.setdefault(whose.get(), []).append(record.getMessage())
        if len(self.lines) > 1:
            self.by_two.set()


async def test_what_a_trigger_learns_from_a_shared_ping_is_told_in_its_own_log(pair: Pair):
    """Airflow finds the log of a trigger by the context in which a line is logged."""
    pair.primary["contoso"].set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    handler = Told()
    logger = logging.getLogger("servicebus_pair.hooks.waiting")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    async def wait(name: str) -> None:
        whose.set(name)
        await anext(PrimaryHealthTrigger(conn_id=CONN_ID, entities=["flights"], interval=1).run())

    try:
        waiting = [asyncio.create_task(wait(name)) for name in ("first", "second")]
        await asyncio.wait_for(handler.by_two.wait(), 60)
        pair.primary["contoso"].clear_faults()
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)

    assert sorted(handler.lines) == ["first", "second"]
    assert handler.lines["first"] == handler.lines["second"]
    assert handler.lines["first"][-1] == "entity=flights: the primary answers (answered)"


@pytest.mark.apart
async def test_who_leaves_first_takes_the_shared_pair_from_nobody(pair: Pair):
    pair.primary.kill()
    first, second = (PrimaryHealthTrigger(conn_id=CONN_ID, entities=["flights"], interval=1) for _ in range(2))
    leaving = asyncio.ensure_future(anext(first.run()))
    staying = asyncio.ensure_future(anext(second.run()))
    await asyncio.wait({leaving, staying}, timeout=2)

    leaving.cancel()
    await asyncio.wait({leaving})
    pair.primary.start()
    event = await asyncio.wait_for(staying, 60)

    assert event.payload["answered"] == ["flights"]


async def test_an_edited_connection_is_another_pair_and_the_old_one_stays_as_long_as_it_is_used(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    hook = ServiceBusPairHook(CONN_ID)
    async with watched_pair(hook) as before, watched_pair(hook) as same:
        pair.settings["failover_interval"] = 2
        monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", pair.connection())
        async with watched_pair(hook) as after:
            intervals = [each.pair.options.failover_interval.total_seconds() for each in (before, same, after)]

    assert same is before
    assert intervals == [1, 1, 2]


@pytest.mark.apart
async def test_a_recovery_is_announced_by_one_of_those_who_waited_for_it(pair: Pair):
    hook = ServiceBusPairHook(CONN_ID)
    pair.primary.kill()
    async with watched_pair(hook) as watched:
        watched.pair.fail_over("flights", reason="test")
        triggers = [PrimaryHealthTrigger(conn_id=CONN_ID, entities=["flights"], interval=1) for _ in range(5)]
        waiting = [asyncio.ensure_future(anext(trigger.run())) for trigger in triggers]
        pair.primary.start()
        events = await asyncio.wait_for(asyncio.gather(*waiting), 30)

    assert [sorted(event.payload["recovered"]) for event in events if event.payload["recovered"]] == [["flights"]]


async def test_a_connection_that_cannot_be_read_is_told_to_all_who_ask_and_leaves_nothing_open():
    hook = ServiceBusPairHook("nowhere")

    async def use() -> WatchedPair:
        async with watched_pair(hook) as watched:
            return watched

    found = await asyncio.gather(*(use() for _ in range(3)), return_exceptions=True)

    assert all(isinstance(each, Exception) for each in found)


async def test_a_young_answer_serves_all_who_ask_and_a_failure_is_an_answer_too():
    answers: FreshAnswers[int] = FreshAnswers()
    asked: list[int] = []

    async def question() -> int:
        asked.append(1)
        if len(asked) > 1:
            raise ConfigurationError("no")
        return 7

    assert await asyncio.gather(*(answers.ask("a", question, young=60) for _ in range(5))) == [7] * 5
    assert len(asked) == 1
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            await answers.ask("b", question, young=60)
    assert len(asked) == 2
    await answers.close()


async def test_a_question_goes_on_when_the_one_who_asked_first_is_cancelled():
    answers: FreshAnswers[int] = FreshAnswers()
    go = asyncio.Event()

    async def question() -> int:
        await go.wait()
        return 7

    first = asyncio.ensure_future(answers.ask("a", question, young=60))
    second = asyncio.ensure_future(answers.ask("a", question, young=60))
    await asyncio.wait({first}, timeout=0.05)
    first.cancel()
    await asyncio.wait({first})
    go.set()

    assert await second == 7
