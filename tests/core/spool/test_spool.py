"""The spool keeps batches in the order of writing and is bounded (SPEC section 10)."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

import pytest

from servicebus_pair.core.model.errors import InvalidMessageError, SpoolError, SpoolFullError
from servicebus_pair.core.model.events import Event, SpoolFilling
from servicebus_pair.core.model.options import PairOptions, Secret
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, new_message
from servicebus_pair.core.spool import spool as spools
from servicebus_pair.core.spool.claims import Claims
from servicebus_pair.core.spool.folder_storage import FolderStorage
from servicebus_pair.core.spool.spool import Spool, SpooledEntity, open_spool
from servicebus_pair.core.spool.spool_file import ForeignFileError, SpoolKey, WrongKeyError
from servicebus_pair.core.spool.storage import MAX_FILE_BYTES, StoredFile
from tests.core.support.manual_clock import ManualClock

MEGABYTE = 1_000_000


def spool_in(folder: Path, clock: ManualClock, **options: Any) -> Spool:
    return Spool(FolderStorage(str(folder)), clock=clock, **{"max_bytes": MEGABYTE, **options})


def texts(messages: tuple[AmqpMessage, ...]) -> list[str]:
    return [b"".join(message.body).decode() for message in messages]


async def contents(spool: Spool, entity: str) -> list[list[str]]:
    return [texts((await spool.read(batch)).messages) for batch in await spool.batches(entity)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000.0)


async def test_batches_of_an_entity_are_read_in_the_order_of_writing(tmp_path: Path, clock: ManualClock) -> None:
    spool = spool_in(tmp_path, clock)
    for number in range(5):
        # The clock stands still, and goes back once.
        clock.time -= number == 3
        await spool.write("Flights/UA", [new_message(f"{number}a"), new_message(f"{number}b")])
    await spool.write("gates", [new_message("g")])
    again = spool_in(tmp_path, clock)
    assert await contents(again, "flights/ua") == [[f"{number}a", f"{number}b"] for number in range(5)]
    assert [batch.messages for batch in await again.batches()] == [2] * 5 + [1]


async def test_an_earlier_process_stays_before_a_later_one_though_the_clock_went_back(
    tmp_path: Path, clock: ManualClock
) -> None:
    await spool_in(tmp_path, clock).write("flights", [new_message("before")])
    clock.time -= 86_400
    later = spool_in(tmp_path, clock)
    for text in ("after", "last"):
        await later.write("flights", [new_message(text)])
    assert await contents(later, "flights") == [["before"], ["after"], ["last"]]


async def test_section_10_in_session_order_a_process_writes_behind_what_others_wrote_whatever_clocks_say(
    tmp_path: Path, clock: ManualClock
) -> None:
    late = ManualClock(clock.time - 0.5)
    spools = [spool_in(tmp_path, each, ordered=True) for each in (clock, late)]
    for number in range(6):
        await spools[number % 2].write("flights", [new_message(f"{number}")])
    assert await contents(spools[0], "flights") == [[f"{number}"] for number in range(6)]


async def test_section_10_in_session_order_files_that_others_put_there_do_not_change_the_order(
    tmp_path: Path, clock: ManualClock
) -> None:
    both = [spool_in(tmp_path, clock, ordered=True) for _ in range(2)]
    folder = tmp_path / "messages" / "flights"
    for number in range(4):
        await both[number % 2].write("flights", [new_message(f"{number}")])
        clock.time -= 1
        for planted in ("0notes.txt", "notes.txt", f"{'9' * 20}-x-1.spool")[number:]:
            (folder / planted).touch()
        if number == 2:
            (folder / "notes.txt").unlink()
    assert await contents(both[0], "flights") == [["0"], ["1"], ["2"], ["3"]]


async def test_section_10_in_session_order_a_write_looks_at_no_file_that_waits(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, lists = spool_in(tmp_path, clock, ordered=True), 0
    listed = spool.storage.walk

    def count(folder: str = "") -> Any:
        nonlocal lists
        lists += 1
        return listed(folder)

    monkeypatch.setattr(spool.storage, "walk", count)
    for number in range(20):
        await spool.write("flights", [new_message(f"{number}")])
    assert lists == 1, "for the limits of the spool, every few seconds"


async def test_a_clock_that_went_back_does_not_keep_the_limit_from_being_counted(
    tmp_path: Path, clock: ManualClock
) -> None:
    one, two = spool_in(tmp_path, clock, max_bytes=2_000), spool_in(tmp_path, clock, max_bytes=2_000)
    await one.write("flights", [new_message("x")])
    clock.time -= 3_600
    await two.write("flights", [new_message("y" * 1_000)])
    with pytest.raises(SpoolFullError):
        await one.write("flights", [new_message("z" * 1_000)])


@pytest.mark.parametrize("entity", [".", "..", "../../x", "/x", "a\u00a0b"])
async def test_no_entity_is_a_place_outside_its_folder(entity: str, tmp_path: Path, clock: ManualClock) -> None:
    spool = spool_in(tmp_path / "spool", clock)
    await spool.write(entity, [new_message("x")])

    assert await contents(spool, entity) == [["x"]]
    assert list(await spool.survey()) == [entity]
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]  # noqa: ASYNC240
    async with Claims(spool.storage, clock=clock, owner="me").claim(entity) as claim:
        assert claim is not None


async def test_a_survey_counts_by_entity_with_the_oldest_first(tmp_path: Path, clock: ManualClock) -> None:
    spool = spool_in(tmp_path, clock)
    assert await spool.survey() == {}
    for entity in ("gates", "Flights", "gates"):
        await spool.write(entity, [new_message("x")] * 3)
        clock.time += 10
    found = await spool.survey()
    size = sum(path.stat().st_size for path in (tmp_path / "messages" / "gates").iterdir())
    assert list(found) == ["gates", "flights"]
    assert found["gates"] == SpooledEntity(6, size, 1_700_000_000.0)
    assert found["flights"].oldest_at == 1_700_000_010.0


async def test_a_full_spool_refuses_and_keeps_what_it_has(tmp_path: Path, clock: ManualClock) -> None:
    spool = spool_in(tmp_path, clock, max_bytes=2_000)
    await spool.write("flights", [new_message("x" * 1_000)])
    with pytest.raises(SpoolFullError, match="exceed its limit of 2000"):
        await spool.write("flights", [new_message("y" * 1_000)])
    assert await contents(spool, "flights") == [["x" * 1_000]]
    [batch] = await spool.batches()
    await spool.keep_only(batch, ())
    await spool.write("flights", [new_message("y" * 1_000)])


@pytest.mark.parametrize(("less", "taken"), [(0, True), (1, False)])
async def test_a_batch_is_as_large_as_a_file_of_a_spool_at_most(
    less: int, taken: bool, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = spool_in(tmp_path, clock)
    await spool.write("flights", [new_message("x")])
    [batch] = await spool.batches()
    monkeypatch.setattr(spools, "MAX_FILE_BYTES", batch.size_bytes - less)
    if not taken:
        with pytest.raises(SpoolFullError, match="are more than a file of the spool has"):
            await spool.write("flights", [new_message("x")])
        return
    await spool.write("flights", [new_message("x")])


async def test_a_spool_that_is_four_fifths_full_says_so_once(tmp_path: Path, clock: ManualClock) -> None:
    events: list[Event] = []
    spool = spool_in(tmp_path, clock, max_bytes=10_000, emit=events.append)
    for _ in range(5):
        await spool.write("flights", [new_message("x" * 900)])
    assert events == []
    while len(events) < 1:
        await spool.write("flights", [new_message("x" * 100)])
    [event] = events
    assert isinstance(event, SpoolFilling)
    assert (event.limit_bytes, 8_000 <= event.used_bytes < 8_400) == (10_000, True)
    await spool.write("flights", [new_message("x")])
    assert len(events) == 1
    for batch in (await spool.batches())[:3]:
        await spool.keep_only(batch, ())
    await spool.write("flights", [new_message("x")])
    for _ in range(3):
        await spool.write("flights", [new_message("x" * 900)])
    assert len(events) == 2


async def test_a_spool_takes_exactly_as_much_as_its_limit_and_alarms_at_four_fifths(
    tmp_path: Path, clock: ManualClock
) -> None:
    await spool_in(tmp_path / "measured", clock).write("flights", [new_message("x")])
    [file] = (tmp_path / "measured" / "messages" / "flights").iterdir()
    size, events = file.stat().st_size, list[Event]()
    assert 0.8 * (5 * size) == 4 * size
    spool, alarms = spool_in(tmp_path / "spool", clock, max_bytes=5 * size, emit=events.append), []
    for _ in range(5):
        await spool.write("flights", [new_message("x")])
        alarms.append(len(events))
    assert alarms == [0, 0, 0, 1, 1]
    with pytest.raises(SpoolFullError):
        await spool.write("flights", [new_message("")])
    for another in (4, 5):
        later = spool_in(tmp_path / "spool", clock, max_bytes=another * size + size - 1)
        with pytest.raises(SpoolFullError):
            await later.write("flights", [new_message("x")])
    assert len(await spool.batches()) == 5


@pytest.mark.parametrize(("seconds", "lists"), [(0, 1), (5, 1), (5.5, 2), (-5, 1), (-5.5, 2)])
async def test_a_listing_serves_for_five_seconds_by_either_clock(
    seconds: float, lists: int, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, listed = spool_in(tmp_path, clock), list[str]()
    files = spool.storage.walk

    def count(folder: str = "") -> Any:
        listed.append(folder)
        return files(folder)

    monkeypatch.setattr(spool.storage, "walk", count)
    await spool.write("flights", [new_message("x")])
    clock.time += seconds
    await spool.write("flights", [new_message("x")])
    assert len(listed) == lists


async def test_what_another_process_wrote_counts_against_the_limit(tmp_path: Path, clock: ManualClock) -> None:
    one, two = spool_in(tmp_path, clock, max_bytes=2_000), spool_in(tmp_path, clock, max_bytes=2_000)
    await one.write("flights", [new_message("x")])
    await two.write("flights", [new_message("y" * 1_000)])
    clock.time += 6
    with pytest.raises(SpoolFullError):
        await one.write("flights", [new_message("z" * 1_000)])


async def test_a_spool_with_messages_that_are_too_old_takes_no_more(tmp_path: Path, clock: ManualClock) -> None:
    spool = spool_in(tmp_path, clock, max_age=timedelta(hours=1))
    await spool.write("flights", [new_message("x")])
    clock.time += 3600
    await spool.write("flights", [new_message("y")])
    clock.time += 1
    with pytest.raises(SpoolFullError, match="from 3601 s ago, at most 3600 s are allowed"):
        await spool.write("gates", [new_message("z")])
    assert await contents(spool, "flights") == [["x"], ["y"]]


async def test_a_message_that_cannot_be_kept_is_refused_before_anything_is_written(
    tmp_path: Path, clock: ManualClock
) -> None:
    bad = AmqpMessage([b"x"], application_properties={"bad": object()})
    with pytest.raises(InvalidMessageError, match=r"a message to flights cannot be spooled: .* object "):
        await spool_in(tmp_path, clock).write("flights", [new_message("good"), bad])
    assert not (tmp_path / "messages").exists()


async def test_a_spool_that_cannot_be_written_says_so(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "messages").write_text("in the way")
    with pytest.raises(SpoolError, match=r"cannot (list|write to) the spool, NotADirectoryError") as caught:
        await spool_in(tmp_path, clock).write("flights", [new_message("x")])
    assert not isinstance(caught.value, SpoolFullError)
    assert caught.value.may_be_stored
    assert caught.value.retriable


@pytest.mark.parametrize("usable", [True, False])
async def test_a_spool_that_cannot_be_written_is_warned_of_once(
    usable: bool, tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    spool = spool_in(tmp_path if usable else tmp_path / "missing" / "spool", clock)
    for _ in range(2):
        spool.warn_if_unusable()
    assert (await spool.problem() is None) is usable
    assert ["sends will fail while neither" in each for each in caplog.messages] == [True] * (not usable)


async def test_part_of_a_batch_stays_in_its_place(tmp_path: Path, clock: ManualClock) -> None:
    spool = spool_in(tmp_path, clock)
    for text in ("a", "b"):
        await spool.write("flights", [new_message(f"{text}{number}") for number in range(3)])
    first, second = await spool.batches()
    messages = (await spool.read(first)).messages
    await spool.keep_only(first, messages[1:])
    assert await contents(spool, "flights") == [["a1", "a2"], ["b0", "b1", "b2"]]
    await spool.keep_only(second, ())
    assert [(batch.messages, batch.written_at) for batch in await spool.batches()] == [(2, first.written_at)]


async def test_what_is_set_aside_keeps_its_bytes_and_its_reason(tmp_path: Path, clock: ManualClock) -> None:
    spool = spool_in(tmp_path, clock)
    await spool.write("flights", [new_message("x"), new_message("y")])
    [batch] = await spool.batches()
    before = (tmp_path / batch.name).read_bytes()
    await spool.set_messages_aside(batch, (await spool.read(batch)).messages[:1], "refused")
    await spool.set_aside(batch, "torn")
    aside = sorted((tmp_path / "set-aside" / "flights").iterdir())
    assert [path.read_text() for path in aside if path.suffix == ".reason"] == ["refused\n", "torn\n"]
    assert (tmp_path / batch.name.replace("messages", "set-aside")).read_bytes() == before
    assert await spool.batches() == []


@pytest.mark.parametrize("name", ["notes.txt", "x-y-1.spool", "1-2-x.spool", ".hidden.spool"])
async def test_files_with_other_names_are_not_touched(name: str, tmp_path: Path, clock: ManualClock) -> None:
    spool = spool_in(tmp_path, clock)
    await spool.write("flights", [new_message("x")])
    (tmp_path / "messages" / "flights" / name).write_text("mine")
    assert len(await spool.batches("flights")) == 1


async def test_a_foreign_file_and_another_key_are_told_apart(tmp_path: Path, clock: ManualClock) -> None:
    keys = [SpoolKey(Secret(base64.urlsafe_b64encode(bytes([number]) * 32).decode())) for number in range(2)]
    spool = spool_in(tmp_path, clock, key=keys[0])
    await spool.write("flights", [new_message("x")])
    [batch] = await spool.batches()
    assert await contents(spool, "flights") == [["x"]]
    with pytest.raises(WrongKeyError):
        await spool_in(tmp_path, clock, key=keys[1]).read(batch)
    (tmp_path / batch.name).write_bytes(b"something else")
    with pytest.raises(ForeignFileError):
        await spool.read(batch)


async def peeked(spool: Spool) -> list[tuple[str, bool, list[str]]]:
    return [(entity, aside, texts(tuple(found))) async for entity, aside, found in spool.peek()]


def read_unless(read: Callable[[str], bytes], gone: str, name: str) -> bytes:
    if name == gone:
        raise FileNotFoundError(name)
    return read(name)


async def test_a_peek_shows_what_is_held_and_what_is_set_aside_and_changes_nothing(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = spool_in(tmp_path, clock)
    assert await peeked(spool) == []
    await spool.write("Flights", [new_message("a"), new_message("b")])
    await spool.write("gates", [new_message("c")])
    [flights, _] = await spool.batches()
    await spool.set_messages_aside(flights, [new_message("bad")], "refused")
    for name in ("0", "torn"):
        (tmp_path / "set-aside" / "flights" / f"{name}-1.spool").write_bytes(b"foreign")
    (tmp_path / "messages" / "flights" / "0.txt").write_bytes(b"mine")
    expected = [("Flights", False, ["a", "b"]), ("gates", False, ["c"]), ("flights", True, ["bad"])]
    assert await peeked(spool) == await peeked(spool) == expected
    other = spool_in(tmp_path, clock, key=SpoolKey(Secret(base64.b64encode(bytes(32)).decode())))
    assert len(await peeked(other)) == 3, "what is not encrypted needs no key"
    with monkeypatch.context() as patched:
        patched.setattr(spool.storage, "read", partial(read_unless, spool.storage.read, flights.name))
        assert await peeked(spool) == expected[1:], "emptied meanwhile"
    (tmp_path / "messages" / "gates" / "1-a-1.spool").write_bytes(b"foreign")
    with pytest.raises(SpoolError, match=r"cannot read messages/gates/1-a-1.spool of the spool"):
        await peeked(spool)


async def test_a_batch_of_which_all_is_kept_is_not_written_again(tmp_path: Path, clock: ManualClock) -> None:
    spool = spool_in(tmp_path, clock)
    await spool.write("flights", [new_message("a"), new_message("b")])
    [path], [batch] = (tmp_path / "messages" / "flights").iterdir(), await spool.batches()
    before = path.stat().st_mtime_ns
    await spool.keep_only(batch, (await spool.read(batch)).messages)
    assert path.stat().st_mtime_ns == before


def test_a_spool_has_the_limits_of_its_options(tmp_path: Path, clock: ManualClock) -> None:
    assert open_spool(PairOptions(), clock=clock) is None
    key = Secret(base64.b64encode(bytes(32)).decode())
    options = PairOptions(
        spool=str(tmp_path), spool_max_bytes=4_000_000, spool_max_age=timedelta(hours=1), spool_secret_key=key
    )
    spool = open_spool(options, clock=clock, emit=print)
    assert spool is not None
    assert (spool._max_bytes, spool._max_age, spool._emit) == (4_000_000, 3600.0, print)
    assert (spool._key is not None, spool._ordered) == (True, False)
    default = open_spool(PairOptions(spool=str(tmp_path), ordering="session"), clock=clock)
    assert default is not None
    assert (default._max_bytes, default._max_age, default._key) == (10 * 1024**3, 14 * 86_400.0, None)
    assert default._ordered


class InPieces(FolderStorage):
    """A slow mount: no call may read a large file as a whole."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.files: list[BinaryIO] = []
        self.sizes: list[int] = []

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        assert not name.endswith(".spool")
        return super().read(name, limit)

    def open(self, name: str) -> BinaryIO:
        self.files.append(super().open(name))
        return cast("BinaryIO", SimpleNamespace(read=self._piece, close=self.files[-1].close))

    def _piece(self, size: int) -> bytes:
        self.sizes.append(size)
        return self.files[-1].read(size)


