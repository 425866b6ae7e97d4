"""JSON lines of a text and of files are read a part at a time, and a wrong line is named by its number."""

from __future__ import annotations

import bz2
import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators.lines import JsonLines, LinesFile, LinesText, read_lines
from servicebus_pair.operators.messages import MessageReader, MessageSpec


def read(source: JsonLines) -> list[MessageSpec]:
    return list(read_lines(source, MessageReader(seed="dag/run/task/-1")))


def test_a_line_is_a_text_or_an_object_and_blank_lines_are_none():
    lines = '"plain"\n\n{"body": "full", "session_id": "s"}\r\n   \n"last, without an end"'

    specs = read(LinesText(lines))

    assert [spec.body for spec in specs] == ["plain", "full", "last, without an end"]
    assert specs[1].texts == {"session_id": "s"}


def test_an_id_depends_on_the_number_of_the_line():
    one, two = read(LinesText('"a"\n"b"')), read(LinesText('"a"\n\n"b"'))

    assert one[0].message_id == two[0].message_id
    assert one[1].message_id != two[1].message_id
    assert read(LinesText('"c"\n"d"'))[1].message_id == one[1].message_id


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"body": "secret"', r"json_lines, line 2 is not JSON \(.*\): it must be a text in quotes, or an object"),
        ("secret", "json_lines, line 2 is not JSON"),
        ("17", "json_lines, line 2 is int: it must be a text or a mapping"),
        ('{"body": "secret", "sesion_id": "s"}', "json_lines, line 2: field 'sesion_id' is unknown: allowed are body,"),
        ('{"body": "secret", "time_to_live": "1h"}', "json_lines, line 2: time_to_live is '1h': it must be a number"),
        ('{"body": {"secret": 1}}', "json_lines, line 2: body is dict: it must be a text"),
    ],
)
def test_a_wrong_line_is_named_by_number_field_value_and_what_is_allowed_and_not_shown(line: str, told: str):
    with pytest.raises(ConfigurationError, match=told) as raised:
        read(LinesText(f'"a"\n{line}'))

    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None or "secret" not in str(raised.value.__cause__)


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_file_is_read_by_path_or_address_and_unpacked_by_its_name(tmp_path: Path, suffix: str, pack: object):
    file = tmp_path / f"messages.jsonl{suffix}"
    assert callable(pack)
    file.write_bytes(pack('"ä"\n{"body": "b"}\n'.encode()))

    assert [spec.body for spec in read(LinesFile(str(file)))] == ["ä", "b"]
    assert [spec.body for spec in read(LinesFile(file.as_uri()))] == ["ä", "b"]


def test_a_line_across_two_blocks_is_one_line(tmp_path: Path):
    file = tmp_path / "messages.jsonl"
    bodies = ["x" * 700_000, "y" * 900_000, "z"]
    file.write_text("\n".join(map(json.dumps, bodies)))

    assert [spec.body for spec in read(LinesFile(str(file)))] == bodies


@pytest.mark.parametrize("path", ["missing.jsonl", "nowhere://bucket/messages.jsonl"])
def test_a_file_that_cannot_be_opened_is_named(path: str):
    with pytest.raises(ConfigurationError, match=f"path '{path}' cannot be opened, .*"):
        read(LinesFile(path))


def test_a_large_file_takes_the_memory_of_a_block(tmp_path: Path):
    file = tmp_path / "messages.jsonl"
    with file.open("w") as lines:
        lines.writelines(f'"{"x" * 1000}{number}"\n' for number in range(30_000))
    source, reader = LinesFile(str(file)), MessageReader(seed="x")
    assert file.stat().st_size > 30_000_000

    tracemalloc.start()
    try:
        count = sum(1 for _ in read_lines(source, reader))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert count == 30_000
    assert peak < 8_000_000
