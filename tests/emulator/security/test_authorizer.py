"""Which policy signs a token, what its grant covers, and how resource paths are compared."""

from __future__ import annotations

import pytest

from servicebus_emulator.engine.model.descriptions import AccessRight, QueueDescription
from servicebus_emulator.engine.model.errors import InvalidArgument, Unauthorized
from servicebus_emulator.security.authorizer import BEARER_KIND, SIGNATURE_KIND, Authorizer, Grant
from servicebus_emulator.security.resource_paths import entity_of, is_within, resource_path, self_and_ancestors
from servicebus_emulator.security.sas import sign
from tests.emulator.support.authorizers import authorizer_for
from tests.emulator.support.engine import EngineHarness

SEND = frozenset({AccessRight.SEND})
LISTEN = frozenset({AccessRight.LISTEN})


@pytest.fixture
def authorizer(harness: EngineHarness) -> Authorizer:
    for path in ("a", "a/b"):
        harness.namespace.create_queue(QueueDescription(path))
    policies = harness.namespace.access_policies
    policies.put("app", rights=LISTEN, primary_key="namespace key")
    policies.put("app", rights=SEND, path="a", primary_key="queue key")
    return authorizer_for(harness.namespace, clock=harness.clock)


def grant_for(authorizer: Authorizer, path: str, *, key: str, resource: str) -> Grant:
    expires = authorizer.clock.now() // 1000 + 60
    token = sign(f"sb://contoso/{resource}", rule="app", key=key, expires=expires)
    return authorizer.grant(token, kind=SIGNATURE_KIND, audience=f"sb://contoso/{path}")


def test_a_policy_of_an_entity_takes_precedence_over_one_of_the_namespace(authorizer: Authorizer):
    assert grant_for(authorizer, "a", key="queue key", resource="a").rights == SEND
    assert grant_for(authorizer, "a", key="namespace key", resource="a").rights == LISTEN


def test_a_policy_of_an_entity_does_not_sign_tokens_for_the_namespace(authorizer: Authorizer):
    with pytest.raises(Unauthorized, match="No key of rule 'app' of the namespace made it"):
        grant_for(authorizer, "a", key="queue key", resource="")


def test_a_policy_of_an_entity_grants_nothing_on_a_queue_below_its_path(authorizer: Authorizer):
    assert grant_for(authorizer, "a/b", key="namespace key", resource="a").rights == LISTEN
    with pytest.raises(Unauthorized, match="InvalidAudience"):
        grant_for(authorizer, "a/b", key="queue key", resource="a")


def test_a_grant_is_insufficient_without_the_right_or_after_its_expiry(harness: EngineHarness, authorizer: Authorizer):
    grant = grant_for(authorizer, "a", key="queue key", resource="a")
    authorizer.require([grant], rights=SEND, path="A/")
    with pytest.raises(Unauthorized, match=r"'Listen' claim\(s\) are required.*rule 'app' of 'a' has Send\."):
        authorizer.require([grant], rights=LISTEN, path="a")
    with pytest.raises(Unauthorized, match="No token was sent for it"):
        authorizer.require([grant], rights=SEND, path="other")
    harness.clock.advance(60)
    with pytest.raises(Unauthorized, match="has Send, but has expired"):
        authorizer.require([grant], rights=SEND, path="a")


@pytest.mark.parametrize("kind", [SIGNATURE_KIND, BEARER_KIND])
def test_a_signature_is_recognized_by_its_content_not_its_type(authorizer: Authorizer, kind: str):
    token = sign("sb://contoso/a", rule="app", key="queue key", expires=authorizer.clock.now() // 1000 + 60)
    assert authorizer.grant(token, kind=kind, audience="sb://contoso/a").entity == "a"


def test_an_unknown_token_type_is_refused(authorizer: Authorizer):
    with pytest.raises(InvalidArgument, match="type of the token is unknown"):
        authorizer.grant("token", kind="amqp:swt", audience="sb://contoso/a")


def test_resource_paths_are_compared_by_segment():
    assert resource_path("sb://h:1/A%20b/") == "a b"
    assert resource_path("https://[::1]:1/a?b#c") == "a"
    assert resource_path("sb://[") == resource_path("") == resource_path("://") == ""
    assert is_within("a/b", resource="a")
    assert not is_within("ab", resource="a")
    assert not is_within("a", resource="a/b")
    assert entity_of("t/subscriptions/s/rules/r") == entity_of("t/$management") == entity_of("t/subscriptions") == "t"
    assert entity_of("a/b/$deadletterqueue/$management") == "a/b"
    assert list(self_and_ancestors("a/b/c")) == ["a/b/c", "a/b", "a", ""]