async def test_section_10_a_large_file_is_read_in_pieces_each_of_which_may_take_long(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "_PIECE_BYTES", 100)
    storage = InPieces(tmp_path)
    spool = Spool(storage, clock=clock, max_bytes=1 << 20)
    await spool.write("flights", [new_message(b"x" * 1000)])
    [batch] = await spool.batches()

    assert texts((await spool.read(batch)).messages) == ["x" * 1000]
    assert [texts(tuple(messages)) async for _, _, messages in spool.peek()] == [["x" * 1000]]
    assert set(storage.sizes) == {100}
    await spool.survey()  # after what was asked of the thread before
    assert [each.closed for each in storage.files] == [True, True]


async def test_section_10_a_large_file_has_more_time_to_be_written(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "_SLOWEST_BYTES_PER_SECOND", 100)
    spool, given = Spool(FolderStorage(str(tmp_path)), clock=clock, max_bytes=1 << 20), dict[str, float]()
    call = spool._thread.call

    async def recorded(function: Any, *args: Any, more_seconds: float) -> Any:
        given[function.__name__] = more_seconds
        return await call(function, *args, more_seconds=more_seconds)

    monkeypatch.setattr(spool._thread, "call", recorded)
    await spool.write("flights", [new_message(b"x" * 3000), new_message(b"y" * 3000)])
    [batch] = await spool.batches()
    await spool.keep_only(batch, [new_message(b"x" * 3000)])

    assert {name: round(seconds, -1) for name, seconds in given.items() if seconds} == {"create": 80, "replace": 40}


