"""JSON lines are read in blocks, and errors name the line."""

from __future__ import annotations

import bz2
import gzip
import json
import tracemalloc
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
import zstandard

from servicebus_pair.airflow_runtime.message_spec import MessageReader, MessageSpec
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.operators._support.json_lines import JsonLinesFile, JsonLinesText, LineSource, read_messages


def zipped(*names: str) -> bytes:
    with ZipFile(packed := BytesIO(), "w") as archive:
        for name in names:
            archive.writestr(name, '"a"')
    return packed.getvalue()


def read_specs(source: LineSource) -> list[MessageSpec]:
    return list(read_messages(source, MessageReader(seed="dag/run/task/-1")))


def test_lines_are_texts_or_objects_and_blank_lines_are_skipped():
    lines = '"plain"\n\n{"body": "full", "session_id": "s"}\r\n   \n"last, without an end"'

    specs = read_specs(JsonLinesText(lines))

    assert [spec.body for spec in specs] == ["plain", "full", "last, without an end"]
    assert specs[1].fields == {"session_id": "s"}


def test_generated_ids_depend_on_the_line_number():
    one, two = read_specs(JsonLinesText('"a"\n"b"')), read_specs(JsonLinesText('"a"\n\n"b"'))

    assert one[0].message_id == two[0].message_id
    assert one[1].message_id != two[1].message_id
    assert read_specs(JsonLinesText('"c"\n"d"'))[1].message_id == one[1].message_id


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"body": "secret"', r"json_lines, line 2 is not JSON \(.*\): it must be a text in quotes, or an object"),
        ("secret", "json_lines, line 2 is not JSON"),
        ("17", "json_lines, line 2 is int: it must be a text or a mapping"),
        ('{"body": "secret", "sesion_id": "s"}', "json_lines, line 2: field 'sesion_id' is unknown: allowed are body,"),
        ('{"body": "secret", "time_to_live": "1h"}', "json_lines, line 2: time_to_live is '1h': it must be a number"),
        ('{"body": 1234567}', "json_lines, line 2: body is int: it must be a text, bytes, or a mapping or list"),
    ],
)
def test_errors_name_the_line_and_field_and_not_the_body(line: str, message: str):
    with pytest.raises(ConfigurationError, match=message) as raised:
        read_specs(JsonLinesText(f'"a"\n{line}'))

    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None or "secret" not in str(raised.value.__cause__)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        # Of several frames, of which the first is empty.
        (".zst", lambda data: zstandard.compress(b"") + zstandard.compress(data[:9]) + zstandard.compress(data[9:])),
    ],
)
def test_files_are_read_by_path_or_url_and_decompressed_by_suffix(tmp_path: Path, suffix: str, pack: object):
    file = tmp_path / f"messages.jsonl{suffix}"
    assert callable(pack)
    file.write_bytes(pack('"ä"\n{"body": "b"}\n'.encode()))

    assert [spec.body for spec in read_specs(JsonLinesFile(str(file)))] == ["ä", "b"]
    assert [spec.body for spec in read_specs(JsonLinesFile(file.as_uri()))] == ["ä", "b"]
    file.write_bytes(pack(b""))
    assert read_specs(JsonLinesFile(str(file))) == []


def test_a_line_may_span_two_blocks(tmp_path: Path):
    file = tmp_path / "messages.jsonl"
    bodies = ["x" * 700_000, "y" * 900_000, "z"]
    file.write_text("\n".join(map(json.dumps, bodies)))

    assert [spec.body for spec in read_specs(JsonLinesFile(str(file)))] == bodies


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("missing.jsonl", "FileNotFoundError"),
        ("file:///nowhere/a.jsonl", "FileNotFoundError"),
        ("/usr", "IsADirectoryError"),
        ("s3://bucket/a.jsonl", "ValueError: No filesystem registered"),
    ],
)
def test_an_unreadable_file_is_named(path: str, error: str):
    with pytest.raises(ConfigurationError, match=f"path '{path}' cannot be opened, {error}"):
        read_specs(JsonLinesFile(path))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b'"good"\n"\xff"\n', r"line 2 is not JSON \('utf-8' codec can't decode byte 0xff"),
        ("a.jsonl", "\ufeff".encode("utf-16") + '"a"\n'.encode("utf-16-le"), "line 1 is not JSON"),
        ("a.jsonl", b"[" * 200_000, r"line 1 is not JSON \(maximum recursion depth"),
        ("a.jsonl", b'"a"\n"\\ud800"', "line 2: body has an unpaired surrogate at position 0: the text must be val"),
        ("a.jsonl.gz", b'"a"\n', "cannot be decompressed, BadGzipFile: Not a gzipped file"),
        ("a.jsonl.gz", gzip.compress(b'"a"\n' * 9)[:-9], "cannot be decompressed, EOFError: .*: it must be compl"),
        ("a.jsonl.xz", b'"a"\n', "cannot be decompressed, LZMAError: "),
        ("a.jsonl.bz2", b'"a"\n', "cannot be decompressed, OSError: Invalid data stream"),
        ("a.jsonl.zst", b'"a"\n' * 9, "cannot be decompressed, ZstdError: "),
        ("a.jsonl.zst", zstandard.compress(b'"a"\n' * 9)[:-9], "cannot be decompressed, EOFError: "),
        *((f"a.jsonl.{suffix}", b"", "cannot be opened, ValueError: it has 0 bytes") for suffix in ("gz", "zst", "xz")),
        ("a.zip", zipped("a", "b"), "cannot be opened, ValueError: the archive has 2 members"),
        ("a.zip", zipped("a").replace(b"\x14\0\0\0", b"\x14\0\1\0"), "cannot be opened, RuntimeError: .*encrypted"),
        ("a.zip", zipped("a").replace(b'"a"', b'"b"'), "cannot be decompressed, BadZipFile: Bad CRC"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",  # compressed data has the time of day
)
def test_an_undecodable_file_is_named_with_the_reason(tmp_path: Path, name: str, data: bytes, message: str):
    (tmp_path / name).write_bytes(data)

    with pytest.raises(ConfigurationError, match=message) as raised:
        read_specs(JsonLinesFile(str(tmp_path / name)))

    assert str(tmp_path / name) in str(raised.value)


def test_memory_is_bounded_by_one_block(tmp_path: Path):
    file = tmp_path / "messages.jsonl"
    with file.open("w") as lines:
        lines.writelines(f'"{"x" * 1000}{number}"\n' for number in range(30_000))
    source, reader = JsonLinesFile(str(file)), MessageReader(seed="x")
    assert file.stat().st_size > 30_000_000

    tracemalloc.start()
    try:
        count = sum(1 for _ in read_messages(source, reader))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert count == 30_000
    assert peak < 8_000_000
