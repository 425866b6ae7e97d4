"""Files of messages that are made to take long or to be large, and paths that lead out of the root."""

from __future__ import annotations

import gzip
import io
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.airflow_runtime.message_spec import MessageReader
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators._support import json_lines
from servicebus_pair.operators._support.json_lines import JsonLinesFile, JsonLinesText, read_messages
from servicebus_pair.operators._support.received_messages import ReceivedMessages


def seconds_of(data: bytes) -> tuple[float, int]:
    """Return how long splitting takes, and the number of lines that are not blank."""
    started = time.process_time()
    count = sum(bool(line.strip()) for _, line in json_lines._split_lines(io.BytesIO(data)))
    return time.process_time() - started, count


def test_a_long_line_takes_linear_time():
    (short, _), (long, count) = (seconds_of(b"x" * (size << 20)) for size in (8, 96))

    assert count == 1
    # Twelve times as long; a quadratic splitter takes 144 times.
    assert long < max(60 * short, 1.0)


def test_blank_lines_are_counted_and_not_split(tmp_path: Path):
    taken, _ = seconds_of(b"\n" * (64 << 20))
    file = tmp_path / "messages.jsonl.gz"
    file.write_bytes(gzip.compress(b'"a"\n' + b"\r\n" * (2 << 20) + b'"b"\n  ' + b"\n" * 7 + b"no JSON"))

    with pytest.raises(ConfigurationError, match=f"line {3 + (2 << 20) + 7} is not JSON"):
        list(read_messages(JsonLinesFile(str(file)), MessageReader(seed="s")))
    assert taken < 2


def test_spaces_within_a_line_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_lines, "_READ_BYTES", 4)

    lines = list(json_lines._split_lines(io.BytesIO(b'"a        b"\n\n\n\n\n"c"')))

    assert [(number, line) for number, line in lines if line] == [(1, b'"a        b"'), (6, b'"c"')]


def test_a_file_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_lines, "_MAX_FILE_BYTES", 10 << 20)
    file = tmp_path / "messages.jsonl.gz"
    file.write_bytes(gzip.compress(b"\n" * (11 << 20)))

    with pytest.raises(ConfigurationError, match="the file has more than 10485760 bytes"):
        list(read_messages(JsonLinesFile(str(file)), MessageReader(seed="s")))


def test_a_line_that_no_message_has_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_lines, "_MAX_LINE_BYTES", 2 << 20)
    line = b"x" * (3 << 19)

    assert len(list(json_lines._split_lines(io.BytesIO(b"\n".join([line] * 4))))) == 4
    with pytest.raises(ConfigurationError, match="a line has more than 2097152 bytes"):
        list(json_lines._split_lines(io.BytesIO(line + b"\n" + line * 2)))


def test_a_line_of_very_many_values_takes_no_gigabyte():
    many = "[],0,{}," * 400_000
    for text in (f"[{many}0]", f'["a \\"b", {many}0]'):
        with pytest.raises(ConfigurationError, match="line 1 has more than 1000000 values"):
            list(read_messages(JsonLinesText(text), MessageReader(seed="s")))

    (read,) = read_messages(JsonLinesText(json.dumps(f'\\"{many}')), MessageReader(seed="s"))
    assert read.body == f'\\"{many}'


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("s3://bucket/messages/a.jsonl", True),
        ("s3://bucket/messages/../a.jsonl", False),
        ("s3://bucket/messages", False),
        ("s3://bucket/messages-of-others/a.jsonl", False),
        ("simplecache::s3://bucket/messages/a.jsonl", False),
        ("s3://bucket/messages/%2e%2E/a.jsonl", False),
        ("s3://bucket/messages/..%2fa.jsonl", False),
        ("s3://bucket/messages/a.jsonl::file:///etc/passwd", False),
        ("/etc/passwd", False),
    ],
)
def test_files_of_messages_may_be_confined_to_a_folder_of_a_store(
    monkeypatch: pytest.MonkeyPatch, path: str, allowed: bool
):
    monkeypatch.setenv("AIRFLOW__SERVICEBUS_PAIR__FILES_ROOT", "s3://bucket/messages/")

    if allowed:
        assert json_lines.confined_path(path) == path
    else:
        with pytest.raises(ConfigurationError, match="is not below"):
            json_lines.confined_path(path)


