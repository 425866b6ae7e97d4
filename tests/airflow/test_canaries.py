"""A canary in every credential field, of every type of connection, appears nowhere, above all when it is refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.log import redact

from servicebus_pair.core.errors import PairError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from tests.airflow.conftest import AIRFLOW_HOME, Pair, RunDag, states
from tests.airflow.test_secrets import _all_bytes, _database_text

CANARY = "c4nary"
FAR = 4_102_444_800


def key(pair: Pair) -> dict[str, Any]:
    return {"conn_type": "servicebus_namespace", "extra": {"connection_string": refused(pair), **place(pair)}}


def official(pair: Pair) -> dict[str, Any]:
    return {"conn_type": "azure_service_bus", "schema": refused(pair)}


def signature(pair: Pair) -> dict[str, Any]:
    served = pair.primary["contoso"]
    signed = f"SharedAccessSignature sr=sb%3a%2f%2f127.0.0.1&sig={CANARY}%2bsig%3d&se={FAR}&skn=Root"
    text = f"Endpoint=sb://{served.host}:{served.amqp_port};SharedAccessSignature={signed};UseDevelopmentEmulator=true;"
    return {"conn_type": "servicebus_namespace", "extra": {"connection_string": text, **place(pair)}}


def client_secret(pair: Pair) -> dict[str, Any]:
    served = pair.primary["contoso"]
    extra = {
        **place(pair),
        "authentication": "client_secret",
        "tenant_id": "contoso.example",
        "authority": f"https://{served.host}:{served.admin_port}",
        "ca_file": str(served.ca_file),
        "emulator": True,
    }
    return {
        "conn_type": "servicebus_namespace",
        "host": f"{served.host}:{served.amqp_port}",
        "login": "servicebus-emulator",
        "password": f"{CANARY}-secret",
        "extra": extra,
    }


def refused(pair: Pair) -> str:
    """A connection string whose key is wrong."""
    return pair.primary["contoso"].connection_string.replace("SharedAccessKey=", f"SharedAccessKey={CANARY}")


def place(pair: Pair) -> dict[str, str]:
    served = pair.primary["contoso"]
    return {"namespace": "contoso", "administration": f"{served.host}:{served.admin_port}"}


def turn(name: str) -> str:
    """The name of a setting for the other side."""
    side, _, rest = name.partition("_")
    return f"{'secondary' if side == 'primary' else 'primary'}_{rest}"


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """All that was printed and logged so far."""

    def read() -> str:
        found = capfd.readouterr()
        return found.out + found.err + caplog.text

    return read


@pytest.mark.parametrize("kind", [key, official, signature, client_secret])
def test_no_credential_that_is_refused_is_shown(
    pair: Pair,
    run_dag: RunDag,
    monkeypatch: pytest.MonkeyPatch,
    printed: Callable[[], str],
    kind: Any,
):
    connection = kind(pair)
    monkeypatch.setenv("AIRFLOW_CONN_NORTH", json.dumps(connection))
    beside = {f"primary_{name}": value for name, value in place(pair).items()} if kind is official else {}
    secondary = {name: value for name, value in pair.extra().items() if name.startswith("secondary_")}
    both = {"conn_type": "servicebus_pair", "extra": {"primary_conn_id": "north", **beside, **secondary}}
    monkeypatch.setenv("AIRFLOW_CONN_CANARIES", json.dumps(both))
    # The other way round, so that it is provisioned by the refused credential.
    turned = {turn(name): value for name, value in both["extra"].items()}
    monkeypatch.setenv("AIRFLOW_CONN_TURNED", json.dumps({"conn_type": "servicebus_pair", "extra": turned}))

    with DAG("canaries", schedule=None) as dag:
        tasks = [
            ServiceBusPairProvisionOperator(task_id="provision", conn_id="turned"),
            ServiceBusPairSendOperator(task_id="send", conn_id="canaries", entity="flights", messages=["a"], timeout=9),
            ServiceBusPrimaryHealthSensor(
                task_id="wait", conn_id="canaries", entities=["flights"], timeout=3, mode="reschedule"
            ),
        ]
    ended = states(run_dag(dag))
    hook = ServiceBusPairHook("canaries")
    succeeded, told = hook.test_connection()

    assert ended["provision"] == ended["send"] == "failed"
    assert not succeeded
    assert told.startswith("primary contoso: reach yes, authenticate not known (no queue to try on, and Azure refuses")
    settings = hook.get_settings()
    assert CANARY.encode() in pickle.dumps(settings)
    logged = printed()
    assert "flights" in logged
    assert CANARY not in f"{logged} {told} {settings!r} {settings} {[hook, *tasks]!r}"
    assert CANARY.encode() not in _all_bytes(AIRFLOW_HOME)
    assert "canaries" in _database_text()
    assert CANARY not in _database_text()
    assert CANARY not in str(redact(f"as in {json.dumps(connection)}"))


def test_a_wrong_type_or_a_text_in_a_wrong_field_is_not_quoted_either(monkeypatch: pytest.MonkeyPatch):
    string = f"Endpoint=sb://h.example/;SharedAccessKeyName=a;SharedAccessKey={CANARY}"
    for field, value in {
        "primary_host": string,
        "primary_connection_string": {"key": CANARY},
        "primary_client_secret": [CANARY],
        "primary_tenant_id": {CANARY: CANARY},
    }.items():
        extra = {"primary_authentication": "client_secret", "primary_host": "h.example", field: value}
        extra |= {"primary_tenant_id": "t", "primary_client_id": "c", "primary_client_secret": "s", field: value}
        monkeypatch.setenv("AIRFLOW_CONN_WRONG", json.dumps({"conn_type": "servicebus_pair", "extra": extra}))
        with pytest.raises(PairError) as caught:
            ServiceBusPairHook("wrong").get_settings()
        assert field in str(caught.value)
        assert CANARY not in f"{caught.value!r} {caught.value}"
