"""One process at a time empties the spool of an entity (SPEC section 10)."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from servicebus_pair.core.spool.claims import CLAIM_SECONDS, Claims
from servicebus_pair.core.spool.folder_storage import FolderStorage
from servicebus_pair.core.spool.storage import MAX_FILE_BYTES


class SteppedClock:
    """Time passes when the test says so; sleepers wait for it."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.slept = asyncio.Event()
        self._advanced = asyncio.Condition()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        until = self.time + seconds
        async with self._advanced:
            self.slept.set()
            await self._advanced.wait_for(lambda: self.time >= until)

    async def advance(self, seconds: float) -> None:
        async with self._advanced:
            self.time += seconds
            self.slept.clear()
            self._advanced.notify_all()


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


def claims_in(folder: Path, clock: SteppedClock, owner: str = "one") -> Claims:
    return Claims(FolderStorage(str(folder)), clock=clock, owner=owner)


async def test_only_one_holds_the_claim_of_an_entity(tmp_path: Path, clock: SteppedClock) -> None:
    one, two = claims_in(tmp_path, clock), claims_in(tmp_path, clock, "two")
    async with one.claim("Flights") as held, two.claim("flights") as refused, two.claim("gates") as other:
        assert (held is not None, refused, other is not None) == (True, None, True)
    async with two.claim("flights") as free:
        assert free is not None


async def test_of_many_at_once_one_gets_it(tmp_path: Path, clock: SteppedClock) -> None:
    async with AsyncExitStack() as stack:
        claiming = [
            stack.enter_async_context(claims_in(tmp_path, clock, str(number)).claim("flights")) for number in range(20)
        ]
        held = await asyncio.gather(*claiming)
    assert sum(claim is not None for claim in held) == 1


def leave_claim(folder: Path, content: str) -> Path:
    """Write the claim of a process that has ended."""
    left_behind = folder / "claims" / "flights"
    left_behind.parent.mkdir()
    left_behind.write_text(content)
    return left_behind


@pytest.mark.parametrize("owner", ["a", "two"])
@pytest.mark.parametrize(("renewed", "is_held"), [(-60, False), (-59.9, True), (59.9, True), (60, False)])
async def test_a_claim_holds_for_a_minute_by_either_clock(
    owner: str, renewed: float, is_held: bool, tmp_path: Path, clock: SteppedClock
) -> None:
    leave_claim(tmp_path, json.dumps({"owner": owner, "renewed": clock.time + renewed}))
    async with claims_in(tmp_path, clock).claim("flights") as claim:
        assert (claim is None) is is_held


def expired_claim(clock: SteppedClock) -> str:
    return json.dumps({"owner": "ended", "renewed": clock.time - CLAIM_SECONDS})


@pytest.mark.parametrize("ended_by", ["an expired claim", "an unreadable claim", "a claim of the future"])
async def test_the_claim_of_a_process_that_ended_is_taken_over_by_one(
    ended_by: str, tmp_path: Path, clock: SteppedClock
) -> None:
    future = json.dumps({"owner": "ended", "renewed": clock.time + 86_400})
    claims = {"an expired claim": expired_claim(clock), "an unreadable claim": "torn", "a claim of the future": future}
    leave_claim(tmp_path, claims[ended_by])
    async with AsyncExitStack() as stack:
        claiming = [
            stack.enter_async_context(claims_in(tmp_path, clock, str(number)).claim("flights")) for number in range(10)
        ]
        held = await asyncio.gather(*claiming)
    assert sum(claim is not None for claim in held) == 1
    assert list((tmp_path / "claims").iterdir()) == []


async def test_a_claim_that_ends_while_it_is_looked_at_is_refused_this_time(
    tmp_path: Path, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, read = leave_claim(tmp_path, expired_claim(clock)), FolderStorage.read

    def end_and_read(storage: FolderStorage, name: str, limit: int) -> bytes:
        storage.delete(name)
        return read(storage, name, limit)

    monkeypatch.setattr(FolderStorage, "read", end_and_read)
    async with claims_in(tmp_path, clock).claim("flights") as refused:
        assert (refused, list(claim.parent.iterdir())) == (None, [])


@pytest.mark.parametrize(
    "content",
    ["{}", "[]", '{"owner": "a", "renewed": "now"}', f'{{"owner": "a", "renewed": 1{"0" * 400}}}', "[" * 100_000],
    ids=["empty", "list", "no time", "huge", "deep"],
)
async def test_a_claim_that_cannot_be_read_holds_nothing(content: str, tmp_path: Path, clock: SteppedClock) -> None:
    leave_claim(tmp_path, content)
    async with claims_in(tmp_path, clock).claim("flights") as claim:
        assert claim is not None


async def test_what_no_process_can_have_written_is_no_claim(tmp_path: Path, clock: SteppedClock) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "flights").symlink_to(tmp_path)
    async with claims_in(tmp_path, clock).claim("flights") as claim:
        assert claim is not None


