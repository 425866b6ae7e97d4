"""The options of the data source are read on the driver, and an error names option, value and what is allowed."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.health import HEALTHY
from servicebus_pair.spark.option_table import OPTIONS, Use, parsed
from servicebus_pair.spark.options import ReadOptions, WriteOptions
from servicebus_pair.spark.received import SCHEMA
from servicebus_pair.spark.redaction import Redaction
from servicebus_pair.spark.schema import COLUMNS
from tests.system.demo.layout import PROJECT

DOCS = PROJECT / "provider" / "docs" / "spark.md"
CANARY = "canary-4f1d0c6be2"
SETTINGS = {
    f"{side}_connection_string": f"Endpoint=sb://{side}.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey={CANARY}"
    for side in ("primary", "secondary")
}
READ = {"credential": "env:THE_PAIR", "entity": "flights"}


def test_names_of_options_are_read_in_any_case_as_spark_gives_them():
    given = {"CREDENTIAL": "env:THE_PAIR", "maxbatchesinflight": "7", "ratePerTask": "2.5", "checkpointLocation": "x"}
    options = WriteOptions.of({name.lower(): text for name, text in given.items()})
    assert (options.in_flight, options.rate, str(options.access.reference)) == (7, 2.5, "env:THE_PAIR")


def test_a_folder_is_the_same_one_wherever_a_task_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    options = WriteOptions.of({"credential": "env:THE_PAIR", "ledger": "ledger", "manifest": "/elsewhere/manifest"})
    assert (options.ledger, options.manifest) == (str(tmp_path / "ledger"), "/elsewhere/manifest")


def test_health_that_is_handed_in_is_read():
    text = json.dumps({"flights": HEALTHY.to_json()})
    assert WriteOptions.of({"credential": "env:THE_PAIR", "health": text}).health == {"flights": HEALTHY}


def test_options_of_the_pair_win_over_its_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_PAIR", json.dumps(SETTINGS | {"failover_interval": 30, "probe": "link"}))
    options = WriteOptions.of({"credential": "env:THE_PAIR", "failoverInterval": "5", "backlogQueueCount": "3"})
    found = options.access.resolve(Redaction()).options
    assert (found.failover_interval, found.backlog_queue_count, found.probe) == (timedelta(seconds=5), 3, "link")


def test_what_travels_in_the_plan_holds_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("THE_PAIR", json.dumps(SETTINGS))
    monkeypatch.setenv("AIRFLOW_CONN_THE_PAIR", json.dumps({"extra": SETTINGS}))
    (tmp_path / "pair.json").write_text(json.dumps(SETTINGS))
    for credential in ("env:THE_PAIR", f"file:{tmp_path / 'pair.json'}", "airflow:the_pair"):
        options = WriteOptions.of({"credential": credential})
        assert options.access.resolve(Redaction()).primary.namespace == "primary"
        assert CANARY.encode() not in pickle.dumps(options)


def test_an_identity_comes_with_the_hosts_of_both_namespaces():
    hosts = {"primaryNamespace": "one.servicebus.windows.net", "secondaryNamespace": "two.servicebus.windows.net"}
    for credential in ("default", "managedIdentity"):
        settings = WriteOptions.of({"credential": credential, **hosts}).access.resolve(Redaction())
        assert (settings.primary.namespace, settings.secondary.namespace) == ("one", "two")
        assert settings.primary.credential is not None
        with pytest.raises(ConfigurationError, match="the host of the secondary namespace is missing"):
            WriteOptions.of({"credential": credential, "primaryNamespace": hosts["primaryNamespace"]})
    with pytest.raises(ConfigurationError, match="hosts are given beside an identity only"):
        WriteOptions.of({"credential": "env:THE_PAIR", **hosts})


WRONG_WRITES = {
    "option ledger is 'abfss://c@a.dfs.core.windows.net/ledger': allowed is path of a folder, not a URL": {
        "ledger": "abfss://c@a.dfs.core.windows.net/ledger"
    },
    "option manifest is 'dbfs:/manifest.json': allowed is path of a file, not a URL": {
        "manifest": "dbfs:/manifest.json"
    },
    "option credential is missing: allowed are env:NAME": {"credential": ""},
    "option colour is unknown: allowed are credential, primaryNamespace": {"colour": "red"},
    "option sessionId is not for writing: allowed are": {"sessionid": "s"},
    "option maxBatchesInFlight is '0': allowed is a whole number from 1": {"maxBatchesInFlight": "0"},
    "option maxBatchesInFlight is 'many': allowed is a whole number": {"maxBatchesInFlight": "many"},
    "option ratePerTask is 'inf': allowed is a number of messages per second above 0": {"ratePerTask": "inf"},
    "option failoverInterval is 7200.0: allowed is seconds, 0 to 3600": {"failoverInterval": "7200"},
    "option failoverInterval is 'PT1M': allowed is seconds": {"failoverInterval": "PT1M"},
    "option ordering is 'strict': allowed is none and session": {"ordering": "strict"},
    "option entity is flights, delays: a write has one": {"entity": "flights,delays"},
    "option health is '[]': allowed is JSON": {"health": "[]"},
    "option run is ' ': allowed is a name": {"run": " "},
}
MEANT = {
    "enitty": "entity",
    "path": "entity",
    "queue": "entity",
    "connectionString": "credential",
    "connection_string": "credential",
    "rate_per_task": "ratePerTask",
    "maxBatchInFlight": "maxBatchesInFlight",
    "failover_interval": "failoverInterval",
}
MEANT_READING = {
    "subQueues": "subQueue",
    "paths": "entity",
    "maxOffsetsPerTrigger": "maxMessagesPerTrigger",
    "starting-offsets": "startingOffsets",
}
WRONG_READS = {
    "option entity is missing: allowed are paths": {"entity": ""},
    "option entity is 'flights,Flights': allowed is paths": {"entity": "flights,Flights"},
    "option startingOffsets is '{\"flights\": 0}': allowed is": {"startingOffsets": '{"flights": 0}'},
    "option startingOffsets is 'latest': a batch would read nothing": {"startingOffsets": "latest"},
    "option endingOffsets is 'earliest': allowed is": {"endingOffsets": "earliest"},
    "option maxMessagesPerTrigger is given: it is for a stream": {"maxMessagesPerTrigger": "5"},
    "option failOnDataLoss is given: it is for a stream": {"failOnDataLoss": "false"},
    "option failOnDataLoss is 'no': allowed is true and false": {"failOnDataLoss": "no"},
    "option subQueue is 'dead': allowed is main, deadLetter": {"subQueue": "dead"},
    "option namespace is 'tertiary': allowed is primary and secondary": {"namespace": "tertiary"},
    "options sessionId and subQueue=deadLetter are both given": {"subQueue": "deadLetter", "sessionId": "a"},
    "option ledger is not for reading: allowed are": {"ledger": "x"},
}


@pytest.mark.parametrize("says", WRONG_WRITES)
def test_a_wrong_option_of_a_write_is_named(says: str):
    options = {"credential": "env:THE_PAIR"} | WRONG_WRITES[says]
    with pytest.raises(ConfigurationError) as caught:
        WriteOptions.of({name: text for name, text in options.items() if text})
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("given_name", [*MEANT, *MEANT_READING])
def test_an_unknown_option_is_answered_with_the_one_that_was_meant(given_name: str):
    use, meant = (Use.WRITE, MEANT) if given_name in MEANT else (Use.READ, MEANT_READING)
    with pytest.raises(ConfigurationError) as caught:
        parsed({given_name.lower(): CANARY}, use=use)
    assert str(caught.value).startswith(
        f"option {given_name.lower()} is unknown: did you mean {meant[given_name]}? allowed are credential, "
    )
    assert CANARY not in str(caught.value)


def test_what_is_for_the_other_direction_is_not_proposed():
    with pytest.raises(ConfigurationError, match="option maxoffsetspertrigger is unknown: allowed are"):
        parsed({"maxoffsetspertrigger": "5"}, use=Use.WRITE)


@pytest.mark.parametrize("says", WRONG_READS)
def test_a_wrong_option_of_a_read_is_named(says: str):
    options = READ | WRONG_READS[says]
    with pytest.raises(ConfigurationError) as caught:
        ReadOptions.of({name: text for name, text in options.items() if text}, streaming=False)
    assert str(caught.value).startswith(says)


def test_a_stream_has_no_end_and_may_begin_at_the_latest():
    assert ReadOptions.of(READ | {"startingOffsets": "latest"}, streaming=True).start == "latest"
    with pytest.raises(ConfigurationError, match="a stream has no end"):
        ReadOptions.of(READ | {"endingOffsets": "latest"}, streaming=True)


def test_a_stream_follows_dead_letters_only_if_it_may_pass_some_over():
    dead = READ | {"subQueue": "main,deadLetter"}
    with pytest.raises(ConfigurationError, match="option subQueue is deadLetter: dead letters keep the numbers"):
        ReadOptions.of(dead, streaming=True)
    assert len(ReadOptions.of(dead | {"failOnDataLoss": "False"}, streaming=True).peekables) == 2
    assert len(ReadOptions.of(dead, streaming=False).peekables) == 2


@given(st.sampled_from(sorted(OPTIONS)), st.text())
def test_whatever_is_given_is_read_or_refused_by_name(name: str, text: str):
    use = Use.WRITE if Use.WRITE in OPTIONS[name].use else Use.READ
    refusal = ""
    try:
        read = parsed({name: text}, use=use)
    except ConfigurationError as error:
        read, refusal = {}, str(error)
    assert set(read) == {name} or refusal.startswith(f"option {name} is ")
    assert name != "credential" or repr(text) not in refusal


def documented(heading: str) -> dict[str, tuple[str, ...]]:
    """Return the cells of the table below a heading of the documentation, by the first one."""
    section = DOCS.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {name.strip(" `"): tuple(cell.strip(" `") for cell in rest) for name, *rest in rows}


def test_the_documentation_lists_the_options_that_there_are_in_their_order():
    uses = {Use.WRITE: "write", Use.READ: "read", Use.BOTH: "both"}
    told = {name: (use, default) for name, (use, default, *_) in documented("Options").items()}
    assert list(told.items()) == [(each.name, (uses[each.use], each.default)) for each in OPTIONS.values()]


def test_the_documentation_lists_the_columns_that_there_are():
    assert list(documented("Writing")) == list(COLUMNS)
    read = {name: kind for name, (kind, *_) in documented("Reading").items()}
    assert list(read.items()) == [(field.name, field.dataType.simpleString()) for field in SCHEMA]
