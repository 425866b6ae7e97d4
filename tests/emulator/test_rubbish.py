"""Issue 3: rubbish on its ports never kills it, and never makes it grow without bound. The seed is fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import psutil
import pytest

from servicebus_emulator import EmulatorProcess, ServedNamespace
from tests.emulator import rubbish

MOST_MEGABYTES = 400


@pytest.fixture
def process() -> Iterator[EmulatorProcess]:
    with EmulatorProcess(["contoso"], log_level="ERROR") as started:
        yield started


@pytest.mark.parametrize("kind", rubbish.KINDS, ids=[kind.__name__ for kind in rubbish.KINDS])
def test_rubbish_neither_kills_it_nor_fills_its_memory(
    process: EmulatorProcess, kind: Callable[[ServedNamespace, Random], None]
):
    place = process["contoso"]
    rubbish.prepare(place)
    random = rubbish.luck(20261120)
    for _ in range(30 if kind in {rubbish.random_bytes, rubbish.broken_frames} else 1):
        kind(place, random)
    assert rubbish.still_works(place)
    assert psutil.Process(process.pid).memory_info().rss < MOST_MEGABYTES << 20


def test_it_is_durable_rubbish_too(tmp_path: Path):
    with EmulatorProcess(["contoso"], data=tmp_path, log_level="ERROR") as process:
        place = process["contoso"]
        rubbish.prepare(place)
        rubbish.messages(place, rubbish.luck(1))
        process.kill()
        process.restore()
        assert rubbish.still_works(place)
