"""Files of a spool appear as a whole or not at all, in a folder and in an object store (SPEC section 10)."""

from __future__ import annotations

import errno
import os
import re
import stat
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.regular_files import IrregularFileError
from servicebus_pair.core.spool.folder_storage import FolderStorage
from servicebus_pair.core.spool.location import open_storage
from servicebus_pair.core.spool.object_storage import ObjectStorage
from servicebus_pair.core.spool.storage import SpoolStorage, StoredFile, holds


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


def test_links_and_pipes_that_others_put_there_are_no_files(tmp_path: Path) -> None:
    storage = FolderStorage(str(tmp_path / "spool"))
    storage.create("messages/flights/1", b"one")
    folder = tmp_path / "spool" / "messages" / "flights"
    (folder / "2").symlink_to("/dev/zero")
    os.mkfifo(folder / "3")

    assert names(storage) == ["messages/flights/1"]
    for name in ("2", "3"):
        with pytest.raises(OSError, match="not a regular file"):
            storage.read(f"messages/flights/{name}")
    assert not any(holds(storage, f"messages/flights/{name}", b"") for name in ("2", "3", "4"))


def test_a_file_is_created_once(storage: SpoolStorage) -> None:
    storage.create("claims/flights", b"one")
    for other in (b"two", b"another"):
        with pytest.raises(FileExistsError):
            storage.create("claims/flights", other)
    assert storage.read("claims/flights") == b"one"
    storage.replace("claims/flights", b"three")
    assert storage.read("claims/flights") == b"three"
    storage.delete("claims/flights")
    assert names(storage) == []


def test_what_would_keep_messages_from_being_written_is_found_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    locations = {
        "new": None,
        "": None,
        "missing/spool": r"missing does not exist; is it on a mount",
        "file": "file is not a folder",
        "file/spool": "file is not a folder",
    }
    for name, expected in locations.items():
        found = FolderStorage(str(tmp_path / name)).problem()
        assert found is None if expected is None else re.search(expected, found or ""), name
    # Whoever runs the tests may write everywhere.
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)
    assert "cannot be written" in (FolderStorage(str(tmp_path)).problem() or "")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    open_storage(f"memory://{uuid.uuid4().hex}/spool").problem()


@pytest.mark.parametrize(
    "location", ["spool", "./spool", "file:spool", "file://data/spool", "hdfs://127.0.0.1:1/x", "no://b"]
)
def test_another_location_is_refused_by_name(location: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^spool is .*'({location}|{location.partition('://')[0]})'"):
        open_storage(location)


@pytest.mark.parametrize(
    ("details", "modified_at"),
    [
        ({}, 0.0),
        ({"mtime": 5}, 5.0),
        ({"mtime": None, "created": 7.5}, 7.5),
        ({"LastModified": datetime.fromtimestamp(8, UTC), "updated": "text"}, 8.0),
    ],
)
def test_the_time_of_an_object_is_what_its_library_calls_so(details: dict[str, Any], modified_at: float) -> None:
    files: Any = SimpleNamespace(
        invalidate_cache=lambda: None, find=lambda path, **_: {path: {"name": f"{path}/a", **details}}
    )
    assert ObjectStorage("any://spool", files=files).list() == [StoredFile("a", 0, modified_at)]


class Recorder:
    """Records what the folder storage asks of the system.

    At one of these calls it ends the process, fails, or does something before.
    """

    CALLS = ("open", "write", "fsync", "link", "unlink", "mkdir", "rename", "replace")

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        crash_at: int | None = None,
        error: OSError | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.crash_at = crash_at
        self.error = error
        self.meanwhile = meanwhile
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **kwargs: Any) -> Any:
            if self.crash_at is not None and len(self.calls) >= self.crash_at:
                if self.meanwhile is not None:
                    self.crash_at = None
                    self.meanwhile()
                    return record(*args, **kwargs)
                if self.error is None:
                    raise Crash  # also every later call: a process that has ended does nothing more
                self.crash_at = None
                self.calls.append(f"{name} failed")
                raise self.error
            result = call(*args, **kwargs)
            kind = name
            if name == "fsync":
                kind = "fsync folder" if stat.S_ISDIR(os.fstat(args[0]).st_mode) else "fsync file"
            self.calls.append(kind)
            return result

        return record


