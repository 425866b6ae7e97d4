"""A pair is given by reference, and no error about it shows what the reference holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.redaction import Redaction, SparkTaskError, secret_free, task_error
from servicebus_pair.spark.references import PairReference

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
def test_settings_are_read_from_a_variable_and_from_a_file(
    value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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
def test_what_is_no_reference_is_refused_and_not_quoted(text: str):
    with pytest.raises(ConfigurationError, match="allowed are env:NAME, file:PATH") as caught:
        PairReference.parse(text)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (f'{{"primary": "{KEY}"', "is not JSON"),
        (f'["{KEY}"]', "is a list: it must be a JSON object"),
        (f'{{"extra": 5, "key": "{KEY}"}}', "its extra is a int"),
        (json.dumps({"primary_connection_string": f"SharedAccessKey={KEY}"}), "Endpoint is missing"),
    ],
)
def test_an_invalid_value_is_described_and_not_quoted(value: str, says: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_PAIR", value)
    with pytest.raises(ConfigurationError, match=says) as caught:
        PairReference.parse("env:THE_PAIR").resolve(Redaction())
    assert KEY not in repr(caught.value)


def test_a_missing_variable_and_a_missing_file_are_named():
    with pytest.raises(ConfigurationError, match=r"env:NO_SUCH_PAIR .* not set on this executor"):
        PairReference.parse("env:NO_SUCH_PAIR").resolve(Redaction())
    with pytest.raises(ConfigurationError, match=r"file:/no/such/pair .* cannot be read .*: No such file"):
        PairReference.parse("file:/no/such/pair").resolve(Redaction())


def test_a_pair_by_reference_to_other_connections_is_refused_and_what_to_do_is_told(monkeypatch: pytest.MonkeyPatch):
    by_reference = {"primary_conn_id": "contoso", "secondary_conn_id": "contoso_dr"}
    monkeypatch.setenv("THE_PAIR", json.dumps({"conn_type": "servicebus_pair", "extra": by_reference}))
    with pytest.raises(ConfigurationError, match=r"env:THE_PAIR: setting primary_conn_id .* give the settings themsel"):
        PairReference.parse("env:THE_PAIR").resolve(Redaction())


def test_a_client_secret_is_a_secret_too(monkeypatch: pytest.MonkeyPatch):
    settings = {f"{side}_authentication": "client_secret" for side in ("primary", "secondary")}
    for side in ("primary", "secondary"):
        settings |= {f"{side}_host": f"{side}.servicebus.windows.net", f"{side}_tenant_id": "t"}
        settings |= {f"{side}_client_id": "c", f"{side}_client_secret": f"{KEY}+{side}"}
    monkeypatch.setenv("THE_PAIR", json.dumps(settings))
    redaction = Redaction()
    assert KEY not in repr(PairReference.parse("env:THE_PAIR").resolve(redaction))
    assert redaction.clean(f"as {KEY}+primary or {KEY}+secondary") == "as *** or ***"


def test_an_error_that_leaves_a_task_holds_no_secret_and_no_chain(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_PAIR", json.dumps(SETTINGS))
    redaction = Redaction()
    PairReference.parse("env:THE_PAIR").resolve(redaction)
    with pytest.raises(SparkTaskError) as caught, secret_free(redaction):
        raise OSError(f"cannot reach it with {KEY} or SharedAccessKey=another;")
    assert str(caught.value) == "OSError: cannot reach it with *** or SharedAccessKey=***;"
    assert caught.value.__suppress_context__
    with pytest.raises(SparkTaskError) as again, secret_free(redaction):
        raise caught.value
    assert str(again.value) == str(caught.value), "it says once what it is"
    spark = f"Job aborted:\nTraceback\n  File\nservicebus_pair.spark.redaction.SparkTaskError: {caught.value}\n\tat x.y"
    assert task_error(RuntimeError(spark)) == str(caught.value)
    assert task_error(RuntimeError("\n[SOMETHING_ELSE] of Spark\nand more")) == "[SOMETHING_ELSE] of Spark"
