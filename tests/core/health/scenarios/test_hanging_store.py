"""A store that hangs costs one thread and one warning: never a send, a token or the process's exit (SPEC section 4)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.support.processes import kill


@pytest.mark.parametrize("store", ["plain", "to_thread"])
async def test_section_4_sends_tokens_and_the_exit_of_a_process_do_not_wait_for_a_store_that_hangs(store: str) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-m", "tests.core.support.hanging_store_process", store),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[4],
    )
    try:
        assert program.stdout is not None
        assert await asyncio.wait_for(program.stdout.readline(), 60) == b"sent\n"
        assert await asyncio.wait_for(program.wait(), 10) == 0
    finally:
        kill(program)
        await program.wait()