@pytest.mark.parametrize("is_mount_point", [False, True])
@pytest.mark.parametrize("entity", ["flights", "gates"])
async def test_section_10_nothing_is_written_where_a_mount_was(
    tmp_path: Path, clock: ManualClock, entity: str, is_mount_point: bool
) -> None:
    """It would be hidden once the mount is back, which has a spool of its own."""
    spool, folder = Spool(FolderStorage(str(tmp_path / "spool")), clock=clock, max_bytes=1 << 20), tmp_path / "spool"
    await spool.write("flights", [new_message("a")])
    folder.rename(tmp_path / "removed")
    if is_mount_point:
        folder.mkdir()

    for _ in range(2):
        with pytest.raises(SpoolError, match="is missing or empty, and was neither before; was its mount removed"):
            await spool.write(entity, [new_message("b")])
    assert [each for each in folder.rglob("*") if each.is_file()] == []
    if is_mount_point:
        folder.rmdir()
    (tmp_path / "removed").rename(folder)
    await spool.write(entity, [new_message("c")])
    assert sum(each.messages for each in (await spool.survey()).values()) == 2
    shutil.rmtree(folder / "messages")
    await spool.write(entity, [new_message("d")])
    assert sum(each.messages for each in (await spool.survey()).values()) == 1


async def test_section_10_many_files_are_listed_in_pieces_each_of_which_may_take_long(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that lists all that an outage has left would count as hanging, so that nothing could be delivered."""
    monkeypatch.setattr(spools, "_LISTED_AT_ONCE", 2)
    storage = FolderStorage(str(tmp_path))
    spool, steps, walk = Spool(storage, clock=clock, max_bytes=1 << 20), list[str](), storage.walk
    for text in "abcde":
        await spool.write("flights", [new_message(text)])
    call = spool._thread.call

    def walked(folder: str) -> Iterator[StoredFile]:
        for each in walk(folder):
            steps.append("file")
            yield each

    async def called(*args: Any, **more: Any) -> Any:
        steps.append("call")
        return await call(*args, **more)

    monkeypatch.setattr(storage, "walk", walked)
    monkeypatch.setattr(spool._thread, "call", called)
    batches = await spool.batches()

    assert [texts((await spool.read(each)).messages) for each in batches] == [["a"], ["b"], ["c"], ["d"], ["e"]]
    assert steps[:8] == ["call", "file", "file", "call", "file", "file", "call", "file"]
