"""Options are parsed on the driver; errors name option, value and what is allowed."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.health_state import HEALTHY
from servicebus_pair.spark.base.redaction import Redaction
from servicebus_pair.spark.datasource.option_table import OPTIONS, Direction, parse_options
from servicebus_pair.spark.datasource.options import ReadOptions, WriteOptions
from servicebus_pair.spark.datasource.read_schema import SCHEMA
from servicebus_pair.spark.datasource.write_schema import COLUMN_TYPES
from tests.system.demo.layout import PROJECT

DOCS = PROJECT / "provider" / "docs" / "spark.md"
CANARY = "canary-4f1d0c6be2"
SETTINGS = {
    f"{side}_connection_string": f"Endpoint=sb://{side}.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey={CANARY}"
    for side in ("primary", "secondary")
}
SPOOL = {"spool": "/mnt/spool", "spoolMaxBytes": "1000", "spoolMaxAge": "86400"}
READ = {"credential": "env:THE_PAIR", "entity": "flights"}


def test_option_names_are_case_insensitive():
    given = {"CREDENTIAL": "env:THE_PAIR", "maxbatchesinflight": "7", "ratePerTask": "2.5", "checkpointLocation": "x"}
    options = WriteOptions.parse({name.lower(): text for name, text in given.items()})
    assert (options.in_flight, options.rate, str(options.access.reference)) == (7, 2.5, "env:THE_PAIR")


def test_health_option_is_parsed():
    text = json.dumps({"flights": HEALTHY.to_json()})
    options = WriteOptions.parse({"credential": "env:THE_PAIR", "health": text, "ledger": "ledger"})
    assert (options.health, options.ledger) == ({"flights": HEALTHY}, str(Path.cwd() / "ledger"))


def test_options_override_pair_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_PAIR", json.dumps(SETTINGS | {"failover_interval": 30, "probe": "link"}))
    options = WriteOptions.parse(
        {"credential": "env:THE_PAIR", "failoverInterval": "5", "backlogQueueCount": "3"} | SPOOL
    )
    found = options.access.resolve(Redaction()).options
    assert (found.failover_interval, found.backlog_queue_count, found.probe) == (timedelta(seconds=5), 3, "link")
    assert (found.spool, found.spool_max_bytes, found.spool_max_age) == ("/mnt/spool", 1000, timedelta(days=1))


def test_pickled_options_contain_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("THE_PAIR", json.dumps(SETTINGS))
    monkeypatch.setenv("AIRFLOW_CONN_THE_PAIR", json.dumps({"extra": SETTINGS}))
    (tmp_path / "pair.json").write_text(json.dumps(SETTINGS))
    for credential in ("env:THE_PAIR", f"file:{tmp_path / 'pair.json'}", "airflow:the_pair"):
        options = WriteOptions.parse({"credential": credential})
        assert options.access.resolve(Redaction()).primary.namespace == "primary"
        assert CANARY.encode() not in pickle.dumps(options)


def test_identity_requires_the_hosts_of_both_namespaces():
    hosts = {"primaryNamespace": "one.servicebus.windows.net", "secondaryNamespace": "two.servicebus.windows.net"}
    for credential in ("default", "managedIdentity"):
        settings = WriteOptions.parse({"credential": credential, **hosts}).access.resolve(Redaction())
        assert (settings.primary.namespace, settings.secondary.namespace) == ("one", "two")
        assert settings.primary.credential is not None
        with pytest.raises(ConfigurationError, match="the host of the secondary namespace is missing"):
            WriteOptions.parse({"credential": credential, "primaryNamespace": hosts["primaryNamespace"]})
    with pytest.raises(ConfigurationError, match="give hosts with an identity only"):
        WriteOptions.parse({"credential": "env:THE_PAIR", **hosts})


INVALID_WRITES = {
    "option ledger holds a password, which is not shown here": {"ledger": "s3a://user:word@bucket"},
    "option spool holds a password, which is not shown here": {"spool": "s3://user:word@bucket"},
    "option credential is missing: allowed are env:NAME": {"credential": "", "entity": "flights"},
    "option colour is unknown: allowed are credential, primaryNamespace": {"colour": "red"},
    "option sessionId is not for writing: allowed are": {"sessionid": "s"},
    "option maxBatchesInFlight is '0': allowed is a whole number from 1": {"maxBatchesInFlight": "0"},
    "option maxBatchesInFlight is 'many': allowed is a whole number": {"maxBatchesInFlight": "many"},
    "option ratePerTask is 'inf': allowed is a number of messages per second above 0": {"ratePerTask": "inf"},
    "option failoverInterval is '7200': allowed is seconds, 0 to 3600": {"failoverInterval": "7200"},
    "option failoverInterval is 'PT1M': allowed is seconds": {"failoverInterval": "PT1M"},
    "option ordering is 'strict': allowed is none and session": {"ordering": "strict"},
    "option entity is flights, delays: a write takes one": {"entity": "flights,delays"},
    "option health is '[]': allowed is JSON": {"health": "[]"},
    "option spool is 'spool': allowed is an absolute path or a URL": {"spool": "spool"},
    "option run is ' ': allowed is a name": {"run": " "},
}
WRITE_SUGGESTIONS = {
    "enitty": "entity",
    "path": "entity",
    "queue": "entity",
    "connectionString": "credential",
    "connection_string": "credential",
    "rate_per_task": "ratePerTask",
    "maxBatchInFlight": "maxBatchesInFlight",
    "failover_interval": "failoverInterval",
}
READ_SUGGESTIONS = {
    "subQueues": "subQueue",
    "paths": "entity",
    "maxOffsetsPerTrigger": "maxMessagesPerTrigger",
    "starting-offsets": "startingOffsets",
}
INVALID_READS = {
    "option entity is missing: allowed are paths": {"entity": ""},
    "option entity is 'fl\\nights': allowed is paths": {"entity": "fl\nights"},
    "option entity is 'flights,Flights': allowed is paths": {"entity": "flights,Flights"},
    "option startingOffsets is '{\"flights\": 0}': allowed is": {"startingOffsets": '{"flights": 0}'},
    "option startingOffsets is 'latest': allowed for a stream": {"startingOffsets": "latest"},
    "option endingOffsets is 'earliest': allowed is": {"endingOffsets": "earliest"},
    "option maxMessagesPerTrigger is given: it is for streams only": {"maxMessagesPerTrigger": "5"},
    "option failOnDataLoss is given: it is for streams only": {"failOnDataLoss": "false"},
    "option failOnDataLoss is 'no': allowed is true and false": {"failOnDataLoss": "no"},
    "option subQueue is 'dead': allowed is main, deadLetter": {"subQueue": "dead"},
    "option namespace is 'tertiary': allowed is primary and secondary": {"namespace": "tertiary"},
    "options sessionId and subQueue=deadLetter are both given": {"subQueue": "deadLetter", "sessionId": "a"},
    "option mode is receive: allowed for a stream, which knows when a batch has landed": {"mode": "receive"},
    "option requiresSession is given: it is for mode=receive": {"requiresSession": "true"},
    "option ledger is not for reading: allowed are": {"ledger": "x"},
    "option startingTimestamp is '2026-11-20T08:00:00': allowed is a time with its offset": {
        "startingTimestamp": "2026-11-20T08:00:00"
    },
    "options startingTimestamp and startingOffsets are both given": {
        "startingTimestamp": "2026-11-20T08:00:00Z",
        "startingOffsets": "earliest",
    },
    "options endingTimestamp and subQueue are both given: dead letters": {
        "endingTimestamp": "2026-11-20T08:00:00Z",
        "subQueue": "deadLetter",
    },
    "option maxTriggerDelay is given: it is for minMessagesPerTrigger": {"maxTriggerDelay": "1"},
}


@pytest.mark.parametrize("error", INVALID_WRITES)
def test_invalid_write_option_is_named(error: str):
    options = {"credential": "env:THE_PAIR"} | INVALID_WRITES[error]
    with pytest.raises(ConfigurationError) as caught:
        WriteOptions.parse({name: text for name, text in options.items() if text})
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize("given_name", [*WRITE_SUGGESTIONS, *READ_SUGGESTIONS])
def test_unknown_option_gets_a_suggestion(given_name: str):
    direction = Direction.WRITE if given_name in WRITE_SUGGESTIONS else Direction.READ
    suggestion = (WRITE_SUGGESTIONS | READ_SUGGESTIONS)[given_name]
    with pytest.raises(ConfigurationError) as caught:
        parse_options({given_name.lower(): CANARY}, direction=direction)
    assert str(caught.value).startswith(
        f"option {given_name.lower()} is unknown: did you mean {suggestion}? allowed are credential, "
    )
    assert CANARY not in str(caught.value)


def test_option_of_the_other_direction_is_not_suggested():
    with pytest.raises(ConfigurationError, match="option maxoffsetspertrigger is unknown: allowed are"):
        parse_options({"maxoffsetspertrigger": "5"}, direction=Direction.WRITE)


@pytest.mark.parametrize("error", INVALID_READS)
def test_invalid_read_option_is_named(error: str):
    options = READ | INVALID_READS[error]
    with pytest.raises(ConfigurationError) as caught:
        ReadOptions.parse({name: text for name, text in options.items() if text}, streaming=False)
    assert str(caught.value).startswith(error)


def test_stream_rejects_ending_offsets_and_accepts_latest_start():
    assert ReadOptions.parse(READ | {"startingOffsets": "latest"}, streaming=True).start == "latest"
    for option in ({"endingOffsets": "latest"}, {"endingTimestamp": "2026-11-20T08:00:00Z"}):
        with pytest.raises(ConfigurationError, match="a stream has no end"):
            ReadOptions.parse(READ | option, streaming=True)


def test_stream_of_dead_letters_requires_fail_on_data_loss_false():
    dead = READ | {"subQueue": "main,deadLetter"}
    with pytest.raises(
        ConfigurationError, match="option subQueue is deadLetter: dead letters keep the sequence numbers"
    ):
        ReadOptions.parse(dead, streaming=True)
    assert len(ReadOptions.parse(dead | {"failOnDataLoss": "False"}, streaming=True).targets) == 2
    assert len(ReadOptions.parse(dead, streaming=False).targets) == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"namespace": "secondary"}, "option namespace is secondary: with mode=receive allowed is primary"),
        ({"startingOffsets": "latest"}, "option startingOffsets is given: a stream that receives begins"),
        ({"sessionId": "a"}, "option sessionId is given: a stream that receives begins"),
        (
            {"minMessagesPerTrigger": "5", "requiresSession": "true"},
            "minMessagesPerTrigger are both given: messages in sessions cannot",
        ),
        ({"requiresSession": "true", "subQueue": "deadLetter"}, "a sub-queue has no sessions"),
    ],
)
def test_option_that_a_receiving_stream_cannot_follow_is_refused(options: dict[str, str], error: str):
    with pytest.raises(ConfigurationError, match=error):
        ReadOptions.parse(READ | {"mode": "receive"} | options, streaming=True)


@given(st.sampled_from(sorted(OPTIONS)), st.text())
def test_any_text_is_parsed_or_rejected_by_name(name: str, text: str):
    direction = Direction.WRITE if Direction.WRITE in OPTIONS[name].direction else Direction.READ
    error_message = ""
    try:
        read = parse_options({name: text}, direction=direction)
    except ConfigurationError as error:
        read, error_message = {}, str(error)
    assert set(read) == {name} or error_message.startswith(f"option {name} is ")
    assert name != "credential" or repr(text) not in error_message


def documented(heading: str) -> dict[str, tuple[str, ...]]:
    """Return the cells of the table below a heading of the documentation, by the first one."""
    section = DOCS.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {name.strip(" `"): tuple(cell.strip(" `") for cell in cells) for name, *cells in rows}


def test_documentation_lists_all_options_in_order():
    uses = {Direction.WRITE: "write", Direction.READ: "read", Direction.BOTH: "both"}
    listed = {name: (use, default) for name, (use, default, *_) in documented("Options").items()}
    assert list(listed.items()) == [(each.name, (uses[each.direction], each.default)) for each in OPTIONS.values()]


def test_documentation_lists_all_columns():
    assert list(documented("Writing")) == list(COLUMN_TYPES)
    read = {name: kind for name, (kind, *_) in documented("Reading").items()}
    assert list(read.items()) == list(SCHEMA.columns.items())
