"""A ledger is read by one rule: which files, which lines, which versions (SPEC section 9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import MessageRef, MessagesAccepted, MessagesSyphoned, Route
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.ledger_reading import Record, read_records

QUEUE = "contoso/x-servicebus-transfer/0"
WHOLE = {"v": 1, "kind": "sent", "id": "m", "entity": "q", "route": "primary", "bytes": 9, "at": 1.5, "run": "r"}


def line_of(value: object) -> str:
    return json.dumps(value) + "\n"


def test_what_the_ledger_writes_is_read_in_its_order(tmp_path: Path) -> None:
    with Ledger(tmp_path, run="one") as ledger:
        ledger.observe(MessagesAccepted("q", Route.BACKLOG, QUEUE, (MessageRef("a", 10), MessageRef("b", 20)), 5.0))
        ledger.observe(MessagesSyphoned("q", QUEUE, (MessageRef("a", 10),), 9.0))
    assert list(read_records(tmp_path)) == [
        Record("sent", "a", "q", "backlog", QUEUE, 10, 5.0, "one"),
        Record("sent", "b", "q", "backlog", QUEUE, 20, 5.0, "one"),
        Record("syphoned", "a", "q", "primary", QUEUE, 10, 9.0, "one"),
    ]


def test_folders_below_count_and_hidden_ones_do_not(tmp_path: Path) -> None:
    for folder in ("", "day/hour", ".hidden", "_temporary"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "a.jsonl").write_text(line_of({**WHOLE, "id": folder}))
    (tmp_path / "notes.txt").write_text(line_of(WHOLE))
    (tmp_path / "_a.jsonl").write_text(line_of(WHOLE))
    assert [None if each is None else each.message_id for each in read_records(tmp_path)] == ["", "day/hour"]


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "run"])
def test_a_line_without_one_of_its_fields_is_no_record(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.jsonl").write_text(line_of({key: value for key, value in WHOLE.items() if key != name}))
    assert list(read_records(tmp_path)) == [None]


@pytest.mark.parametrize(
    "wrong",
    [
        '{"v":1,"kind":"sent","id":"m-0","ent',
        "[]",
        "3",
        '"x"',
        line_of({**WHOLE, "at": True}),
        line_of({**WHOLE, "kind": "x"}),
    ],
)
def test_a_line_that_is_torn_or_of_something_else_is_no_record_and_its_neighbours_are(
    tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "a.jsonl").write_text(line_of(WHOLE) + wrong.strip() + "\n\n" + line_of(WHOLE))
    assert [each is None for each in read_records(tmp_path)] == [False, True, False]


def test_a_newer_version_is_refused_and_not_taken_for_torn(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line_of({**WHOLE, "v": 2}))
    with pytest.raises(ConfigurationError, match="records of version 2: known is 1"):
        list(read_records(tmp_path))
