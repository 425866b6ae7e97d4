"""Keys, tokens and authorizers for tests."""

from __future__ import annotations

import json
import time
from typing import Any

from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY, ROOT_POLICY
from servicebus_emulator.engine.model.clock import Clock, SystemClock
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.security.authorizer import Authorizer
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT, TokenIssuer
from servicebus_emulator.security.sas import sign

_CLOCK = SystemClock()
CANARY = "c4n4ry+/="


def authorizer_for(namespace: Namespace, *, clock: Clock = _CLOCK, is_open: bool = False) -> Authorizer:
    issuer = TokenIssuer([DEVELOPMENT_CLIENT], clock=clock)
    return Authorizer(namespace.name, policies=namespace.access_policies, issuer=issuer, clock=clock, is_open=is_open)


def signed_headers(
    *, resource: str = "https://contoso/", rule: str = ROOT_POLICY, key: str = DEFAULT_KEY, lifetime: float = 86_400
) -> dict[str, str]:
    """The header with which a request is made in the name of a rule."""
    return {"Authorization": sign(resource, rule=rule, key=key, expires=int(time.time() + lifetime))}


def config_with_rules(*, namespace: Any = None, queue: Any = None) -> str:
    described = {
        "Name": "contoso",
        "Queues": [{"Name": "flights", **({} if queue is None else {"AuthorizationRules": queue})}],
        **({} if namespace is None else {"AuthorizationRules": namespace}),
    }
    return json.dumps({"UserConfig": {"Namespaces": [described]}})
