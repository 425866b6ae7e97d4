"""A proof waits for the writers of the ledger (SPEC section 9: a file that is not closed proves nothing)."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import pytest

from servicebus_pair.core.ledger import unclosed
from servicebus_pair.core.ledger.unclosed import open_files
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.model.events import MessageRef, MessagesSyphoned


def test_a_file_is_open_until_its_writer_closes_it_or_falls_silent(tmp_path: Path) -> None:
    def found(*, later: float = 0.0) -> list[Path]:
        return list(open_files(tmp_path, now=time.time() + later, silence=60.0))

    assert found() == []
    with Ledger(tmp_path, run="done") as closed, Ledger(tmp_path, run="running") as running:
        assert len(found()) == 2, "a writer that has sent nothing yet is one"
        event = MessagesSyphoned("flights", "q", (MessageRef("m", 1),), time.time())
        for ledger in (closed, running):
            ledger.observe(event)
        closed.close()
        Ledger(tmp_path, run="nothing").close()
        assert found() == [running.path]
        assert found(later=61) == [], "its process was killed"
    assert found() == []


@pytest.mark.parametrize("now", [datetime(2026, 11, 22, tzinfo=UTC), datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC)])
def test_files_of_the_last_days_are_looked_at_until_they_were_silent_for_so_long(tmp_path: Path, now: datetime) -> None:
    expected = []
    for age in range(-2, 6):
        folder = tmp_path / f"day={now - timedelta(days=age):%Y-%m-%d}" / "run=r"
        folder.mkdir(parents=True)
        for silence in (59, 60):
            path = folder / f"{silence}.jsonl"
            path.touch()
            os.utime(path, (now.timestamp() - silence,) * 2)
            if -1 <= age <= 3 and silence < 60:
                expected.append(path)
    assert sorted(open_files(tmp_path, now=now.timestamp(), silence=60.0)) == sorted(expected)


def test_a_pipe_is_no_file_of_a_writer_and_what_may_not_be_read_may_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"day={datetime.now(UTC):%Y-%m-%d}"
    folder.mkdir()
    os.mkfifo(folder / "a.jsonl")
    assert list(open_files(tmp_path, now=time.time(), silence=60.0)) == []

    def refuse(_: Path) -> BinaryIO:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(unclosed, "open_regular", refuse)
    assert list(open_files(tmp_path, now=time.time(), silence=60.0)) == [folder / "a.jsonl"]


@pytest.mark.parametrize(
    "line", ["", "5", "[]", '{"kind":"sent"}', '{"kind":"a"}', '{"v":1}', '{"kind":"clos', "[" * 4_000]
)
def test_a_line_that_closes_nothing_leaves_a_file_open(tmp_path: Path, line: str) -> None:
    path = tmp_path / f"day={datetime.now(UTC):%Y-%m-%d}" / "a.jsonl"
    path.parent.mkdir()
    path.write_text(line)
    assert list(open_files(tmp_path, now=time.time(), silence=60.0)) == [path]


def test_the_last_line_of_a_long_file_closes_it(tmp_path: Path) -> None:
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(MessagesSyphoned("flights", "q", (MessageRef("m" * 99, 1),) * 99, time.time()))
        assert list(open_files(tmp_path, now=time.time(), silence=60.0)) == [ledger.path]
    assert list(open_files(tmp_path, now=time.time(), silence=60.0)) == []
