"""Files of a spool appear as a whole or not at all, in a folder and in an object store (SPEC section 10)."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.spool.folder_storage import FolderStorage
from servicebus_pair.core.spool.location import open_storage
from servicebus_pair.core.spool.object_storage import ObjectStorage, _modified
from servicebus_pair.core.spool.storage import SpoolStorage, StoredFile


@pytest.fixture(params=["folder", "file URL", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> SpoolStorage:
    locations = {
        "folder": str(tmp_path / "deep" / "spool"),
        "file URL": f"file://{tmp_path}/spool",
        "object store": f"memory://{uuid.uuid4().hex}/spool",
    }
    return open_storage(locations[request.param])


def names(storage: SpoolStorage, folder: str = "") -> list[str]:
    return [each.name for each in storage.list(folder)]


def test_an_empty_spool_need_not_exist(storage: SpoolStorage) -> None:
    assert names(storage) == names(storage, "messages/flights") == []
    storage.delete("messages/flights/1")
    with pytest.raises(FileNotFoundError):
        storage.read("messages/flights/1")


def test_files_are_listed_by_name_with_size_and_read_back(storage: SpoolStorage) -> None:
    for name, content in (("messages/b/2", b"two"), ("messages/b/1", b"first"), ("messages/a/3", b""), ("c", b"x")):
        storage.create(name, content)
    assert [(each.name, each.size_bytes) for each in storage.list()] == [
        ("c", 1),
        ("messages/a/3", 0),
        ("messages/b/1", 5),
        ("messages/b/2", 3),
    ]
    assert names(storage, "messages/b") == ["messages/b/1", "messages/b/2"]
    assert storage.read("messages/b/1") == b"first"


def test_a_file_is_created_once(storage: SpoolStorage) -> None:
    storage.create("claims/flights", b"one")
    with pytest.raises(FileExistsError):
        storage.create("claims/flights", b"two")
    assert storage.read("claims/flights") == b"one"
    storage.replace("claims/flights", b"three")
    assert storage.read("claims/flights") == b"three"
    storage.delete("claims/flights")
    assert names(storage) == []


@pytest.mark.parametrize("location", ["spool", "./spool", "file:spool", "nosuchstore://bucket/spool"])
def test_another_location_is_refused_by_name(location: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^spool is "):
        open_storage(location)


class Recorder:
    """Records what the folder storage asks of the system, and ends the process at one of these calls."""

    CALLS = ("open", "write", "fsync", "link", "unlink", "mkdir", "rename", "replace")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, crash_at: int | None = None) -> None:
        self.calls: list[str] = []
        self.crash_at = crash_at
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **kwargs: Any) -> Any:
            if self.crash_at is not None and len(self.calls) >= self.crash_at:
                raise Crash  # also every later call: a process that has ended does nothing more
            result = call(*args, **kwargs)
            kind = name
            if name == "fsync":
                kind = "fsync folder" if stat.S_ISDIR(os.fstat(args[0]).st_mode) else "fsync file"
            self.calls.append(kind)
            return result

        return record


class Crash(BaseException):
    """The process was killed here."""


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FolderStorage(str(tmp_path))
    storage.create("messages/flights/0", b"x")
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        storage.create("messages/flights/1", b"x" * 100)
        assert recorder.calls.index("fsync file") < recorder.calls.index("link")
        assert "fsync folder" in recorder.calls[recorder.calls.index("link") :]
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        storage.create("messages/gates/1", b"x")
        made = recorder.calls.index("mkdir")
        assert recorder.calls[made:].count("fsync folder") >= 3, "the new folder's own name, and the file's"
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        storage.replace("messages/flights/1", b"y")
        assert recorder.calls.index("fsync file") < recorder.calls.index("replace")


@pytest.mark.parametrize("operation", ["create", "replace"])
def test_a_crash_at_any_call_leaves_no_half_file_and_loses_no_other(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(10_000)
    for step in range(40):
        folder = tmp_path / str(step)
        storage = FolderStorage(str(folder))
        storage.create("messages/gates/before", b"before")
        if operation == "replace":
            storage.create("messages/flights/1", b"old")
        with monkeypatch.context() as patched:
            recorder = Recorder(patched, crash_at=step)
            try:
                getattr(storage, operation)("messages/flights/1", content)
            except Crash:
                ended = False
            else:
                ended = True
        found = FolderStorage(str(folder))
        assert found.read("messages/gates/before") == b"before"
        visible = {each.name: found.read(each.name) for each in found.list()}
        possible = [content, b"old"] if operation == "replace" else [content, None]
        assert visible.get("messages/flights/1") in possible
        assert set(visible) <= {"messages/flights/1", "messages/gates/before"}
        if ended:
            assert visible["messages/flights/1"] == content
            assert step == len(recorder.calls)
            return
    pytest.fail("the operation did not end")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    storage = FolderStorage(str(tmp_path))
    storage.create("messages/flights/0", b"x")

    def full(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            storage.create("messages/flights/1", b"y")
    assert [path.name for path in (tmp_path / "messages" / "flights").iterdir()] == ["0"]


class PlainStore:
    """A store that knows no conditional writes, and folders of its own."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def pipe_file(self, path: str, content: bytes, **more: Any) -> None:
        if more:
            raise NotImplementedError
        self.objects[path] = content

    def exists(self, path: str) -> bool:
        return path in self.objects

    def invalidate_cache(self) -> None: ...

    def find(self, path: str, *, detail: bool) -> dict[str, dict[str, Any]]:
        assert detail
        found = {name: {"name": name, "size": None, "LastModified": UPLOADED} for name in self.objects}
        return {path: {"name": path, "type": "directory"}, **found}


UPLOADED = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_store_without_conditional_writes_is_asked_first_and_folders_are_no_files() -> None:
    storage, store = ObjectStorage(f"memory://{uuid.uuid4().hex}/spool"), PlainStore()
    storage._files = store
    storage.create("messages/a", b"one")
    with pytest.raises(FileExistsError):
        storage.create("messages/a", b"two")
    assert list(store.objects.values()) == [b"one"]
    assert storage.list("messages") == [StoredFile("messages/a", 0, UPLOADED.timestamp())]


@pytest.mark.parametrize(
    ("details", "at"),
    [({}, 0.0), ({"mtime": 5}, 5.0), ({"updated": None, "created": 2.5}, 2.5), ({"updated": "today"}, 0.0)],
)
def test_the_time_of_an_upload_is_0_if_the_store_does_not_tell(details: dict[str, Any], at: float) -> None:
    assert _modified(details) == at


def test_a_url_that_nothing_can_open_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="spool is a URL of 'nowhere', which cannot be opened"):
        ObjectStorage("nowhere://bucket/spool")
