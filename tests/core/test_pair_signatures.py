"""A shared access signature that ends: an error at first, a suspicion where it had worked before (SPEC section 4)."""

from __future__ import annotations

import asyncio
import time

import pytest

from servicebus_emulator import Fault, FaultKind, HostedNamespace
from servicebus_emulator.security.sas import sign
from servicebus_pair.core import Endpoint, NamespacePair
from servicebus_pair.core.errors import AuthenticationError, SendError
from servicebus_pair.core.health import EntityHealth, State
from tests.core.breakable import GRACE, INTERVAL, QUICK, Breakable, Recorder, endpoint, numbered

pytestmark = pytest.mark.simulated


def signed(hosted: HostedNamespace, *, expires: float) -> Endpoint:
    host = f"{hosted.host}:{hosted.amqp_port}"
    root = hosted.namespace.access_rules.root
    token = sign(f"sb://{host}/", rule="RootManageSharedAccessKey", key=root.primary_key, expires=int(expires))
    text = f"Endpoint=sb://{host};SharedAccessSignature={token};UseDevelopmentEmulator=true;"
    return Endpoint.from_connection_string(
        text, namespace=hosted.name, administration=f"{hosted.host}:{hosted.admin_port}"
    )


async def test_section_4_a_signature_that_has_ended_before_it_was_used_is_an_error_of_the_caller(
    breakable: Breakable,
) -> None:
    ends = signed(breakable.primary, expires=time.time() - 5), endpoint(breakable.secondary)
    async with NamespacePair(*ends, QUICK) as pair, pair.sender("flights") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
        assert isinstance(caught.value.cause, AuthenticationError)
        assert len(caught.value.unsent) == 2
        assert pair.health("flights") == EntityHealth(State.HEALTHY, 0.0)
    assert "SharedAccessSignature sr" not in str(caught.value)


async def test_section_4_a_signature_that_ends_while_it_is_used_diverts_in_time_and_names_the_suspicion(
    breakable: Breakable,
) -> None:
    recorder = Recorder()
    ends_at = time.time() + 4
    ends = signed(breakable.primary, expires=ends_at), endpoint(breakable.secondary)
    async with NamespacePair(*ends, QUICK, observers=[recorder]) as pair, pair.sender("flights") as sender:
        assert (await sender.send(numbered(1))).primary == 1
        await asyncio.sleep(max(0.0, ends_at + 1 - time.time()))
        # Whatever makes the client bring its token again.
        breakable.primary.set_fault(Fault(kind=FaultKind.RESET, count=1))
        began = asyncio.get_running_loop().time()
        assert (await sender.send(numbered(2, start=1))).diverted == 2
        assert asyncio.get_running_loop().time() - began < INTERVAL + GRACE
        assert "ServiceBusAuthenticationError" in pair.health("flights").reason
    assert recorder.states[-1] is State.FAILED_OVER
