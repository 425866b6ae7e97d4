"""Only regular files of a limited size are read, so that no folder can stop its reader."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model import regular_files
from servicebus_pair.core.model.regular_files import (
    IrregularFileError,
    count_values,
    load_json,
    open_regular,
    parse_json,
    read_regular,
)


@pytest.mark.parametrize("follow", [True, False])
def test_a_file_is_read_up_to_its_limit(tmp_path: Path, follow: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, limit=100, follow=follow) == b"x" * 100
    with pytest.raises(IrregularFileError, match="larger than 99 bytes"):
        read_regular(path, limit=99, follow=follow)


def test_a_file_that_is_larger_than_it_says_is_read_up_to_the_limit() -> None:
    assert Path("/proc/self/status").stat().st_size == 0
    with pytest.raises(IrregularFileError, match="larger than 10 bytes"):
        read_regular("/proc/self/status", limit=10)


def test_what_is_no_file_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "link", Path("/dev/null")):
        with pytest.raises(IrregularFileError, match="not a regular file"):
            open_regular(path)
    assert read_regular(tmp_path / "link", limit=0, follow=True) == b""
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


def test_what_is_no_json_is_a_value_error(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for content in ("[" * 100_000, "{", "\x00"):
        path.write_text(content)
        with pytest.raises(ValueError):  # noqa: PT011 - the words are those of the JSON library
            load_json(path, limit=1_000_000)
    path.write_text('{"a": 1}')
    assert load_json(path, limit=8) == {"a": 1}


def test_json_has_no_more_values_than_a_process_has_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_files, "_MAX_VALUES", 4)
    assert parse_json(rb'["[,{\"[,{", [1], 2]') == ["[,{" + '"[,{', [1], 2], "what is in texts are no values"
    with pytest.raises(ValueError, match="it has more than 4 values"):
        parse_json(b"[[],[],2]")


@given(st.recursive(st.integers() | st.text('a,[{"\\\n', max_size=8), lambda each: st.lists(each, max_size=20)))
def test_values_are_counted_outside_of_strings(value: object) -> None:
    def count(each: object) -> int:
        return 0 if not isinstance(each, list) else 1 + max(0, len(each) - 1) + sum(map(count, each))

    text = json.dumps([value] * 3).encode()
    assert count_values(text, above=0, limit=10**9) == count([value] * 3)
    assert count_values(text, above=10**9, limit=0) >= count([value] * 3)


@pytest.mark.parametrize("strings", [b'"",', b'"\\"",'])
def test_more_strings_than_are_stripped_at_once_are_counted_as_any_others(strings: bytes) -> None:
    assert count_values(b"[" + strings * 10_000 + b"1]", above=0, limit=10**9) == 10_001
    # Of what is no JSON, strings count without separators, and counting ends with the limit.
    assert 1_000 < count_values(b'""' * 100_000, above=-1, limit=1_000) < 10_000
