"""Claims-based security frame by frame, beyond what the SDK exercises."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from proton import Endpoint, Message, symbol, ulong
from proton.utils import BlockingConnection, LinkDetached

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY, ROOT_POLICY
from servicebus_emulator.engine.model.descriptions import (
    AccessRight,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.security.authorizer import BEARER_KIND, SIGNATURE_KIND
from servicebus_emulator.security.sas import sign
from tests.emulator.support.manual_clock import ManualClock
from tests.emulator.support.tracking import tracked_pattern

UNAUTHORIZED = "amqp:unauthorized-access"


class Raw:
    """A blocking AMQP client controlled step by step."""

    def __init__(self, hosted: HostedNamespace) -> None:
        self.hosted = hosted
        url = f"amqp://{hosted.host}:{hosted.amqp_port}"
        self.connection = BlockingConnection(url, timeout=5, allowed_mechs="ANONYMOUS")
        self._nodes: dict[str, tuple[Any, Any]] = {}

    def ask(self, node: str, body: Any, **properties: Any) -> dict[str, Any]:
        if node not in self._nodes:
            receiver = self.connection.create_receiver(node, name=f"{node}-answers")
            self._nodes[node] = (self.connection.create_sender(node, name=f"{node}-requests"), receiver)
        sender, receiver = self._nodes[node]
        sender.send(Message(id="1", body=body, properties=properties))
        answer = receiver.receive(timeout=5)
        return dict(answer.properties)

    def bring(self, token: Any, *, name: Any = "sb://contoso/flights", kind: Any = SIGNATURE_KIND) -> dict[str, Any]:
        return self.ask("$cbs", token, operation="put-token", type=kind, name=name)

    def token(self, *, lifetime: float, rule: str = ROOT_POLICY, key: str = DEFAULT_KEY, clock: Any = None) -> str:
        expires = int(clock.now() / 1000 + lifetime)
        return sign("sb://contoso/flights", rule=rule, key=key, expires=expires)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def contoso(clock: ManualClock) -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], clock=clock) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


async def in_turn(hosted: HostedNamespace, *steps: Callable[[Raw], Any]) -> list[Any]:
    """Run the steps of a client in a thread, while the event loop serves it."""
    raw = await asyncio.to_thread(Raw, hosted)
    try:
        return [await asyncio.to_thread(step, raw) for step in steps]
    finally:
        await asyncio.to_thread(raw.connection.close)


def refused(attach: Callable[[Raw], Any]) -> Callable[[Raw], str]:
    """Return how an attach is refused."""

    def step(raw: Raw) -> str:
        with pytest.raises(LinkDetached) as error:
            attach(raw)
        return str(error.value)

    return step


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("flights", "flights"),
        ("nothing-here", "nothing-here"),
        ("flights/$DeadLetterQueue", "flights/$deadletterqueue"),
        ("flights/$management", "flights/$management"),
        ("amqp://[/flights", "flights"),
    ],
)
async def test_without_a_token_only_cbs_can_be_attached(contoso: HostedNamespace, address: str, path: str):
    [why] = await in_turn(contoso, refused(lambda raw: raw.connection.create_receiver(address)))
    assert UNAUTHORIZED in why
    assert f"Resource: 'sb://contoso/{path}'. No token was sent for it." in why


async def test_an_invalid_token_is_answered_with_401_condition_and_reason(contoso: HostedNamespace, clock: ManualClock):
    [answer] = await in_turn(contoso, lambda raw: raw.bring(raw.token(lifetime=60, key="canary", clock=clock)))
    assert (answer["status-code"], answer["error-condition"]) == (401, symbol(UNAUTHORIZED))
    text = rf"InvalidSignature: The token has an invalid signature\. No key of .* {tracked_pattern('contoso:$cbs')}"
    assert re.fullmatch(text, answer["status-description"])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nowhere", 404),
        ("nowhere/$management", 404),
        ("delays/Subscriptions/t", 404),
        ("delays", 202),
        ("Delays/$management", 202),
        ("delays/Subscriptions/s/$DeadLetterQueue", 202),
        ("", 202),
    ],
)
async def test_a_token_for_a_missing_entity_is_not_found_as_at_the_service(
    contoso: HostedNamespace, clock: ManualClock, path: str, status: int
):
    contoso.namespace.create_topic(TopicDescription("delays"))
    contoso.namespace.create_subscription(SubscriptionDescription("delays", "s"))
    audience, expires = f"sb://contoso/{path}", int(clock.now() / 1000 + 60)
    tokens = [sign(audience, rule=ROOT_POLICY, key=key, expires=expires) for key in ("canary", DEFAULT_KEY)]
    answers = await in_turn(contoso, *(partial(Raw.bring, token=each, name=audience) for each in tokens))
    # Only who has a valid key learns what exists.
    assert [answer["status-code"] for answer in answers] == [401, status]


@pytest.mark.parametrize(
    ("change", "status", "why"),
    [
        ({"kind": "amqp:swt"}, 400, "type of the token is unknown; allowed: 'servicebus.windows.net:sastoken', 'jwt'"),
        ({"name": None}, 400, "allowed: strings"),
        ({"kind": 7}, 400, "allowed: strings"),
        ({"token": b"bytes"}, 400, "allowed: strings"),
        ({"token": "nothing"}, 401, "MalformedToken"),
        (
            {"token": "nothing", "kind": BEARER_KIND},
            401,
            "The token has an invalid signature. It was not issued here",
        ),
        ({"name": "sb://contoso/other"}, 401, "InvalidAudience"),
        ({"name": "sb://["}, 401, "InvalidAudience"),
        ({"name": "sb://contoso"}, 401, "InvalidAudience"),
    ],
)
async def test_a_malformed_put_token_is_refused_and_grants_nothing(
    contoso: HostedNamespace, clock: ManualClock, change: dict[str, Any], status: int, why: str
):
    def bring(raw: Raw) -> dict[str, Any]:
        given = {"token": raw.token(lifetime=60, clock=clock), **change}
        return raw.bring(given.pop("token"), **given)

    answer, refusal = await in_turn(contoso, bring, refused(lambda raw: raw.connection.create_receiver("flights")))
    assert answer["status-code"] == status
    assert why in answer["status-description"]
    assert "No token was sent" in refusal


@pytest.mark.parametrize(
    ("right", "operation", "allowed"),
    [
        (AccessRight.SEND, "peek-message", False),
        (AccessRight.SEND, "renew-lock", False),
        (AccessRight.SEND, "get-message-sessions", False),
        (AccessRight.SEND, "add-rule", False),
        (AccessRight.SEND, "schedule-message", True),
        (AccessRight.SEND, "cancel-scheduled-message", True),
        (AccessRight.LISTEN, "schedule-message", False),
        (AccessRight.LISTEN, "cancel-scheduled-message", False),
        (AccessRight.LISTEN, "peek-message", True),
        (AccessRight.LISTEN, "update-disposition", True),
    ],
)
async def test_each_management_request_requires_its_right(
    contoso: HostedNamespace, clock: ManualClock, right: AccessRight, operation: str, allowed: bool
):
    rule = contoso.namespace.access_policies.put("app", rights=[right])
    _, answer = await in_turn(
        contoso,
        lambda raw: raw.bring(raw.token(lifetime=60, rule="app", key=rule.primary_key, clock=clock)),
        lambda raw: raw.ask("flights/$management", {}, operation=f"com.microsoft:{operation}"),
    )
    # Without its fields a request that may be made is a bad one.
    assert answer["statusCode"] == (400 if allowed else 401)
    if not allowed:
        assert answer["errorCondition"] == symbol(UNAUTHORIZED)
        assert "claim(s) are required" in answer["statusDescription"]


async def test_a_token_for_the_management_node_alone_does_not_open_the_queue(
    contoso: HostedNamespace, clock: ManualClock
):
    answer, peeked, why = await in_turn(
        contoso,
        lambda raw: raw.bring(raw.token(lifetime=60, clock=clock), name="sb://contoso/flights/$management"),
        lambda raw: raw.ask(
            "flights/$management",
            {"from-sequence-number": ulong(1), "message-count": 1},
            operation="com.microsoft:peek-message",
        ),
        refused(lambda raw: raw.connection.create_receiver("flights")),
    )
    assert (answer["status-code"], peeked["statusCode"]) == (202, 204)
    assert UNAUTHORIZED in why


async def test_a_link_is_detached_when_its_last_token_expires(contoso: HostedNamespace, clock: ManualClock):
    links: list[Any] = []

    def attach(raw: Raw) -> None:
        links.append(raw.connection.create_receiver("flights", name="held"))

    def passing(seconds: float) -> Callable[[Raw], Any]:
        def step(raw: Raw) -> bool:
            clock.advance(seconds)
            # Any request makes the namespace look at its clock.
            raw.bring("nothing")
            raw.connection.wait(lambda: True)
            return bool(links[0].link.state & Endpoint.REMOTE_ACTIVE)

        return step

    def end(raw: Raw) -> None:
        raw.bring("nothing")
        raw.connection.wait(lambda: bool(links[0].link.state & Endpoint.REMOTE_CLOSED), timeout=5)

    def gone(raw: Raw) -> str:
        clock.advance(11)
        return refused(end)(raw)

    steps = await in_turn(
        contoso,
        lambda raw: raw.bring(raw.token(lifetime=60, clock=clock)),
        attach,
        passing(50),
        lambda raw: raw.bring(raw.token(lifetime=60, clock=clock)),
        passing(50),
        gone,
    )
    assert steps[2], "the first token is good"
    assert steps[4], "the second token is good"
    assert "ExpiredToken: The token is expired and was not renewed. Resource: 'sb://contoso/flights'" in steps[5]
    assert UNAUTHORIZED in steps[5]


async def test_an_invalid_token_keeps_the_earlier_one_in_force(contoso: HostedNamespace, clock: ManualClock):
    good, bad, _ = await in_turn(
        contoso,
        lambda raw: raw.bring(raw.token(lifetime=60, clock=clock)),
        lambda raw: raw.bring(raw.token(lifetime=60, key="wrong", clock=clock)),
        lambda raw: raw.connection.create_receiver("flights"),
    )
    assert (good["status-code"], bad["status-code"]) == (202, 401)


async def test_tokens_apply_to_their_connection_only(contoso: HostedNamespace, clock: ManualClock):
    await in_turn(contoso, lambda raw: raw.bring(raw.token(lifetime=60, clock=clock)))
    [why] = await in_turn(contoso, refused(lambda raw: raw.connection.create_sender("flights")))
    assert "'Send' claim(s) are required" in why


async def test_a_token_outlives_a_clock_shift_without_needless_cycles(
    contoso: HostedNamespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    raw = await asyncio.to_thread(Raw, contoso)
    try:
        await asyncio.to_thread(lambda: raw.bring(raw.token(lifetime=60, clock=clock)))
        receiver = await asyncio.to_thread(lambda: raw.connection.create_receiver("flights"))
        turns = count()
        advance = contoso.namespace.advance
        monkeypatch.setattr(contoso.namespace, "advance", lambda: (next(turns), advance()))
        contoso.shift_time(timedelta(hours=2))
        await asyncio.to_thread(lambda: raw.bring("nothing"))
        await asyncio.sleep(0.2)
        assert next(turns) < 20
        assert receiver.link.state & Endpoint.REMOTE_ACTIVE
    finally:
        await asyncio.to_thread(raw.connection.close)
