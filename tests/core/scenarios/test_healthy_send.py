"""A healthy send passes few modules, and asks each of them little (DESIGN section 1).

A profile counts each function of ours that is called, and each of our coroutines that is resumed: also those that are
asked for one value (the time, health, limits of a message) or that encode. Fewer modules wait for the outcome.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import servicebus_pair
from tests.core.support.local_pair import LocalPair, numbered

PRODUCT = str(Path(servicebus_pair.__file__).parent)
# One module checks the frame that answers.
MOST_MODULES, MOST_CALLS, MOST_AT_ONCE = 19, 130, 8


def modules_of(frame: FrameType | None) -> Iterator[str]:
    """Yield our modules from a frame to its outermost caller."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(PRODUCT):
            yield frame.f_code.co_filename.removeprefix(PRODUCT)
        frame = frame.f_back


@pytest.mark.fast_sdk
@pytest.mark.simulated
async def test_a_healthy_send_of_one_message_passes_few_modules_with_few_calls(local_pair: LocalPair) -> None:
    entered: Counter[str] = Counter()
    at_once: set[str] = set()

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal at_once
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            entered[frame.f_code.co_filename.removeprefix(PRODUCT)] += 1
            at_once = max(at_once, {*modules_of(frame)}, key=len)

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
    assert len(at_once) <= MOST_AT_ONCE, at_once