def opened_path(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").resolve()


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
        assert recorder.calls[made:].count("fsync folder") >= 2, "the new folder's own name, and the file's"
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        storage.replace("messages/flights/1", b"y")
        assert recorder.calls.index("fsync file") < recorder.calls.index("replace")


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is synced is recorded and need not be done."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.usefixtures("quick_disk")
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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT], ids=errno.errorcode.get)
@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("operation", ["create", "replace"])
def test_a_call_that_fails_leaves_no_half_file_and_is_told(operation: str, number: int, tmp_path: Path) -> None:
    content = os.urandom(10_000)
    for step in range(40):
        storage = FolderStorage(str(tmp_path / str(step)))
        storage.create("messages/gates/before", b"before")
        with pytest.MonkeyPatch.context() as patched:
            recorder = Recorder(patched, crash_at=step, error=OSError(number, os.strerror(number)))
            told = False
            try:
                getattr(storage, operation)("messages/flights/1", content)
            except OSError as error:
                told = error.errno == number
        assert told or storage.read("messages/flights/1") == content
        assert "unlink failed" in recorder.calls or [*Path(tmp_path, str(step)).rglob(".incomplete-*")] == []
        visible = {each.name: storage.read(each.name) for each in storage.list()}
        assert visible.pop("messages/gates/before") == b"before"
        assert visible in ({}, {"messages/flights/1": content})
        storage.create("messages/flights/2", content)
        if len(recorder.calls) <= step:
            return
    pytest.fail("the operation did not end")


def test_a_folder_that_another_process_did_not_make_durable_is_made_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spool" / "messages" / "flights").mkdir(parents=True)  # by a process that was killed then
    storage = FolderStorage(str(tmp_path / "spool"))
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        storage.create("messages/flights/1", b"x")
        # Of the file, and of the names flights, messages and spool, and what is above that.
        assert recorder.calls.count("fsync folder") >= 4
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        storage.create("messages/flights/2", b"x")
        assert recorder.calls.count("fsync folder") == 1
    (tmp_path / "spool" / "messages" / "gates").mkdir()
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        storage.create("messages/gates/1", b"x")
        assert recorder.calls.count("fsync folder") == 2, "of the name gates, and of the file"


def test_a_folder_above_the_spool_that_cannot_be_read_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, refused = os.fsync, []

    def refuse(descriptor: int) -> None:
        folder = opened_path(descriptor)
        if tmp_path.is_relative_to(folder) and folder != tmp_path:
            refused.append(folder)
            raise PermissionError(errno.EACCES, "Permission denied")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    FolderStorage(str(tmp_path / "spool")).create("messages/flights/1", b"x")
    assert refused == [tmp_path.parent], "nor is what lies above that"


