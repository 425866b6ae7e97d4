"""Pairs whose namespaces are other connections, of our type or the official provider's."""

from __future__ import annotations

import json
import traceback
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker.secrets_masker import redact

from servicebus_pair.airflow_runtime.airflow_version import has
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.sdk.credentials import ClientSecret, DefaultIdentity
from servicebus_pair.hooks.servicebus_namespace import ServiceBusNamespaceHook
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import CONN_ID, Pair, RunDag, run_task
from tests.airflow.support.queues import contents, queue_names
from tests.airflow.support.tasks import provision, send

CANARY = "c4nary"
# Airflow 3.1 does not find such a connection.
NOT_JSON = "connection north: its extra must be a JSON object" if has("connection_forms") else "is no such connection"
HOST = "contoso.servicebus.windows.net"
STRING = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=a;SharedAccessKey={CANARY}-key"
OTHER = STRING.replace("contoso", "contoso-dr")
OURS = {"conn_type": "servicebus_namespace", "extra": {"connection_string": STRING}}
OFFICIAL = {"conn_type": "azure_service_bus", "schema": STRING}
BY_SECRET = {
    "conn_type": "servicebus_namespace",
    "host": HOST,
    "login": "app",
    "password": f"{CANARY}-secret",
    "extra": {"authentication": "client_secret", "tenant_id": "t"},
}


def define(monkeypatch: pytest.MonkeyPatch, conn_id: str, connection: dict[str, Any]) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))


def pair_to(monkeypatch: pytest.MonkeyPatch, primary: dict[str, Any], **more: Any) -> ServiceBusPairHook:
    """A hook of the pair ``both``, whose primary is the connection ``north``."""
    define(monkeypatch, "north", primary)
    extra = {"primary_conn_id": "north", "secondary_connection_string": OTHER, **more}
    define(monkeypatch, "both", {"conn_type": "servicebus_pair", "extra": extra})
    return ServiceBusPairHook("both")


@pytest.mark.parametrize(
    ("connection", "credential"),
    [
        (OURS, None),
        (OFFICIAL, None),
        ({**OFFICIAL, "extra": {"fully_qualified_namespace": "ignored.example"}}, None),
        (BY_SECRET, ClientSecret),
        (
            {"conn_type": "azure_service_bus", "extra": {"fully_qualified_namespace": HOST}},
            DefaultIdentity(),
        ),
        (
            {
                "conn_type": "azure_service_bus",
                "host": HOST,
                "extra": {
                    "extra__azure_service_bus__managed_identity_client_id": "m",
                    "workload_identity_tenant_id": "w",
                },
            },
            DefaultIdentity(client_id="m", tenant_id="w"),
        ),
    ],
    ids=["ours", "official", "official, both ways", "ours by secret", "official identity", "official, older names"],
)
async def test_referenced_namespaces_are_read_synchronously_and_asynchronously(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], credential: Any
):
    hook = pair_to(monkeypatch, connection)
    found = hook.get_settings()
    assert found == await hook.aget_settings()
    assert (found.primary.host, found.primary.namespace, found.secondary.namespace) == (HOST, "contoso", "contoso-dr")
    expected = found.primary.credential if isinstance(credential, type) else credential
    assert found.primary.credential == expected
    assert credential is None or isinstance(found.primary.credential, type(expected))
    assert CANARY not in repr(found) + str(redact(f"as in {json.dumps(connection)}"))


@pytest.mark.parametrize(
    ("primary", "more", "message"),
    [
        (OURS, {"primary_conn_id": "nowhere"}, "setting primary_conn_id is 'nowhere': there is no such connection"),
        (OURS, {"primary_conn_id": 5}, "setting primary_conn_id is 5: it must be a connection id"),
        (OURS, {"primary_conn_id": "both"}, "connection both is of type 'servicebus_pair': to be one namespace"),
        ({"conn_type": "http", "host": HOST}, {}, "connection north is of type 'http': to be one namespace of a pair"),
        (OURS, {"primary_connection_string": STRING}, "primary_conn_id and primary_connection_string are both given"),
        (OURS, {"primary_client_secret": CANARY}, "primary_conn_id and primary_client_secret are both given"),
        ({**BY_SECRET, "password": None}, {}, "setting password of connection north is missing"),
        ({**BY_SECRET, "host": None}, {}, "setting host of connection north is missing"),
        ({**BY_SECRET, "extra": {"client_id": "x"}}, {}, "both login and client_id in its extra are"),
        ({**BY_SECRET, "extra": {"authentication": "key"}}, {}, "authentication of connection north is 'key': allowed"),
        ({**OURS, "extra": {"conection_string": CANARY}}, {}, "conection_string of connection north is unknown: allow"),
        ({**OURS, "extra": CANARY}, {}, NOT_JSON),
        ({**OFFICIAL, "schema": CANARY}, {}, "setting schema of connection north: connection string: Endpoint is miss"),
        ({"conn_type": "azure_service_bus"}, {}, "setting fully_qualified_namespace of connection north is missing"),
        (
            {"conn_type": "azure_service_bus", "host": HOST, "extra": {"credential": CANARY}},
            {},
            "connection north: its extra has credential, a text, but the SDK expects an identity",
        ),
        (OURS, {"failover_interval": 3601}, "failover_interval is 3601: it must be a timedelta or a number of seconds"),
        (OURS, {"ordering": "fifo"}, "ordering is 'fifo': allowed are none, session"),
        (OURS, {"failover_intervall": 5}, "connection both: setting 'failover_intervall' is unknown: allowed are"),
        (OURS, {"secondary_connection_string": f"Key={CANARY}"}, "setting secondary_connection_string: connection str"),
        (OURS, {"primary_host": {"key": CANARY}}, "primary_conn_id and primary_host are both given"),
    ],
)
async def test_invalid_references_raise_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, primary: dict[str, Any], more: dict[str, Any], message: str
):
    hook = pair_to(monkeypatch, primary, **more)
    with pytest.raises(ConfigurationError) as caught:
        hook.get_settings()
    with pytest.raises(ConfigurationError) as awaited:
        await hook.aget_settings()
    assert message in str(caught.value)
    assert str(caught.value) == str(awaited.value)
    assert "both" in str(caught.value)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert hook.test_connection() == (False, str(caught.value))


