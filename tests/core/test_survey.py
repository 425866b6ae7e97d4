"""A dry run while the secondary is in trouble (SPEC section 6)."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core.errors import ServiceError
from tests.core.hosted import hosted, messages

pytestmark = pytest.mark.simulated


async def test_section_6_a_dry_run_of_a_service_in_trouble_is_an_error_and_no_search_for_a_bad_message() -> None:
    async with hosted("flights") as here:
        await here.put_into_backlog("flights", messages(1, 2, 3))
        trouble = here.secondary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.MANAGE,)))
        with pytest.raises(ServiceError, match="peek at"):
            await asyncio.wait_for(here.pair.syphon().survey(), 15)
        [cleared] = here.secondary.clear_faults(trouble.id)
        assert cleared.strikes == 3, "a page, a single message, and one where there is none"
        assert (await here.pair.syphon().survey()).destinations["flights"].messages == 3
