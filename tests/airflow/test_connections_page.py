"""Every form of a connection that the page about connections shows is read here, as it stands."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import Connection

from servicebus_pair.core.configuration import read_pair
from servicebus_pair.core.endpoint_settings import AUTHENTICATIONS, ENDPOINT_SETTINGS
from servicebus_pair.core.identity import ClientSecret, DefaultIdentity, ManagedIdentity
from servicebus_pair.core.options import PairOptions
from servicebus_pair.hooks.connections import endpoint_of
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import PROJECT

PAGE = (PROJECT / "provider" / "docs" / "connections.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
JSON = [text for kind, text in BLOCKS if kind == "json"]
URIS = [text.strip() for kind, text in BLOCKS if kind == "text" and "://" in text]
[EXPORTS] = [text for kind, text in BLOCKS if kind == "bash"]


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment as the page exports it."""
    for word in shlex.split(EXPORTS):
        name, assigned, value = word.partition("=")
        if assigned:
            monkeypatch.setenv(name, value)


def namespaces_of(conn_id: str) -> tuple[str, str]:
    found = ServiceBusPairHook(conn_id).get_settings()
    return found.primary.namespace, found.secondary.namespace


@pytest.mark.usefixtures("exported")
def test_the_exported_pair_is_one_by_reference():
    assert namespaces_of("contoso_pair") == ("contoso", "contoso-dr")
    found = ServiceBusPairHook("contoso_pair").get_settings()
    assert found.options == PairOptions(failover_interval=timedelta(seconds=30))


@pytest.mark.parametrize("text", JSON)
def test_each_connection_in_json_is_read(monkeypatch: pytest.MonkeyPatch, text: str):
    connection = Connection.from_json(text, conn_id="shown")
    if connection.conn_type == "servicebus_pair":
        monkeypatch.setenv("AIRFLOW_CONN_SHOWN", text)
        assert namespaces_of("shown") == ("contoso", "contoso-dr")
        # As Spark and plain Python read it.
        assert read_pair(json.loads(text)["extra"]) == ServiceBusPairHook("shown").get_settings()
    else:
        assert endpoint_of(connection).namespace in ("contoso", "contoso-dr")


def test_the_identities_and_the_management_shown_are_those_said():
    by_secret, of_pair, by_arm = (json.loads(text) for text in JSON[1:])
    credential = endpoint_of(Connection.from_json(json.dumps(by_secret), conn_id="shown")).credential
    assert isinstance(credential, ClientSecret)
    assert credential.client_secret.reveal() == "SECRET"
    pair = read_pair(of_pair["extra"])
    assert (pair.primary.credential, pair.secondary.credential) == (ManagedIdentity(), DefaultIdentity())
    arm = endpoint_of(Connection.from_json(json.dumps(by_arm), conn_id="shown")).arm
    assert arm is not None
    assert (arm.resource_group, arm.credential) == ("messaging", DefaultIdentity())


@pytest.mark.usefixtures("exported")
def test_each_uri_says_what_its_json_says(monkeypatch: pytest.MonkeyPatch):
    pair, namespace, official = URIS
    monkeypatch.setenv("AIRFLOW_CONN_BY_URI", pair)
    assert ServiceBusPairHook("by_uri").get_settings() == ServiceBusPairHook("contoso_pair").get_settings()
    shown = Connection.from_uri(namespace, conn_id="shown")
    assert endpoint_of(shown) == endpoint_of(Connection.from_json(JSON[1], conn_id="shown"))
    found = endpoint_of(Connection.from_uri(official, conn_id="shown"))
    assert found == ServiceBusPairHook("contoso_pair").get_settings().secondary
    for each in (shown, Connection.from_json(JSON[1], conn_id="shown")):
        assert endpoint_of(Connection.from_uri(each.get_uri(), conn_id="again")) == endpoint_of(each)


def test_the_tables_name_every_field_with_its_default():
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+)(?: \(default\))? \| (.*) \|$", PAGE, flags=re.MULTILINE)
    named = {name: rest for names, rest in rows for name in re.findall(r"`([a-z_]+)`", names)}
    assert {*ENDPOINT_SETTINGS, *AUTHENTICATIONS, *(option.name for option in fields(PairOptions))} <= set(named)
    defaults = PairOptions()
    for option in fields(PairOptions):
        value = getattr(defaults, option.name)
        shown = named[option.name].partition(" | ")[0].strip("`")
        expected = value.total_seconds() if isinstance(value, timedelta) else value
        assert shown == (f"{expected:g}" if isinstance(expected, float) else str(expected).lower())


def test_the_snippet_makes_a_pair():
    [snippet] = [text for kind, text in BLOCKS if kind == "python"]
    made: dict[str, Any] = {}
    exec(snippet, made)  # noqa: S102  our own page
    assert (made["pair"].primary.namespace, made["pair"].secondary.arm.resource_group) == ("contoso", "messaging")
    assert "SECRET" not in repr(made["secondary"])


def test_the_findings_shown_are_those_of_a_key_that_may_only_send():
    from servicebus_pair.core.errors import AuthorizationError
    from servicebus_pair.core.inspection import Attempts, findings

    denied = AuthorizationError("no")
    primary = findings("contoso", Attempts(send=None, listen=denied, manage=denied, queue="flights"))
    secondary = findings("contoso-dr", Attempts(send=None, listen=None, manage=None, queue="flights"))
    assert f"```text\nprimary {primary}; secondary {secondary}\n```" in PAGE