@pytest.mark.parametrize("scheme", ["", "file://", "FILE://", "local://"])
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("{root}/a.jsonl", True),
        ("{root}/a.jsonl.gz", True),
        ("file://{root}/a.jsonl", True),
        ("local://{root}/a.jsonl", True),
        ("local://{root}/link.jsonl", False),
        ("{root}/../outside.jsonl", False),
        ("{root}/link.jsonl", False),
        ("file://{root}/link.jsonl", False),
        ("{root}x/a.jsonl", False),
        ("/etc/passwd", False),
        ("file:///etc/passwd", False),
        # For a store these are absolute, for Python they lie in the working directory.
        ("file:/etc/passwd", False),
        ("local:/etc/passwd", False),
        ("file://conn_id@/etc/passwd", False),
        ("memory://bucket/a.jsonl", False),
        ("simplecache::{root}/a.jsonl", False),
        ("{root}/a.jsonl\0", False),
        ("{root}/pipe", False),
    ],
)
def test_files_of_messages_may_be_confined_to_a_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, allowed: bool, scheme: str
):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.jsonl").write_text('"secret"')
    (root / "a.jsonl").write_text('"a"')
    (root / "a.jsonl.gz").write_bytes(gzip.compress(b'"a"'))
    (root / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    os.mkfifo(root / "pipe")
    monkeypatch.setenv("AIRFLOW__SERVICEBUS_PAIR__FILES_ROOT", f"{scheme}{root}")
    # A URL that is taken for a relative path is below the root.
    monkeypatch.chdir(root)
    source = JsonLinesFile(path.format(root=root))

    if allowed:
        assert [spec.body for spec in read_messages(source, MessageReader(seed="s"))] == ["a"]
    else:
        with pytest.raises(ConfigurationError, match=r"is not below|there is no file"):
            list(read_messages(source, MessageReader(seed="s")))


def test_a_folder_that_becomes_a_link_after_the_check_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, outside = tmp_path / "root" / "folder", tmp_path / "outside"
    for each, text in ((folder, '"a"'), (outside, '"secret"')):
        each.mkdir(parents=True)
        (each / "a.jsonl").write_text(text)
    monkeypatch.setenv("AIRFLOW__SERVICEBUS_PAIR__FILES_ROOT", str(tmp_path / "root"))
    opens = Path.open

    def replaced_meanwhile(self: Path, *arguments: Any, **more: Any) -> Any:
        folder.rename(tmp_path / "root" / "before")
        folder.symlink_to(outside)
        return opens(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", replaced_meanwhile)

    with pytest.raises(ConfigurationError, match="is not below"):
        list(JsonLinesFile(str(folder / "a.jsonl")).lines())


@pytest.mark.parametrize(
    ("run_id", "name"), [("manual__2026-01-01T00:00:00+00:00", None), ("..", "%2E%2E"), (".", "%2E"), ("a/b", "a%2Fb")]
)
def test_what_a_run_received_lies_in_a_folder_of_its_own(tmp_path: Path, run_id: str, name: str | None):
    task: Any = {"ti": SimpleNamespace(dag_id="orders", run_id=run_id, task_id="receive", map_index=-1)}
    folder, victim = tmp_path / "received" / "orders" / (name or run_id), tmp_path / "victim"
    folder.mkdir(parents=True)
    victim.write_text("precious")
    (folder / "receive.part").symlink_to(victim)
    received = ReceivedMessages(task, folder=str(tmp_path / "received"), storage_conn_id=None)

    assert received._file is not None
    received._write(received._file, [{"body": "a"}])

    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [victim, folder / "receive.jsonl"]
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["pipe.jsonl", "messages.zip", "/dev/zero"])
def test_a_path_that_is_no_file_of_messages_is_refused_at_once(tmp_path: Path, name: str):
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "messages.zip").write_bytes(b"none")

    with pytest.raises(ConfigurationError, match="cannot be opened"):
        list(JsonLinesFile(str(tmp_path / name)).lines())
