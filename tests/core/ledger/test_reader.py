"""Which files, lines and versions of a ledger are read (SPEC section 9)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from pyarrow import parquet

from servicebus_pair.core.ledger import reader
from servicebus_pair.core.ledger.reader import Record, read_records
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.events import MessageRef, MessagesAccepted, MessagesSyphoned, MessagesUnspooled, Route

QUEUE = "contoso/x-servicebus-transfer/0"
SPOOL = "3f9c on worker-7 in /mnt/spool"
WHOLE = {"v": 1, "kind": "sent", "id": "m", "entity": "q", "route": "primary", "bytes": 9, "at": 1.5, "run": "r"}


def line_of(value: object) -> str:
    return json.dumps(value) + "\n"


def test_records_are_read_in_written_order(tmp_path: Path) -> None:
    with Ledger(tmp_path, run="one") as ledger:
        ledger.observe(MessagesAccepted("q", Route.BACKLOG, QUEUE, (MessageRef("a", 10), MessageRef("b", 20)), 5.0))
        ledger.observe(MessagesSyphoned("q", QUEUE, (MessageRef("a", 10),), 9.0))
        ledger.observe(MessagesAccepted("q", Route.SPOOLED, None, (MessageRef("c", 10),), 9.0, SPOOL))
        ledger.observe(MessagesUnspooled("q", Route.PRIMARY, None, (MessageRef("c", 10),), 9.5, SPOOL))
    assert list(read_records(tmp_path)) == [
        Record("sent", "a", "q", "backlog", QUEUE, 10, 5.0, "one"),
        Record("sent", "b", "q", "backlog", QUEUE, 20, 5.0, "one"),
        Record("syphoned", "a", "q", "primary", QUEUE, 10, 9.0, "one"),
        Record("sent", "c", "q", "spooled", None, 10, 9.0, "one", SPOOL),
        Record("unspooled", "c", "q", "primary", None, 10, 9.5, "one", SPOOL),
    ]


def test_subfolders_are_read_and_hidden_ones_are_not(tmp_path: Path) -> None:
    for folder in ("", "day/hour", ".hidden", "_temporary"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "a.jsonl").write_text(line_of({**WHOLE, "id": folder}))
    (tmp_path / "notes.txt").write_text(line_of(WHOLE))
    (tmp_path / "_a.jsonl").write_text(line_of(WHOLE))
    assert [None if each is None else each.message_id for each in read_records(tmp_path)] == ["", "day/hour"]


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "run"])
def test_line_without_a_required_field_is_unreadable(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.jsonl").write_text(line_of({key: value for key, value in WHOLE.items() if key != name}))
    assert list(read_records(tmp_path)) == [None]


@pytest.mark.parametrize(
    "wrong",
    [
        '{"v":1,"kind":"sent","id":"m-0","ent',
        '{"v":1,"kind":"closed"}',
        "[]",
        "3",
        '"x"',
        line_of({**WHOLE, "at": True}),
        line_of({**WHOLE, "kind": "x"}),
    ],
)
def test_truncated_or_foreign_line_is_unreadable_and_others_are_read(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "a.jsonl").write_text(line_of(WHOLE) + wrong.strip() + "\n\n" + line_of(WHOLE))
    assert [each is None for each in read_records(tmp_path)] == [False, True, False]


LATEST, LARGEST, LONGEST = 4_102_444_799, 9_007_199_254_740_992, 4096


@pytest.mark.parametrize(
    ("name", "value", "readable"),
    [
        *(("v", value, readable) for value, readable in ((0, True), (-1, False), (True, False), (1.0, False))),
        *(("bytes", value, value >= 0) for value in (0, -1)),
        *(("bytes", LARGEST + more, more == 0) for more in (0, 1)),
        *(("at", value, value >= 0) for value in (0, -0.5, float("nan"))),
        *(("at", LATEST + more, more == 0) for more in (0, 0.5)),
        *(
            (name, text, len(text.encode()) <= LONGEST)
            for name in ("id", "entity", "queue", "run", "digest", "spool")
            for text in ("é" * (LONGEST // 2), "é" * (LONGEST // 2) + "x")
        ),
    ],
)
def test_a_value_is_read_up_to_its_limit(tmp_path: Path, name: str, value: Any, readable: bool) -> None:
    (tmp_path / "a.jsonl").write_text(line_of({**WHOLE, name: value}))
    assert [each is not None for each in read_records(tmp_path)] == [readable]


@pytest.mark.parametrize(
    ("size", "readable"), [(65_535, True), (65_536, True), (65_537, False), (131_073, False), (200_000, False)]
)
@pytest.mark.parametrize("last", [False, True])
def test_a_line_is_read_up_to_its_limit_and_counts_once(tmp_path: Path, size: int, readable: bool, last: bool) -> None:
    line = json.dumps(WHOLE)
    lines = f"{line}\n{line}{' ' * (size - len(line) - 1)}\n" + ("" if last else line)
    (tmp_path / "a.jsonl").write_text(lines)
    assert [each is not None for each in read_records(tmp_path)] == [True, readable, True][: 2 if last else 3]


@pytest.mark.parametrize(
    "damage",
    ["\n", "{}" + " " * 97 + "\n", "\0", "x" * 400 + "\n", '{"kind":"closed","records":0}\n'],
    ids=["blank", "no record", "zeros", "cut", "closing"],
)
@pytest.mark.parametrize("records", [0, 1000])
def test_a_file_is_read_until_it_has_much_more_damage_than_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str, records: int
) -> None:
    line, ends = line_of(WHOLE), "" if damage.endswith("\n") else "\n"
    limit = 256 * 1024 + records * len(line)
    for size, readable in ((limit - 65_536, True), (limit + 65_536, False)):
        caplog.clear()
        (tmp_path / "a.jsonl").write_text(line * records + damage * (size // len(damage)) + ends + line)
        assert sum(each is not None for each in read_records(tmp_path)) == records + readable
        assert ("a.jsonl' is not read to its end" in caplog.text) != readable
    assert list(read_records(tmp_path))[-1] is None


@pytest.mark.parametrize(("more", "readable"), [("", True), ("x", False)])
def test_a_text_of_a_folded_file_is_read_up_to_its_limit(tmp_path: Path, more: str, readable: bool) -> None:
    whole = {**WHOLE, **dict.fromkeys(("queue", "digest", "spool"), "x"), "other": [1]}
    rows = [{**whole, "id": text} for text in ("m", "x" * LONGEST + more)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert [each is not None for each in read_records(tmp_path)] == [readable] * 2


def test_a_damaged_folded_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1PAR1")
    with pytest.raises(ConfigurationError, match=r"a\.parquet is damaged"):
        list(read_records(tmp_path))


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_pipe_a_folder_and_a_link_are_no_file_of_a_ledger(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder" / name).mkdir(parents=True)
    os.mkfifo(tmp_path / name)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / name).symlink_to(tmp_path / "elsewhere")
    assert list(read_records(tmp_path)) == [None, None]


def test_a_file_that_may_not_be_read_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_text(line_of(WHOLE))

    def refuse(_: Path) -> BinaryIO:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reader, "open_regular", refuse)
    assert list(read_records(tmp_path)) == [None]


def test_a_folded_file_that_compact_did_not_write_is_named_and_without_pyarrow_none_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {**WHOLE, **dict.fromkeys(("queue", "digest", "spool"), "x")}
    parquet.write_table(pa.Table.from_pylist([whole]), tmp_path / "a.parquet")
    monkeypatch.setattr(reader, "folded_problem", lambda *_: "has too much")
    with pytest.raises(ConfigurationError, match=r"^ledger file \S+/a\.parquet has too much: delete it$"):
        list(read_records(tmp_path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"a\.parquet was compacted: install pyarrow to read it"):
        list(read_records(tmp_path))


def test_newer_version_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line_of({**WHOLE, "v": 2}))
    with pytest.raises(ConfigurationError, match="records of version 2: this version reads up to 1"):
        list(read_records(tmp_path))