@pytest.mark.parametrize("above", [".", "spool", "spool/messages", "spool/messages/flights"])
def test_a_folder_of_the_spool_whose_name_cannot_be_made_durable_is_a_failure(
    above: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        if opened_path(descriptor) == (tmp_path / above).resolve():
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    storage = FolderStorage(str(tmp_path / "spool"))
    for number in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            storage.create(f"messages/flights/{number}", b"x")


def test_a_spool_below_a_link_is_one_and_a_link_in_it_is_none(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    storage = FolderStorage(str(tmp_path / "link" / "spool"))
    storage.create("messages/flights/1", b"x")
    (tmp_path / "link" / "spool" / "messages" / "gates").symlink_to(tmp_path / "elsewhere")
    for folder in ("gates", "gates/a"):
        with pytest.raises(OSError, match="gates is a link"):
            storage.create(f"messages/{folder}/1", b"x")
    assert names(storage) == ["messages/flights/1"]


USES: dict[str, Callable[[FolderStorage], object]] = {
    "read": lambda storage: storage.read("messages/flights/1"),
    "open": lambda storage: storage.open("messages/flights/1"),
    "delete": lambda storage: storage.delete("messages/flights/1"),
    "move": lambda storage: storage.move("messages/flights/1", "set-aside/flights/1"),
    "move there": lambda storage: storage.move("set-aside/0", "messages/flights/2"),
    "create": lambda storage: storage.create("messages/flights/2", b"x"),
    "replace": lambda storage: storage.replace("messages/flights/1", b"x"),
}


def two_spools(folder: Path) -> tuple[FolderStorage, FolderStorage]:
    ours, theirs = (FolderStorage(str(folder / name)) for name in ("ours", "theirs"))
    for storage in (ours, theirs):
        storage.create("set-aside/0", b"x")
        storage.create("messages/flights/1", b"secret")
    return ours, theirs


def swap(folder: Path, swapped: str) -> None:
    (folder / "ours" / swapped).rename(folder / "before")
    (folder / "ours" / swapped).symlink_to(folder / "theirs" / swapped)


def files_of(spool: Path) -> dict[str, bytes]:
    return {each.relative_to(spool).as_posix(): each.read_bytes() for each in spool.rglob("*") if each.is_file()}


@pytest.mark.parametrize("swapped", ["messages", "messages/flights"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_folder_that_has_become_a_link_since_it_was_used_leads_nowhere(
    tmp_path: Path, use: Callable[[FolderStorage], object], swapped: str
) -> None:
    ours, _ = two_spools(tmp_path)
    swap(tmp_path, swapped)

    with pytest.raises(OSError, match=r"is a link|Not a directory"):
        use(ours)
    assert files_of(tmp_path / "theirs") == {"set-aside/0": b"x", "messages/flights/1": b"secret"}


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("swapped", ["messages", "messages/flights", "set-aside"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_folder_that_becomes_a_link_at_any_call_leads_nowhere(
    tmp_path: Path, use: Callable[[FolderStorage], object], swapped: str
) -> None:
    for step in range(40):
        folder = tmp_path / str(step)
        ours, _ = two_spools(folder)
        with pytest.MonkeyPatch.context() as patched:
            recorder = Recorder(patched, crash_at=step, meanwhile=partial(swap, folder, swapped))
            with suppress(OSError):
                use(ours)
        assert files_of(folder / "theirs") == {"set-aside/0": b"x", "messages/flights/1": b"secret"}
        if recorder.crash_at is not None:
            return
    pytest.fail("the operation did not end")


def test_an_answer_that_was_lost_is_no_file_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network mount, or the library of an object store, may repeat a call that had succeeded."""
    link = os.link

    def twice(*args: Any, **kwargs: Any) -> None:
        link(*args, **kwargs)
        link(*args, **kwargs)

    monkeypatch.setattr(os, "link", twice)
    storage = FolderStorage(str(tmp_path))
    storage.create("messages/flights/1", b"x")
    assert names(storage) == ["messages/flights/1"]
    with pytest.raises(FileExistsError):
        storage.create("messages/flights/1", b"y")


class Remembering(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Answers from its last listing, as the libraries of stores do."""

    store: ClassVar[dict[str, Any]] = {}
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Any] | None = None

    def find(self, path: str, **options: Any) -> Any:
        self.known = super().find(path, **options)
        return self.known

    def invalidate_cache(self) -> None:
        self.known = None

    def info(self, path: str, **options: Any) -> Any:
        if self.known is not None and path not in self.known:
            raise FileNotFoundError(path)
        return super().info(path, **options)


def test_what_another_process_has_stored_since_the_last_listing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that was not seen would be held twice."""
    files = Remembering()
    ours, theirs = (ObjectStorage("memory://spool", files=each) for each in (files, Remembering()))
    theirs.create("claims/gates", b"theirs")
    assert len(ours.list()) == 1
    theirs.create("claims/flights", b"theirs")

    assert ours.read("claims/flights") == b"theirs"
    for error in (NotImplementedError, TypeError):  # of stores without conditional writes
        ours.list()
        theirs.replace(f"claims/{error}", b"theirs")
        monkeypatch.setattr(files, "pipe_file", Mock(side_effect=error))
        with pytest.raises(FileExistsError):
            ours.create(f"claims/{error}", b"ours")


def test_folders_that_lie_deep_links_and_unreadable_folders_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FolderStorage(str(tmp_path))
    deep = "/".join("d" * 17)
    for name in (f"{deep[:31]}/a", f"{deep}/b", "c/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "l").symlink_to(tmp_path / "c")
    assert names(storage) == ["c/x", f"{deep[:31]}/a"]
    assert sorted(storage.passed_over()) == [deep, "l"]
    with pytest.raises(OSError, match="l is a link"):
        storage.names("l")
    scan = os.scandir

    def refuse(path: Path) -> Any:
        if path.name in {"d", "c"}:
            raise PermissionError(errno.EACCES, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for _ in range(2):
        assert (names(storage), sorted(storage.passed_over())) == ([], ["c/", "d/", "l"])
    assert len([each for each in caplog.messages if "cannot be read by this user" in each]) == 2
    with pytest.raises(PermissionError):
        names(FolderStorage(str(tmp_path / "c")))


def test_what_is_deleted_while_it_is_listed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FolderStorage(str(tmp_path))
    for name in ("a/1", "a/2", "a/3", "b/1", "c/1"):
        storage.create(name, b"x")
    scan = os.scandir

    def scan_and_delete(path: Path) -> Any:
        entries = sorted(scan(path), key=lambda each: each.name)
        if path.name == "a":
            (path / "2").unlink()
        elif path == tmp_path:
            (path / "b" / "1").unlink()
            (path / "b").rmdir()
        return entries

    monkeypatch.setattr(os, "scandir", scan_and_delete)
    assert names(storage) == ["a/1", "a/3", "c/1"]


def test_no_more_than_a_hundred_folders_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(101):
        (tmp_path / str(number)).mkdir()
    scan = os.scandir

    def refuse(path: Path) -> Any:
        if path != tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert names(FolderStorage(str(tmp_path))) == []
    assert len([each for each in caplog.messages if "cannot be read by this user" in each]) == 100


def test_a_file_is_moved_whole_and_one_that_is_gone_is_no_failure(storage: SpoolStorage) -> None:
    storage.create("messages/flights/1", b"x")
    for _ in range(2):
        storage.move("messages/flights/1", "set-aside/flights/1")
    assert names(storage) == ["set-aside/flights/1"]
    assert storage.read("set-aside/flights/1") == b"x"


@pytest.mark.parametrize("kind", ["folder", "store"])
def test_a_file_is_read_up_to_a_limit(tmp_path: Path, kind: str) -> None:
    stored = open_storage(str(tmp_path) if kind == "folder" else f"memory://{uuid.uuid4().hex}/spool")
    stored.create("a", b"x" * 100)
    stored.create("empty", b"")
    assert (stored.read("a", 100), stored.read("empty")) == (b"x" * 100, b"")
    with pytest.raises(IrregularFileError, match="larger than 99 bytes"):
        stored.read("a", 99)


class Ranges(AbstractBufferedFile):  # type: ignore[misc]  # the package has no types
    """An object of S3, Azure or Google, without its network."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return b"abcdefgh\nij"[start:end]


class RangesOnly(MemoryFileSystem):  # type: ignore[misc]  # the package has no types
    def _open(self, path: str, mode: str = "rb", **options: Any) -> Ranges:  # noqa: ARG002
        return Ranges(self, path, mode, size=11)


def test_lines_of_an_object_are_read_up_to_a_limit() -> None:
    with ObjectStorage("memory://spool", files=RangesOnly()).open("any") as opened:
        assert [opened.readline(5) for _ in range(3)] == [b"abcde", b"fgh\n", b"ij"]
