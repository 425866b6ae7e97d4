"""Every connection on the connections page is valid and means what the page says."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import Connection

from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.pair.endpoint_settings import AUTHENTICATIONS, ENDPOINT_SETTINGS
from servicebus_pair.core.pair.settings import read_pair_settings
from servicebus_pair.core.sdk.credentials import ClientSecret, DefaultIdentity, ManagedIdentity
from servicebus_pair.hooks.connection_fields import endpoint_from_connection
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
        assert read_pair_settings(json.loads(text)["extra"]) == ServiceBusPairHook("shown").get_settings()
    else:
        assert endpoint_from_connection(connection).namespace in ("contoso", "contoso-dr")


def test_identities_and_management_are_as_described():
    by_secret, of_pair, by_arm = (json.loads(text) for text in JSON[1:])
    credential = endpoint_from_connection(Connection.from_json(json.dumps(by_secret), conn_id="shown")).credential
    assert isinstance(credential, ClientSecret)
    assert credential.client_secret.reveal() == "SECRET"
    pair = read_pair_settings(of_pair["extra"])
    assert (pair.primary.credential, pair.secondary.credential) == (ManagedIdentity(), DefaultIdentity())
    arm = endpoint_from_connection(Connection.from_json(json.dumps(by_arm), conn_id="shown")).arm
    assert arm is not None
    assert (arm.resource_group, arm.credential) == ("messaging", DefaultIdentity())


@pytest.mark.usefixtures("exported")
def test_each_uri_equals_its_json(monkeypatch: pytest.MonkeyPatch):
    pair, namespace, official = URIS
    monkeypatch.setenv("AIRFLOW_CONN_BY_URI", pair)
    assert ServiceBusPairHook("by_uri").get_settings() == ServiceBusPairHook("contoso_pair").get_settings()
    shown = Connection.from_uri(namespace, conn_id="shown")
    assert endpoint_from_connection(shown) == endpoint_from_connection(Connection.from_json(JSON[1], conn_id="shown"))
    found = endpoint_from_connection(Connection.from_uri(official, conn_id="shown"))
    assert found == ServiceBusPairHook("contoso_pair").get_settings().secondary
    for each in (shown, Connection.from_json(JSON[1], conn_id="shown")):
        assert endpoint_from_connection(
            Connection.from_uri(each.get_uri(), conn_id="again")
        ) == endpoint_from_connection(each)


def test_the_tables_name_every_field_with_its_default():
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+)(?: \(default\))? \| (.*) \|$", PAGE, flags=re.MULTILINE)
    named = {name: rest for names, rest in rows for name in re.findall(r"`([a-z_]+)`", names)}
    assert {*ENDPOINT_SETTINGS, *AUTHENTICATIONS, *(option.name for option in fields(PairOptions))} <= set(named)
    defaults = PairOptions()
    for option in fields(PairOptions):
        value = getattr(defaults, option.name)
        shown = named[option.name].partition(" | ")[0].strip("`")
        expected = value.total_seconds() if isinstance(value, timedelta) else value
        assert shown == (f"{expected:.12g}" if isinstance(expected, float) else str(expected).lower())


def test_the_snippet_creates_a_pair():
    [snippet] = [text for kind, text in BLOCKS if kind == "python"]
    made: dict[str, Any] = {}
    exec(snippet, made)  # noqa: S102  our own page
    assert (made["pair"].primary.namespace, made["pair"].secondary.arm.resource_group) == ("contoso", "messaging")
    assert "SECRET" not in repr(made["secondary"])


def test_the_findings_are_those_of_a_send_only_key():
    from servicebus_pair.core.model.errors import AuthorizationError
    from servicebus_pair.core.pair.connection_check import Attempts, evaluate_attempts

    denied = AuthorizationError("no")
    primary = evaluate_attempts("contoso", Attempts(send=None, listen=denied, manage=denied, queue="flights"))
    secondary = evaluate_attempts("contoso-dr", Attempts(send=None, listen=None, manage=None, queue="flights"))
    assert f"```text\nprimary {primary}; secondary {secondary}\n```" in PAGE
