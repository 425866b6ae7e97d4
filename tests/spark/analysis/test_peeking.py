"""A message that the SDK cannot decode is reported and does not hide other messages (SPEC section 9)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import proton
import pytest

from servicebus_pair.spark.analysis.peeking import UNREADABLE, peek_task
from servicebus_pair.spark.analysis.receiving_entities import ReceivingEntity
from servicebus_pair.spark.base.credential_reference import PairReference
from tests.core.support.local_pair import BACKLOG, LocalPair, messages, open_local_pair
from tests.core.support.queues import send_raw


def settings(both: LocalPair, folder: Path) -> PairReference:
    sides = {"primary": both.primary, "secondary": both.secondary}
    written = {f"{side}_connection_string": each.connection_string for side, each in sides.items()}
    written |= {f"{side}_namespace": each.name for side, each in sides.items()}
    (folder / "pair.json").write_text(json.dumps(written | {"backlog_queue_count": 1}))
    return PairReference.parse(f"file:{folder / 'pair.json'}")


def peeked(reference: PairReference, entities: list[ReceivingEntity] | None) -> Counter[tuple[str, str | None]]:
    batches = peek_task(reference, entities, 0, tasks=1)
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
