"""A healthy send passes few modules, and asks each of them little (DESIGN section 1)."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import servicebus_pair
from tests.core.support.local_pair import LocalPair, numbered

PRODUCT = str(Path(servicebus_pair.__file__).parent)
MOST_MODULES, MOST_CALLS = 17, 111


@pytest.mark.fast_sdk
@pytest.mark.simulated
async def test_a_healthy_send_of_one_message_passes_few_modules_with_few_calls(local_pair: LocalPair) -> None:
    entered: Counter[str] = Counter()

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            entered[frame.f_code.co_filename.removeprefix(PRODUCT)] += 1

    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(5))
        sys.setprofile(count)
        try:
            await sender.send(numbered(1, start=5)[0])
        finally:
            sys.setprofile(None)
    assert await local_pair.primary_ids() == [f"m{n}" for n in range(6)]
    found = f"{len(entered)} modules, {entered.total()} calls, resumed coroutines among them: {entered.most_common()}"
    assert len(entered) <= MOST_MODULES, found
    assert entered.total() <= MOST_CALLS, found
