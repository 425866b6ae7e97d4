"""A ledger in a store: segments that never change, and are together what is one file in a folder (SPEC section 9)."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from servicebus_pair.core.ledger import segments
from servicebus_pair.core.ledger.segments import check_ledger, ledger_storage, open_ledger, writer_name
from servicebus_pair.core.model.errors import ConfigurationError, ObserverError
from servicebus_pair.core.model.events import MessageRef, MessagesAccepted, MessagesSyphoned, MessagesUnspooled, Route
from tests.core.support.manual_clock import ManualClock


def sent(name: str) -> MessagesAccepted:
    return MessagesAccepted("flights", Route.BACKLOG, "q", (MessageRef(name, 9),), 1.0)


def moved(name: str) -> MessagesSyphoned:
    return MessagesSyphoned("flights", "q", (MessageRef(name, 9),), 1.0)


def unspooled(name: str) -> MessagesUnspooled:
    return MessagesUnspooled("flights", Route.PRIMARY, None, (MessageRef(name, 9),), 1.0)


@pytest.fixture(params=["file", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path.as_uri()}/ledger" if request.param == "file" else f"memory://{uuid.uuid4().hex}/ledger"


def stored(location: str) -> dict[str, list[Any]]:
    """Return the ids, or the closing count, in each segment."""
    storage = ledger_storage(location)
    lines = {each.name: storage.read(each.name).decode().splitlines() for each in storage.list()}
    return {
        name: [each.get("id", each.get("records")) for each in map(json.loads, found)] for name, found in lines.items()
    }


def test_section_9_a_move_is_in_the_store_at_once_and_sends_when_they_are_flushed(location: str) -> None:
    with open_ledger(location, run="monday") as ledger:
        assert stored(location) == {}, "a process that records nothing leaves nothing"
        ledger.observe(sent("a"))
        ledger.observe(sent("b"))
        assert stored(location) == {}
        ledger.flush()
        ledger.observe(moved("c"))
        ledger.observe(unspooled("d"))
        ledger.observe(sent("e"))
        assert list(stored(location).values()) == [["a", "b"], ["c"], ["d"]]
        ledger.flush()
        ledger.flush()
        assert list(stored(location).values())[3:] == [["e"]], "without records there is no segment"
    found = stored(location)
    assert list(found.values()) == [["a", "b"], ["c"], ["d"], ["e"], [5]]
    assert {name.split("/")[1] for name in found} == {"run=monday"}
    assert [name[-15:] for name in found] == [f"-{number:08d}.jsonl" for number in range(5)]
    assert {writer_name(name.rpartition("/")[2]) for name in found} == {ledger.name}
    with pytest.raises(ValueError, match="closed"):
        ledger.observe(sent("f"))


def test_a_folder_takes_a_file_and_a_file_system_takes_segments_below_its_path(tmp_path: Path) -> None:
    with open_ledger(tmp_path, run="r") as ledger:
        ledger.observe(moved("a"))
    assert list(stored(str(tmp_path)).values()) == [["a", 1]]
    with open_ledger("s3://bucket/ledger", run="r", files=MemoryFileSystem()) as segmented:
        segmented.observe(moved("b"))
    assert list(stored("memory://bucket/ledger").values()) == [["b"], [1]]


def test_section_9_sends_become_a_segment_every_few_seconds(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(100.0)
    monkeypatch.setattr(segments, "time", SimpleNamespace(time=time.time, monotonic=clock.now))
    with open_ledger(location, run="monday") as ledger:
        for clock.time, expected in (
            (100.0, []),
            (109.9, []),
            (110.0, [["a0", "a1", "a2"]]),
            (119.9, [["a0", "a1", "a2"]]),
            (121.0, [["a0", "a1", "a2"], ["a3", "a4"]]),
        ):
            ledger.observe(sent(f"a{ledger.records}"))
            assert list(stored(location).values()) == expected


def test_files_of_a_store_in_a_folder_may_be_read_as_the_mask_of_the_process_allows(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        check_ledger(tmp_path.as_uri())
        with open_ledger(tmp_path.as_uri(), run="r") as ledger:
            ledger.observe(moved("a"))
    finally:
        os.umask(before)
    assert {each.stat().st_mode & 0o777 for each in tmp_path.rglob("*.jsonl")} == {0o666}


def test_a_store_that_takes_nothing_fails_the_move_and_loses_no_record(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = ledger_storage(location)
    monkeypatch.setattr(segments, "ledger_storage", lambda *_, **__: storage)

    def refuse(*_: object) -> None:
        raise PermissionError("read only")

    ledger = open_ledger(location, run="monday")
    with monkeypatch.context() as patched:
        patched.setattr(storage, "replace", refuse)
        with pytest.raises(ObserverError, match=r"the ledger .*ledger cannot be written, PermissionError: read only"):
            ledger.observe(moved("a"))
        with pytest.raises(ConfigurationError, match=r"ledger '.*' cannot be written, PermissionError"):
            check_ledger(location)
    ledger.observe(moved("b"))
    ledger.close()
    assert list(stored(location).values()) == [["a", "b"], [2]]


def test_a_ledger_is_checked_before_anything_is_sent(location: str, tmp_path: Path) -> None:
    check_ledger(location)
    check_ledger(tmp_path / "new" / "folder")
    assert (stored(location), (tmp_path / "new" / "folder").is_dir()) == ({}, True)
    for wrong, error in (("nosuchstore://bucket", "ledger is a URL of 'nosuchstore'"), ("/dev/null/l", "be created")):
        with pytest.raises(ConfigurationError, match=error):
            check_ledger(wrong)