class PausedAfterRead(FolderStorage):
    """Returns what was read only once ``resumed`` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.paused, self.resumed = threading.Event(), threading.Event()

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        content = super().read(name, limit)
        self.paused.set()
        assert self.resumed.wait(5)
        return content


async def test_whoever_read_the_expired_claim_does_not_take_the_new_one(tmp_path: Path, clock: SteppedClock) -> None:
    claim = leave_claim(tmp_path, expired_claim(clock))
    storage = PausedAfterRead(tmp_path)
    async with AsyncExitStack() as stack:
        late = Claims(storage, clock=clock, owner="late").claim("flights")
        claiming = asyncio.create_task(stack.enter_async_context(late))
        assert await asyncio.to_thread(storage.paused.wait, 5)
        async with claims_in(tmp_path, clock).claim("flights") as held:
            storage.resumed.set()
            assert (held is not None, await claiming) == (True, None)
            assert held is not None
            assert json.loads(claim.read_text())["owner"] == held.owner
            assert list(claim.parent.iterdir()) == [claim]


async def test_a_process_that_ends_while_it_takes_a_claim_over_is_succeeded_by_one(
    tmp_path: Path, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise OSError("the process ends here")

    claim = leave_claim(tmp_path, expired_claim(clock))
    for _ in range(2):
        with monkeypatch.context() as ending:
            ending.setattr(FolderStorage, "replace", end)
            with pytest.raises(OSError, match="ends here"):
                await claims_in(tmp_path, clock).claim("flights").__aenter__()
        async with claims_in(tmp_path, clock).claim("flights") as refused:
            assert refused is None
        await clock.advance(CLAIM_SECONDS)
    async with AsyncExitStack() as stack:
        claiming = [
            stack.enter_async_context(claims_in(tmp_path, clock, str(number)).claim("flights")) for number in range(10)
        ]
        held = await asyncio.gather(*claiming)
        assert sum(claim is not None for claim in held) == 1
    assert list(claim.parent.iterdir()) == []


async def test_a_claim_in_use_is_renewed(tmp_path: Path, clock: SteppedClock) -> None:
    other = claims_in(tmp_path, clock, "two")
    async with claims_in(tmp_path, clock).claim("flights") as held:
        await clock.slept.wait()
        began = clock.time
        while clock.time - began < 3 * CLAIM_SECONDS:
            await clock.advance(CLAIM_SECONDS / 6)
            await renewed(tmp_path, clock)
            async with other.claim("flights") as refused:
                assert refused is None
        assert held is not None
        assert not held.lost


async def renewed(folder: Path, clock: SteppedClock) -> None:
    """Wait until the claim carries the present time, and the next renewal waits."""
    file = folder / "claims" / "flights"
    async with asyncio.timeout(5):
        while f"{clock.time}" not in file.read_text():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.001)
        await clock.slept.wait()


@pytest.mark.parametrize("owner", ["a", "two"])
async def test_a_claim_that_another_process_took_is_lost_and_not_deleted(
    owner: str, tmp_path: Path, clock: SteppedClock
) -> None:
    file = tmp_path / "claims" / "flights"
    async with claims_in(tmp_path, clock).claim("flights") as held:
        assert held is not None
        theirs = json.dumps({"owner": owner, "renewed": clock.time})
        file.write_text(theirs)
        async with asyncio.timeout(5):
            while not held.lost:
                await clock.advance(CLAIM_SECONDS / 6)
                await asyncio.sleep(0.001)
    assert file.read_text() == theirs


async def test_a_claim_that_cannot_be_renewed_is_given_up_before_it_expires(
    tmp_path: Path, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the mount is gone")

    began = clock.time
    async with claims_in(tmp_path, clock).claim("flights") as held:
        assert held is not None
        monkeypatch.setattr(FolderStorage, "replace", fail)
        await clock.slept.wait()
        async with asyncio.timeout(5):
            while not held.lost:
                await clock.advance(CLAIM_SECONDS / 6)
                while not (clock.slept.is_set() or held.lost):  # noqa: ASYNC110 - a lost claim has no event
                    await asyncio.sleep(0.001)
    assert clock.time - began == 40, "more than half of the time for which it holds"
