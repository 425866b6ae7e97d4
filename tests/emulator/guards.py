"""Guards for parts that are tested without the whole."""

from __future__ import annotations

import time

from servicebus_emulator.engine.access_rules import DEFAULT_KEY, ROOT_RULE
from servicebus_emulator.engine.clock import Clock, SystemClock
from servicebus_emulator.engine.namespace import Namespace
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT, TokenIssuer
from servicebus_emulator.security.guard import Guard
from servicebus_emulator.security.sas import sign

_CLOCK = SystemClock()


def guard_of(namespace: Namespace, *, clock: Clock = _CLOCK, is_open: bool = False) -> Guard:
    issuer = TokenIssuer([DEVELOPMENT_CLIENT], clock=clock)
    return Guard(namespace.name, rules=namespace.access_rules, issuer=issuer, clock=clock, is_open=is_open)


def signed(
    *, resource: str = "https://contoso/", rule: str = ROOT_RULE, key: str = DEFAULT_KEY, lifetime: float = 86_400
) -> dict[str, str]:
    """The header with which a request is made in the name of a rule."""
    return {"Authorization": sign(resource, rule=rule, key=key, expires=int(time.time() + lifetime))}
