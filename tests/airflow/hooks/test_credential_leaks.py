"""A canary in every credential field of every connection type never appears in errors, logs or repr."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.log import redact

from servicebus_pair.core.model.errors import PairError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from tests.airflow.conftest import Pair, RunDag, define_connection, states
from tests.airflow.support.database import all_files, database_dump

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


@pytest.mark.parametrize("kind", [key, official, signature, client_secret])
def test_refused_credentials_are_never_shown(
    pair: Pair,
    run_dag: RunDag,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    *,
    kind: Any,
):
    connection = kind(pair)
    monkeypatch.setenv("AIRFLOW_CONN_NORTH", json.dumps(connection))
    primary_place = {f"primary_{name}": value for name, value in place(pair).items()} if kind is official else {}
    secondary = {name: value for name, value in pair.extra().items() if name.startswith("secondary_")}
    both = {"conn_type": "servicebus_pair", "extra": {"primary_conn_id": "north", **primary_place, **secondary}}
    monkeypatch.setenv("AIRFLOW_CONN_CANARIES", json.dumps(both))
    # The other way round, so that it is provisioned by the refused credential.
    turned = {turn(name): value for name, value in both["extra"].items()}
    define_connection(monkeypatch, turned, conn_id="turned")

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
    succeeded, report = hook.test_connection()

    assert ended["provision"] == ended["send"] == "failed"
    assert not succeeded
    assert report.startswith("primary contoso: reach yes, authenticate not known (no queue to test, and Azure issues")
    settings = hook.get_settings()
    assert CANARY.encode() in pickle.dumps(settings)
    printed = capfd.readouterr()
    logged = printed.out + printed.err + caplog.text
    assert "flights" in logged
    assert CANARY not in f"{logged} {report} {settings!r} {settings} {[hook, *tasks]!r}"
    assert CANARY.encode() not in all_files()
    assert "canaries" in database_dump()
    assert CANARY not in database_dump()
    assert CANARY not in str(redact(f"as in {json.dumps(connection)}"))


def test_misplaced_values_are_not_quoted(monkeypatch: pytest.MonkeyPatch):
    string = f"Endpoint=sb://h.example/;SharedAccessKeyName=a;SharedAccessKey={CANARY}"
    for field, value in {
        "primary_host": string,
        "primary_connection_string": {"key": CANARY},
        "primary_client_secret": [CANARY],
        "primary_tenant_id": {CANARY: CANARY},
    }.items():
        extra = {"primary_authentication": "client_secret", "primary_host": "h.example", field: value}
        extra |= {"primary_tenant_id": "t", "primary_client_id": "c", "primary_client_secret": "s", field: value}
        define_connection(monkeypatch, extra, conn_id="wrong")
        with pytest.raises(PairError) as caught:
            ServiceBusPairHook("wrong").get_settings()
        assert field in str(caught.value)
        assert CANARY not in f"{caught.value!r} {caught.value}"
