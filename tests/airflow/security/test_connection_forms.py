"""A secret in any field of any connection form comes back in no error, ``repr``, log of ours or page."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from servicebus_pair.connection_types import connection_types
from servicebus_pair.core.model import redaction
from servicebus_pair.hooks.servicebus_namespace import ServiceBusNamespaceHook
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.ui.sources.connections import load_pair_settings
from tests.security.canaries import CANARIES, disclosed, outcome

HOST = "contoso.servicebus.windows.net"
STRING = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=a;SharedAccessKey=b"
PAIR = {"primary_connection_string": STRING, "secondary_connection_string": STRING.replace("contoso", "contoso-dr")}
FORMS = {form["connection-type"]: list(form["conn-fields"]) for form in connection_types()}
FORMS["azure_service_bus"] = [
    *("fully_qualified_namespace", "credential", "managed_identity_client_id", "workload_identity_tenant_id")
]
STANDARD = ["conn_type", "host", "login", "password", "schema", "extra"]
FIELDS = [(kind, name) for kind, names in FORMS.items() for name in (*names, *STANDARD, "a name")]


def connection_with(kind: str, name: str, canary: Any) -> dict[str, Any]:
    """Return a connection that is valid but for one field."""
    extra: dict[str, Any] = {"servicebus_pair": PAIR, "servicebus_namespace": {"connection_string": STRING}}.get(
        kind, {}
    )
    connection: dict[str, Any] = {"conn_type": kind, "extra": extra}
    if name in STANDARD:
        return {**connection, name: canary if isinstance(canary, str) else json.dumps(canary)}
    return {**connection, "extra": {**extra, str(canary) if name == "a name" else name: canary}}


@pytest.fixture(autouse=True)
def nothing_learned() -> None:
    """Forget the secrets of earlier tests: Airflow compiles its pattern of all of them again for each one."""
    from airflow.sdk._shared.secrets_masker import reset_secrets_masker

    reset_secrets_masker()
    redaction._learned.clear()


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda each: each)
def test_no_field_of_a_form_discloses_a_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, name: str
):
    caplog.set_level(logging.DEBUG, "servicebus_pair")
    # Airflow compiles its pattern again for each secret; tests/airflow/scenarios/test_masked_secrets.py tests it.
    masked: list[str] = []
    for hook in ("pair", "namespace"):
        monkeypatch.setattr(f"servicebus_pair.hooks.servicebus_{hook}.mask_secret", masked.append)
    leaks: dict[str, Any] = {}
    for label, canary in CANARIES.items():
        connection = connection_with(kind, name, canary)
        monkeypatch.setenv("AIRFLOW_CONN_ATTACKED", json.dumps(connection))
        referring = {**PAIR, "primary_connection_string": "", "primary_conn_id": "attacked"}
        monkeypatch.setenv("AIRFLOW_CONN_REFERRING", json.dumps({"conn_type": "servicebus_pair", "extra": referring}))
        masked.clear()
        seen = {
            "pair": outcome(ServiceBusPairHook("attacked").get_settings),
            "reference": outcome(ServiceBusPairHook("referring").get_settings),
            "namespace": outcome(ServiceBusNamespaceHook("attacked").get_endpoint),
            "unmasked": "" if name in ("conn_type", "extra") or disclosed(str(masked)) else str(canary),
            "page": str(load_pair_settings_of("attacked", "referring")),
            "log": caplog.text,
        }
        leaks |= {(label, where): text for where, text in seen.items() if disclosed(text)}

    assert leaks == {}


def load_pair_settings_of(*conn_ids: str) -> dict[str, object]:
    from unittest import mock

    with mock.patch("servicebus_pair.ui.sources.connections._conn_ids_in_database", list):
        found = load_pair_settings(conn_ids)
    return {conn_id: found[conn_id] for conn_id in conn_ids}


@pytest.mark.parametrize("name", FORMS["servicebus_pair"])
def test_viewers_see_which_field_is_wrong_and_not_its_value(monkeypatch: pytest.MonkeyPatch, name: str):
    arm = {f"{side}_{each}": "a" for side in ("primary", "secondary") for each in ("subscription_id", "resource_group")}
    # A client secret needs the other two settings of its kind.
    principal = {name.replace("client_secret", each): "a" for each in ("tenant_id", "client_id")}
    extra: dict[str, Any] = {**PAIR, **arm, **(principal if name.endswith("client_secret") else {})}
    extra |= {name: {"a value": "that no field may have"}}
    monkeypatch.setenv("AIRFLOW_CONN_ATTACKED", json.dumps({"conn_type": "servicebus_pair", "extra": extra}))

    problem = str(load_pair_settings_of("attacked")["attacked"])

    assert f"setting {name} is missing or not allowed" in problem
    assert "that no field may have" not in problem
