"""A message that the SDK cannot decode is reported and does not hide other messages (SPEC section 9)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from uuid import UUID

import proton
import pytest

from servicebus_pair.core import PairOptions
from servicebus_pair.core.protocol import new_message
from servicebus_pair.core.protocol.backlog_queues import backlog_session_id, session_queue_paths
from servicebus_pair.core.sdk import session_browser
from servicebus_pair.spark.analysis import peeking
from servicebus_pair.spark.analysis.peeking import UNREADABLE, peek_task
from servicebus_pair.spark.analysis.receiving_entities import ReceivingEntity
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.redaction import SparkTaskError
from tests.core.support.local_pair import BACKLOG, LocalPair, messages, open_local_pair
from tests.core.support.queues import send_raw


def settings(both: LocalPair, folder: Path, *, ordering: str = "none") -> PairReference:
    sides = {"primary": both.primary, "secondary": both.secondary}
    written = {f"{side}_connection_string": each.connection_string for side, each in sides.items()}
    written |= {f"{side}_namespace": each.name for side, each in sides.items()}
    (folder / "pair.json").write_text(json.dumps(written | {"backlog_queue_count": 1, "ordering": ordering}))
    return PairReference.parse(f"file:{folder / 'pair.json'}")


def peeked(
    reference: PairReference, entities: list[ReceivingEntity] | None, *diverted: str
) -> Counter[tuple[str, str | None]]:
    batches = peek_task(reference, entities, 0, tasks=1, diverted=diverted)
    return Counter((row["location"], row["id"]) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("before", [0, 2])
async def test_undecodable_message_is_counted_and_its_neighbors_are_read(tmp_path: Path, before: int) -> None:
    async with open_local_pair("flights", unchecked=True) as both:
        reference = settings(both, tmp_path)
        bad = proton.Message(id="bad", body="x", properties={"x-ms-path": "flights", "value": proton.char("z")})
        if before:
            await both.put_into_backlog("flights", messages(*range(before)))
        await asyncio.to_thread(send_raw, both.secondary, BACKLOG, bad)
        await both.put_into_backlog("flights", messages(8, 9))
        await asyncio.to_thread(send_raw, both.primary, "flights", bad)

        in_backlog = await asyncio.to_thread(peeked, reference, None)
        arrived = await asyncio.to_thread(peeked, reference, [ReceivingEntity("flights", "flights")])

        waiting = [f"m{number}" for number in (*range(before), 8, 9)]
        assert in_backlog == Counter([*(("backlog", each) for each in waiting), (UNREADABLE, None)])
        assert arrived == Counter([(UNREADABLE, None)])


async def test_ids_that_are_no_texts_are_read_as_the_ledger_has_them(tmp_path: Path) -> None:
    ids = {7: "7", UUID(int=1): str(UUID(int=1)), b"\xff": "\\xff"}
    async with open_local_pair("flights", unchecked=True) as both:
        reference = settings(both, tmp_path)
        for path, namespace in (("flights", both.primary), (BACKLOG, both.secondary)):
            bad = [proton.Message(id=each, body="x", properties={"x-ms-path": "flights"}) for each in ids]
            await asyncio.to_thread(send_raw, namespace, path, *bad)

        assert set(await asyncio.to_thread(peeked, reference, None)) == {("backlog", each) for each in ids.values()}
        arrived = await asyncio.to_thread(peeked, reference, [ReceivingEntity("flights", "flights")])
        assert set(arrived) == {("active", each) for each in ids.values()}


async def test_section_6_every_session_of_the_backlog_is_read_and_one_that_a_syphon_holds_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out, its messages would be classified as lost (SPEC section 9)."""
    monkeypatch.setattr(peeking, "_SESSION_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(session_browser, "_RETRY_DELAY", 0.1)
    options = PairOptions(backlog_queue_count=1, ordering="session")
    async with open_local_pair("flights", options=options) as both:
        secondary = both.pair._open().secondary
        [queue] = session_queue_paths("contoso", 1)
        for entity in ("Flights", "delays"):
            message = new_message(
                "x",
                message_id=entity,
                session_id=backlog_session_id(entity),
                application_properties={"x-ms-path": entity, "x-ms-sessionid": "s"},
            )
            await secondary.send_link(queue).send_ping(message, timeout=5)
        reference = settings(both, tmp_path, ordering="session")
        everything = Counter({("backlog", "Flights"): 1, ("backlog", "delays"): 1})
        assert await asyncio.to_thread(peeked, reference, None) == everything

        syphon = secondary.session_link(queue, wait=1, session_id="flights")
        await syphon.accept(timeout=5)
        with pytest.raises(SparkTaskError, match="messages cannot be examined: wait for the end of the drain"):
            await asyncio.to_thread(peeked, reference, None, "FLIGHTS")
        waiting = asyncio.create_task(asyncio.to_thread(peeked, reference, None, "FLIGHTS"))
        await asyncio.sleep(0.2)
        await syphon.close()
        assert await waiting == everything
        assert await asyncio.to_thread(peeked, reference, None, "nothing-there") == everything


async def test_section_3_a_session_queue_that_does_not_exist_is_absent(tmp_path: Path) -> None:
    async with open_local_pair("flights", options=PairOptions(backlog_queue_count=1)) as both:
        reference = settings(both, tmp_path, ordering="session")
        assert await asyncio.to_thread(peeked, reference, None) == Counter({("absent", None): 2})


async def test_a_ledger_has_no_other_queues_read_than_those_of_the_backlog(tmp_path: Path) -> None:
    """Whoever may write to the ledger reads nothing else with the rights of the job."""
    former = "contoso/x-servicebus-transfer/7"
    named = ["private", "", "other/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/100"]
    async with open_local_pair("flights") as both:
        task = peek_task(settings(both, tmp_path), None, 0, tasks=1, recorded_queues=[*named, former])
        rows = await asyncio.to_thread(lambda: [row for batch in task for row in batch.to_pylist()])

    assert {row["place"] for row in rows} == {former}
