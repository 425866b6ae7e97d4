"""A message that the SDK cannot decode hides no other one from reconcile (SPEC section 9), and is told of."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import proton
import pytest

from servicebus_pair.spark.peeking import UNREADABLE, peek_task
from servicebus_pair.spark.places import Place
from servicebus_pair.spark.references import PairReference
from tests.core.hosted import BACKLOG, Hosted, hosted, messages
from tests.core.syphoning import put_raw


def settings(both: Hosted, home: Path) -> PairReference:
    sides = {"primary": both.primary, "secondary": both.secondary}
    written = {f"{side}_connection_string": each.connection_string for side, each in sides.items()}
    written |= {f"{side}_namespace": each.name for side, each in sides.items()}
    (home / "pair.json").write_text(json.dumps(written | {"backlog_queue_count": 1}))
    return PairReference.parse(f"file:{home / 'pair.json'}")


def seen(reference: PairReference, places: list[Place] | None) -> Counter[tuple[str, str | None]]:
    batches = peek_task(reference, places, 0, of=1)
    return Counter((row["location"], row["id"]) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("before", [0, 2])
async def test_what_stands_before_and_behind_it_is_seen_and_itself_is_counted(tmp_path: Path, before: int) -> None:
    async with hosted("flights", unchecked=True) as both:
        reference = settings(both, tmp_path)
        bad = proton.Message(id="bad", body="x", properties={"x-ms-path": "flights", "value": proton.char("z")})
        if before:
            await both.put_into_backlog("flights", messages(*range(before)))
        await asyncio.to_thread(put_raw, both.secondary, BACKLOG, bad)
        await both.put_into_backlog("flights", messages(8, 9))
        await asyncio.to_thread(put_raw, both.primary, "flights", bad)

        in_backlog = await asyncio.to_thread(seen, reference, None)
        arrived = await asyncio.to_thread(seen, reference, [Place("flights", "flights")])

        waiting = [f"m{number}" for number in (*range(before), 8, 9)]
        assert in_backlog == Counter([*(("backlog", each) for each in waiting), (UNREADABLE, None)])
        assert arrived == Counter([(UNREADABLE, None)])
