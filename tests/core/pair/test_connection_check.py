"""Connection check: which rights work on a namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Emulator, Fault, FaultKind
from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_pair.core.model import errors
from servicebus_pair.core.model.errors import ServiceError, SpoolError
from servicebus_pair.core.model.options import Endpoint, PairOptions
from servicebus_pair.core.pair.connection_check import (
    Attempts,
    CheckResult,
    _choose_queue,
    check_namespace,
    check_spool,
    evaluate_attempts,
)
from servicebus_pair.core.pair.endpoint_settings import read_endpoint
from servicebus_pair.core.sdk.receive_link import ReceiveLink
from servicebus_pair.core.spool.spool import Spool
from tests.core.support.entra import open_entra_namespaces, pair_settings
from tests.core.support.local_pair import endpoint

RIGHTS = ("reach", "authenticate", "send", "listen", "manage")
LOST = errors.UnreachableError("lost")
LATE = errors.TimedOutError("late")
UNKNOWN = errors.AuthenticationError("unknown key")
SUSPECT = errors.AuthenticationSuspectError("worked before")
DENIED = errors.AuthorizationError("no")
MISSING = errors.EntityNotFoundError("no such queue")
Y, N, U = True, False, None


@pytest.mark.parametrize(
    ("send", "listen", "manage", "queue", "works"),
    [
        (None, None, None, "q", (Y, Y, Y, Y, Y)),
        (None, DENIED, UNKNOWN, "q", (Y, Y, Y, N, N)),
        (DENIED, None, DENIED, "q", (Y, Y, N, Y, N)),
        (LOST, LATE, LOST, "q", (N, U, N, N, N)),
        (LATE, None, None, "q", (Y, Y, N, Y, Y)),
        (UNKNOWN, UNKNOWN, UNKNOWN, "q", (Y, N, N, N, N)),
        (MISSING, MISSING, None, None, (Y, Y, U, U, Y)),
        (MISSING, MISSING, UNKNOWN, None, (Y, Y, U, U, N)),
        # Azure refuses a token for what is not there: the administration knows better, if it may be asked.
        (UNKNOWN, UNKNOWN, None, None, (Y, Y, U, U, Y)),
        (UNKNOWN, UNKNOWN, UNKNOWN, None, (Y, U, U, U, N)),
        (None, errors.RefusedError("sessions only"), None, "q", (Y, Y, Y, U, Y)),
        (errors.QuotaExceededError("full"), None, None, "q", (Y, Y, U, Y, Y)),
        (None, None, LATE, "q", (Y, Y, Y, Y, N)),
        (UNKNOWN, LOST, UNKNOWN, "q", (Y, N, N, N, N)),
        (LOST, UNKNOWN, None, None, (Y, Y, N, U, Y)),
        (UNKNOWN, None, UNKNOWN, "q", (Y, Y, N, Y, N)),
        (SUSPECT, SUSPECT, DENIED, "q", (Y, N, N, N, N)),
        (LOST, LOST, None, None, (N, U, N, N, Y)),
        (errors.EntityDisabledError("disabled"), errors.ServerBusyError("busy"), None, "q", (Y, Y, U, N, Y)),
    ],
)
def test_attempts_are_evaluated_per_right(
    send: ServiceError | None,
    listen: ServiceError | None,
    manage: ServiceError | None,
    queue: str | None,
    works: Sequence[bool | None],
) -> None:
    found = evaluate_attempts("contoso", Attempts(send=send, listen=listen, manage=manage, queue=queue))
    assert tuple(getattr(found, name).works for name in RIGHTS) == tuple(works)
    assert all(finding.why or finding.works for finding in (getattr(found, name) for name in RIGHTS))
    assert found.usable(listen=True) is (works[0] is works[1] is Y and N not in works[2:4])


@pytest.mark.parametrize(
    ("manage", "links", "why"),
    [
        (DENIED, LOST, "the right Manage is missing"),
        (UNKNOWN, None, "the right Manage is missing"),
        (UNKNOWN, MISSING, "the right Manage is missing"),
        (UNKNOWN, UNKNOWN, "unknown key"),
        (UNKNOWN, LATE, "unknown key"),
        (LATE, None, "late"),
        (errors.ServiceFaultError("x" * 300), None, "x" * 200),
    ],
)
def test_failed_listing_is_explained_by_what_the_links_show(
    manage: ServiceError, links: ServiceError | None, why: str
) -> None:
    found = evaluate_attempts("contoso", Attempts(send=links, listen=links, manage=manage, queue="q")).manage
    assert found == CheckResult(works=False, why=why)


def test_what_was_lost_first_says_why() -> None:
    found = evaluate_attempts("contoso", Attempts(send=LOST, listen=LATE, manage=None, queue="q"))
    assert found.reach == CheckResult(works=False, why="lost")


def test_result_as_text() -> None:
    assert str(CheckResult(works=None)) == "not known"
    assert str(CheckResult(works=False, why="the right Send is missing")) == "no (the right Send is missing)"
    lost = evaluate_attempts("contoso", Attempts(send=LOST, listen=LOST, manage=LOST, queue=None))
    assert str(lost) == "contoso: reach no (lost)"


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with open_entra_namespaces() as started:
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
async def test_missing_rights_of_a_key_are_named(
    emulator: Emulator, rights: list[AccessRight], works: Sequence[bool]
) -> None:
    contoso = emulator["contoso"]
    rule = contoso.namespace.access_policies.put("limited", rights=rights)
    limited = Endpoint.from_connection_string(
        f"Endpoint=sb://{contoso.host}:{contoso.amqp_port};SharedAccessKeyName=limited;"
        f"SharedAccessKey={rule.primary_key};UseDevelopmentEmulator=true;",
        namespace="contoso",
        administration=f"{contoso.host}:{contoso.admin_port}",
    )
    found = await check_namespace(limited, queues=["flights"])
    assert tuple(getattr(found, name).works for name in RIGHTS) == works
    missing = [name for name in ("send", "listen", "manage") if not getattr(found, name).works]
    assert all(f"{name} no (the right {name.capitalize()} is missing)" in str(found) for name in missing)


async def test_full_access_is_reported_without_side_effects(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    peek, peeked = ReceiveLink.peek, list[Any]()

    async def recorded(link: ReceiveLink, **options: Any) -> Any:
        peeked.append(options)
        return await peek(link, **options)

    monkeypatch.setattr(ReceiveLink, "peek", recorded)
    contoso = emulator["contoso"]
    async with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_sender("flights") as sender,
    ):
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    before = contoso.namespace.counts("flights")
    found = await check_namespace(endpoint(contoso))
    assert str(found) == "contoso: reach yes, authenticate yes, send yes, listen yes, manage yes"
    assert (contoso.namespace.counts("flights"), peeked) == (before, [{"max_messages": 1, "timeout": 6.0}])
    async with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("flights", max_wait_time=2) as receiver,
    ):
        assert [message.delivery_count for message in await receiver.receive_messages(2)] == [0, 0]


async def test_namespace_without_queues_is_reported(emulator: Emulator) -> None:
    found = await check_namespace(endpoint(emulator["contoso-dr"]), queues=["contoso/x-servicebus-transfer/0"])
    assert (found.reach.works, found.authenticate.works, found.manage.works) == (True, True, True)
    assert found.send == found.listen == CheckResult(works=None, why="no queue to test")
    assert found.usable(listen=True)


@pytest.mark.parametrize(
    ("queues", "listed", "chosen"),
    [
        (["b", "a"], None, "b"),
        ([], None, None),
        (["c", "B", "a"], {"a": False, "b": False}, "B"),
        (["c"], {"a": False}, None),
        ([], {"b": False, "a": False}, "a"),
        ([], {"a": True, "c": False, "b": False}, "b"),
        ([], {"a": True}, "a"),
    ],
)
def test_first_candidate_that_is_listed_is_chosen(
    queues: list[str], listed: dict[str, bool] | None, chosen: str
) -> None:
    assert _choose_queue(queues, listed) == chosen


def test_failed_authentication_quotes_the_first_refusal() -> None:
    attempts = Attempts(send=UNKNOWN, listen=errors.AuthenticationError("the same"), manage=UNKNOWN, queue="q")
    assert evaluate_attempts("contoso", attempts).authenticate.why == "unknown key"


async def test_wrong_key_is_distinguished_from_an_outage(emulator: Emulator) -> None:
    text = emulator["contoso"].connection_string.replace("SharedAccessKey=", "SharedAccessKey=c4nary")
    wrong = Endpoint.from_connection_string(
        text, namespace="contoso", administration=f"127.0.0.1:{emulator['contoso'].admin_port}"
    )
    found = await check_namespace(wrong, queues=["flights"])
    assert (found.reach.works, found.authenticate.works, found.usable(listen=False)) == (True, False, False)
    without_queue = await check_namespace(wrong)
    assert (without_queue.authenticate.works, without_queue.usable(listen=False)) == (None, False)
    assert "c4nary" not in f"{found} {without_queue}"


async def test_unreachable_or_frozen_namespace_is_reported_within_timeout(emulator: Emulator) -> None:
    emulator["contoso"].set_fault(Fault(kind=FaultKind.FREEZE))
    down = Endpoint.from_connection_string(
        "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=k;UseDevelopmentEmulator=true;", namespace="n"
    )
    async with asyncio.timeout(10):
        silent, refused = await asyncio.gather(
            check_namespace(endpoint(emulator["contoso"]), timeout=1), check_namespace(down)
        )
    assert (silent.reach.works, refused.reach.works) == (False, False)
    assert str(refused).startswith("n: reach no (")


@pytest.mark.parametrize("problem", ["", "x" * 200, "x" * 201])
async def test_a_spool_is_checked_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    assert await check_spool(PairOptions()) is None
    assert await check_spool(PairOptions(spool=str(tmp_path))) == CheckResult(works=True)

    async def found(_: Spool) -> str:
        return problem

    async def fail(_: Spool) -> str:
        raise SpoolError(problem)

    for each in (found, fail):
        monkeypatch.setattr(Spool, "problem", each)
        assert await check_spool(PairOptions(spool=str(tmp_path))) == CheckResult(works=False, why=problem[:200])


async def test_identity_is_checked_through_resource_manager(emulator: Emulator) -> None:
    given = pair_settings(emulator, through_arm=True)
    secondary = read_endpoint(
        {name.removeprefix("secondary_"): value for name, value in given.items() if name.startswith("secondary_")}
    )
    found = await check_namespace(secondary)
    assert (found.authenticate.works, found.manage.works) == (True, True)
