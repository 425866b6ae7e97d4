"""What works on a namespace, told right by right, without a trace left in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Emulator, Fault, FaultKind
from servicebus_emulator.engine.descriptions import AccessRight, QueueDescription
from servicebus_pair.core import errors
from servicebus_pair.core.endpoint_settings import read_endpoint
from servicebus_pair.core.errors import ServiceError
from servicebus_pair.core.inspection import Attempts, Finding, findings, inspect_namespace
from servicebus_pair.core.options import Endpoint
from tests.core.breakable import endpoint
from tests.core.entra import entra, settings_of

RIGHTS = ("reach", "authenticate", "send", "listen", "manage")
LOST = errors.UnreachableError("lost")
LATE = errors.TimedOutError("late")
STRANGER = errors.AuthenticationError("who?")
DENIED = errors.AuthorizationError("no")
ABSENT = errors.EntityNotFoundError("no such queue")
Y, N, U = True, False, None


@pytest.mark.parametrize(
    ("send", "listen", "manage", "queue", "works"),
    [
        (None, None, None, "q", (Y, Y, Y, Y, Y)),
        (None, DENIED, STRANGER, "q", (Y, Y, Y, N, N)),
        (DENIED, None, DENIED, "q", (Y, Y, N, Y, N)),
        (LOST, LATE, LOST, "q", (N, U, N, N, N)),
        (LATE, None, None, "q", (Y, Y, N, Y, Y)),
        (STRANGER, STRANGER, STRANGER, "q", (Y, N, N, N, N)),
        (ABSENT, ABSENT, None, None, (Y, Y, U, U, Y)),
        (ABSENT, ABSENT, STRANGER, None, (Y, Y, U, U, N)),
        # Azure refuses a token for what is not there: the administration knows better, if it may be asked.
        (STRANGER, STRANGER, None, None, (Y, Y, U, U, Y)),
        (STRANGER, STRANGER, STRANGER, None, (Y, U, U, U, N)),
        (None, errors.RefusedError("sessions only"), None, "q", (Y, Y, Y, U, Y)),
        (errors.QuotaExceededError("full"), None, None, "q", (Y, Y, U, Y, Y)),
        (None, None, LATE, "q", (Y, Y, Y, Y, N)),
    ],
)
def test_what_the_attempts_tell(
    send: ServiceError | None,
    listen: ServiceError | None,
    manage: ServiceError | None,
    queue: str | None,
    works: Sequence[bool | None],
) -> None:
    found = findings("contoso", Attempts(send=send, listen=listen, manage=manage, queue=queue))
    assert tuple(getattr(found, name).works for name in RIGHTS) == tuple(works)
    assert all(finding.why or finding.works for finding in (getattr(found, name) for name in RIGHTS))
    assert found.usable(listen=True) is (works[0] is works[1] is Y and N not in works[2:4])


def test_findings_read_as_a_sentence() -> None:
    assert str(Finding(works=False, why="the right Send is missing")) == "no (the right Send is missing)"
    lost = findings("contoso", Attempts(send=LOST, listen=LOST, manage=LOST, queue=None))
    assert str(lost) == "contoso: reach no (lost)"


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with entra() as started:
        yield started
        for name in ("contoso", "contoso-dr"):
            started[name].clear_faults()


@pytest.mark.parametrize(
    ("rights", "works"),
    [
        ([AccessRight.SEND], (Y, Y, Y, N, N)),
        ([AccessRight.LISTEN], (Y, Y, N, Y, N)),
        ([AccessRight.SEND, AccessRight.LISTEN], (Y, Y, Y, Y, N)),
    ],
)
async def test_each_right_that_a_key_lacks_is_named(
    emulator: Emulator, rights: list[AccessRight], works: Sequence[bool]
) -> None:
    contoso = emulator["contoso"]
    rule = contoso.namespace.access_rules.put("limited", rights=rights)
    limited = Endpoint.from_connection_string(
        f"Endpoint=sb://{contoso.host}:{contoso.amqp_port};SharedAccessKeyName=limited;"
        f"SharedAccessKey={rule.primary_key};UseDevelopmentEmulator=true;",
        namespace="contoso",
        administration=f"{contoso.host}:{contoso.admin_port}",
    )
    found = await inspect_namespace(limited, queues=["flights"])
    assert tuple(getattr(found, name).works for name in RIGHTS) == works
    missing = [name for name in ("send", "listen", "manage") if not getattr(found, name).works]
    assert all(f"{name} no (the right {name.capitalize()} is missing)" in str(found) for name in missing)


async def test_all_works_and_nothing_is_changed(emulator: Emulator) -> None:
    contoso = emulator["contoso"]
    async with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_sender("flights") as sender,
    ):
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    before = contoso.namespace.counts("flights")
    found = await inspect_namespace(endpoint(contoso))
    assert str(found) == "contoso: reach yes, authenticate yes, send yes, listen yes, manage yes"
    assert contoso.namespace.counts("flights") == before
    async with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("flights", max_wait_time=2) as receiver,
    ):
        assert [message.delivery_count for message in await receiver.receive_messages(2)] == [0, 0]


async def test_a_namespace_without_queues_says_so(emulator: Emulator) -> None:
    found = await inspect_namespace(endpoint(emulator["contoso-dr"]), queues=["contoso/x-servicebus-transfer/0"])
    assert (found.reach.works, found.authenticate.works, found.manage.works) == (True, True, True)
    assert found.send == found.listen == Finding(works=None, why="no queue to try on")
    assert found.usable(listen=True)


async def test_the_first_queue_that_exists_is_tried(emulator: Emulator) -> None:
    emulator["contoso-dr"].namespace.create_queue(QueueDescription("Contoso/x/1"))
    found = await inspect_namespace(endpoint(emulator["contoso-dr"]), queues=["contoso/x/0", "contoso/x/1"])
    assert found.send.works
    assert found.listen.works


async def test_a_wrong_key_is_told_from_an_outage(emulator: Emulator) -> None:
    text = emulator["contoso"].connection_string.replace("SharedAccessKey=", "SharedAccessKey=c4nary")
    wrong = Endpoint.from_connection_string(
        text, namespace="contoso", administration=f"127.0.0.1:{emulator['contoso'].admin_port}"
    )
    found = await inspect_namespace(wrong, queues=["flights"])
    assert (found.reach.works, found.authenticate.works, found.usable(listen=False)) == (True, False, False)
    without_queue = await inspect_namespace(wrong)
    assert (without_queue.authenticate.works, without_queue.usable(listen=False)) == (None, False)
    assert "c4nary" not in f"{found} {without_queue}"


async def test_a_namespace_that_is_down_or_silent_is_told_in_time(emulator: Emulator) -> None:
    emulator["contoso"].set_fault(Fault(kind=FaultKind.FREEZE))
    down = Endpoint.from_connection_string(
        "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=k;UseDevelopmentEmulator=true;", namespace="n"
    )
    async with asyncio.timeout(10):
        silent, refused = await asyncio.gather(
            inspect_namespace(endpoint(emulator["contoso"]), seconds=1), inspect_namespace(down)
        )
    assert (silent.reach.works, refused.reach.works) == (False, False)
    assert str(refused).startswith("n: reach no (")


async def test_an_identity_is_inspected_alike_and_by_resource_manager(emulator: Emulator) -> None:
    given = settings_of(emulator, by_arm=True)
    secondary = read_endpoint(
        {name.removeprefix("secondary_"): value for name, value in given.items() if name.startswith("secondary_")}
    )
    found = await inspect_namespace(secondary)
    assert (found.authenticate.works, found.manage.works) == (True, True)
