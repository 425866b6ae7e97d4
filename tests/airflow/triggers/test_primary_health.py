"""``PrimaryHealthTrigger``: events and cancellation."""

from __future__ import annotations

import asyncio
import time

import pytest

from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger
from tests.airflow.conftest import CONN_ID, Pair


@pytest.mark.usefixtures("pair")
async def test_refused_entities_count_as_answered():
    event = await anext(
        PrimaryHealthTrigger(servicebus_pair_conn_id=CONN_ID, entities=["flights", "unknown"], interval=1).run()
    )

    assert event.payload == {"answered": ["flights"], "refused": {"unknown": "EntityNotFoundError"}, "recovered": {}}


async def test_cancelling_the_trigger_ends_it_promptly(pair: Pair):
    pair.primary.freeze()
    trigger = PrimaryHealthTrigger(servicebus_pair_conn_id=CONN_ID, entities=["flights"], interval=1)
    waiting = asyncio.ensure_future(anext(trigger.run()))
    await asyncio.wait({waiting}, timeout=1)

    waiting.cancel()
    began = time.monotonic()
    await asyncio.wait({waiting}, timeout=20)
    pair.primary.thaw()

    assert waiting.cancelled()
    assert time.monotonic() - began < 6  # closing is bounded too
