"""Issuing and validating bearer tokens."""

from __future__ import annotations

import jwt
import pytest

from servicebus_emulator.engine.model.errors import Unauthorized
from servicebus_emulator.security.bearer import (
    DEVELOPMENT_CLIENT,
    MANAGEMENT,
    SERVICE_BUS,
    Client,
    ClientError,
    Role,
    TokenIssuer,
)
from tests.emulator.support.manual_clock import ManualClock

SENDER = Client(id="sender", secret="s3nd", role=Role.SENDER)
CLIENTS = (DEVELOPMENT_CLIENT, SENDER)
TENANT = "contoso.example"


def issue(issuer: TokenIssuer, *, audience: str = SERVICE_BUS) -> str:
    scope = f"{audience}/.default"
    return issuer.issue(SENDER.id, SENDER.secret, scope=scope, tenant=TENANT, issuer="https://here").text


def test_a_token_is_valid_until_it_expires_for_its_audience():
    clock = ManualClock()
    issuer = TokenIssuer(CLIENTS, clock=clock)
    text = issue(issuer)
    claims = issuer.check(text, audience=SERVICE_BUS)
    assert (claims.client, claims.role, claims.expires) == (SENDER.id, Role.SENDER, clock.now() // 1000 + 3600)
    with pytest.raises(Unauthorized, match="InvalidAudience"):
        issuer.check(text, audience=MANAGEMENT)
    assert issuer.check(issue(issuer, audience=MANAGEMENT), audience=MANAGEMENT).client == SENDER.id
    clock.advance(3600)
    with pytest.raises(Unauthorized, match="ExpiredToken"):
        issuer.check(text, audience=SERVICE_BUS)


def test_the_double_slash_in_the_scope_of_the_python_sdk_is_accepted():
    issuer = TokenIssuer(CLIENTS, clock=ManualClock())
    assert issuer.check(issue(issuer, audience=f"{SERVICE_BUS}/"), audience=SERVICE_BUS).client == SENDER.id


def test_only_issuers_with_the_same_clients_accept_a_token():
    clock = ManualClock()
    text = issue(TokenIssuer(CLIENTS, clock=clock))
    assert TokenIssuer(CLIENTS[::-1], clock=clock).check(text, audience=SERVICE_BUS).client == SENDER.id
    for others in ([], [SENDER], [DEVELOPMENT_CLIENT, Client(id=SENDER.id, secret="changed")]):
        with pytest.raises(Unauthorized):
            TokenIssuer(others, clock=clock).check(text, audience=SERVICE_BUS)


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_a_token_with_a_forged_signature_is_refused(algorithm: str):
    issuer = TokenIssuer(CLIENTS, clock=ManualClock())
    claims = jwt.decode(issue(issuer), options={"verify_signature": False})
    forged = jwt.encode(claims, "" if algorithm == "none" else "k" * 32, algorithm=algorithm)
    for text in (forged, "", "a.b.c", "x" * 10_000, f"{issue(issuer)}x", "\udcff.b.c"):
        with pytest.raises(Unauthorized) as refused:
            issuer.check(text, audience=SERVICE_BUS)
        assert text == "" or text not in str(refused.value)


def test_secrets_are_neither_in_repr_nor_in_errors():
    client = Client(id="app", secret="canary")
    assert "canary" not in repr(client)
    with pytest.raises(ClientError) as refused:
        TokenIssuer([SENDER], clock=ManualClock()).issue(
            SENDER.id, "canary", scope=f"{SERVICE_BUS}/.default", tenant=TENANT, issuer="https://here"
        )
    assert "canary" not in str(refused.value)
    with pytest.raises(ValueError, match="each id once"):
        TokenIssuer([SENDER, SENDER], clock=ManualClock())
    with pytest.raises(ValueError, match="ClientSecret of a client is empty or unreadable"):
        Client(id="app", secret="")
