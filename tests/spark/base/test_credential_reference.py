"""Pairs are given by reference; errors never quote what a reference contains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.redaction import Redaction

KEY = "canary-4f1d0c6be2"
SETTINGS = {
    f"{side}_connection_string": f"Endpoint=sb://{side}.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey={KEY}"
    for side in ("primary", "secondary")
}


@pytest.mark.parametrize(
    "value",
    [SETTINGS, {"conn_type": "servicebus_pair", "extra": SETTINGS}, {"extra": json.dumps(SETTINGS)}],
    ids=["settings", "connection", "connection with extra as text"],
)
def test_settings_are_read_from_variable_and_file(value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pair.json").write_text(json.dumps(value))
    monkeypatch.setenv("THE_PAIR", json.dumps(value))
    for reference in ("env:THE_PAIR", f"file:{tmp_path / 'pair.json'}"):
        settings = PairReference.parse(reference).resolve(Redaction())
        assert (settings.primary.namespace, settings.secondary.namespace) == ("primary", "secondary")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "THE_PAIR",
        "env:",
        "file: ",
        "default:x",
        f"env:k={KEY}",
        f"airflow:a;{KEY}",
        SETTINGS["primary_connection_string"],
    ],
)
def test_invalid_reference_is_rejected_without_quoting_it(text: str):
    with pytest.raises(ConfigurationError, match="allowed are env:NAME, file:PATH") as caught:
        PairReference.parse(text)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (f'{{"primary": "{KEY}"', "is not JSON"),
        (f'["{KEY}"]', "is a list: it must be a JSON object"),
        (f'{{"extra": 5, "key": "{KEY}"}}', "its extra is a int"),
        (json.dumps({"primary_connection_string": f"SharedAccessKey={KEY}"}), "Endpoint is missing"),
    ],
)
def test_invalid_settings_are_rejected_without_quoting_them(value: str, error: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_PAIR", value)
    with pytest.raises(ConfigurationError, match=error) as caught:
        PairReference.parse("env:THE_PAIR").resolve(Redaction())
    assert KEY not in repr(caught.value)


def test_missing_variable_and_file_are_named():
    with pytest.raises(ConfigurationError, match=r"env:NO_SUCH_PAIR .* not set on this executor"):
        PairReference.parse("env:NO_SUCH_PAIR").resolve(Redaction())
    with pytest.raises(ConfigurationError, match=r"file:/no/such/pair .* cannot be read .*: No such file"):
        PairReference.parse("file:/no/such/pair").resolve(Redaction())


def test_reference_to_other_connections_is_rejected(monkeypatch: pytest.MonkeyPatch):
    by_reference = {"primary_conn_id": "contoso", "secondary_conn_id": "contoso_dr"}
    monkeypatch.setenv("THE_PAIR", json.dumps({"conn_type": "servicebus_pair", "extra": by_reference}))
    with pytest.raises(ConfigurationError, match=r"env:THE_PAIR: setting primary_conn_id .* give the settings themsel"):
        PairReference.parse("env:THE_PAIR").resolve(Redaction())


def test_client_secret_is_redacted(monkeypatch: pytest.MonkeyPatch):
    settings = {f"{side}_authentication": "client_secret" for side in ("primary", "secondary")}
    for side in ("primary", "secondary"):
        settings |= {f"{side}_host": f"{side}.servicebus.windows.net", f"{side}_tenant_id": "t"}
        settings |= {f"{side}_client_id": "c", f"{side}_client_secret": f"{KEY}+{side}"}
    monkeypatch.setenv("THE_PAIR", json.dumps(settings))
    redaction = Redaction()
    assert KEY not in repr(PairReference.parse("env:THE_PAIR").resolve(redaction))
    assert redaction.clean(f"as {KEY}+primary or {KEY}+secondary") == "as *** or ***"