def test_a_connection_of_another_type_is_refused(monkeypatch: pytest.MonkeyPatch):
    define(monkeypatch, "north", OFFICIAL)
    with pytest.raises(ConfigurationError, match="connection north is of type 'azure_service_bus': it must be 'servic"):
        ServiceBusPairHook("north").get_settings()
    with pytest.raises(ConfigurationError, match="it must be 'servicebus_namespace'"):
        ServiceBusNamespaceHook("north").get_endpoint()


def test_operators_work_on_a_pair_by_reference(pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch):
    inline = pair.extra()
    primary, secondary = inline["primary_connection_string"], inline["secondary_connection_string"]
    define(monkeypatch, "north", {"conn_type": "azure_service_bus", "schema": primary})
    south = {"connection_string": secondary, "namespace": "contoso-dr"}
    south["administration"] = inline["secondary_administration"]
    define(monkeypatch, "south", {"conn_type": "servicebus_namespace", "extra": south})
    extra = {"primary_conn_id": "north", "primary_namespace": "contoso", "secondary_conn_id": "south"}
    extra["primary_administration"] = inline["primary_administration"]
    define(monkeypatch, CONN_ID, {"conn_type": "servicebus_pair", "extra": {**extra, "backlog_queue_count": 2}})

    sent = run_task(run_dag, provision, lambda: send(messages=["a"]))

    assert sent["send"]["primary"] == 1
    assert [message.body for message in contents(pair.primary["contoso"], "flights")] == ["a"]
    succeeded, reported = ServiceBusPairHook(CONN_ID).test_connection()
    assert (succeeded, reported.count("reach yes, authenticate yes, send yes, listen yes, manage yes")) == (True, 2), (
        reported
    )
    assert ServiceBusNamespaceHook("south").test_connection()[0]


@pytest.mark.parametrize("pair", [None], indirect=True)
def test_a_secondary_with_arm_coordinates_is_provisioned_by_resource_manager(
    pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
):
    served = pair.secondary["contoso-dr"]
    extra = {
        "connection_string": served.connection_string,
        "namespace": "contoso-dr",
        "administration": "127.0.0.1:1",  # unreachable
        "tenant_id": "any",
        "subscription_id": "00000000-0000-0000-0000-000000000000",
        "resource_group": "servicebus-emulator",
        "management_endpoint": pair.secondary.arm_url,
        "authority": f"https://{served.host}:{served.admin_port}",
        "ca_file": str(served.ca_file),
    }
    application = {"login": "servicebus-emulator", "password": "CLIENT_SECRET_VALUE"}
    define(monkeypatch, "south", {"conn_type": "servicebus_namespace", **application, "extra": extra})
    primary = {name: value for name, value in pair.extra().items() if not name.startswith("secondary_")}
    define(monkeypatch, CONN_ID, {"conn_type": "servicebus_pair", "extra": {**primary, "secondary_conn_id": "south"}})

    run_task(run_dag, provision)

    assert queue_names(served) == [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
    assert ServiceBusPairHook(CONN_ID).test_connection()[0]


def test_an_official_connection_allows_other_hosts_in_its_own_extra_only(monkeypatch: pytest.MonkeyPatch):
    gateway = {"primary_endpoint_address": "sb://gateway.example:443"}
    for refused in (gateway, {**gateway, "primary_allow_other_hosts": True}):
        with pytest.raises(ConfigurationError, match="allow_other_hosts"):
            pair_to(monkeypatch, OFFICIAL, **refused).get_settings()
    allowed = pair_to(monkeypatch, {**OFFICIAL, "extra": {"allow_other_hosts": True}}, **gateway).get_settings()
    assert allowed.primary.endpoint_address == "sb://gateway.example:443"
