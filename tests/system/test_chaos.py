"""Kills, freezes and resets of every process lose nothing (SPEC sections 1 and 6); the long run is `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.chaos.__main__ import run


@pytest.mark.system
@pytest.mark.slow
async def test_a_short_run_of_chaos_loses_nothing_and_what_is_detected_comes_once(tmp_path: Path) -> None:
    verdict = await run(seconds=8, seed=7, folder=tmp_path, lock="PT5S")
    assert verdict.sent > 0
    assert verdict.kills + verdict.faults > 0
    assert verdict.holds, verdict
