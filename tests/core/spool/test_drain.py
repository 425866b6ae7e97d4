"""What is in the spool goes to the primary or the backlog, in order, at least once (SPEC section 10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.model.errors import NoBacklogQueueError, RejectedError, SendError, UnreachableError
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, new_message
from servicebus_pair.core.spool import drain
from servicebus_pair.core.spool.claims import Claims
from servicebus_pair.core.spool.drain import SpoolReport, empty_spool
from servicebus_pair.core.spool.folder_storage import FolderStorage
from servicebus_pair.core.spool.spool import Spool
from servicebus_pair.core.spool.spool_file import WrongKeyError
from tests.core.support.manual_clock import ManualClock


class Service:
    """Accepts messages in place of a pair, unless ``failure_of`` returns why not."""

    def __init__(self) -> None:
        self.delivered: list[tuple[str, str]] = []
        self.failure_of: Callable[[str, str], Exception | None] = lambda *_: None

    async def deliver(self, entity: str, messages: Sequence[AmqpMessage]) -> SendResult:
        accepted: list[str] = []
        refused: list[AmqpMessage] = []
        failure = None
        for position, message in enumerate(messages):
            text = b"".join(message.body).decode()
            failure = self.failure_of(entity, text)
            if isinstance(failure, RejectedError):
                refused.append(message)
                continue
            if failure is not None:
                raise self._error(failure, accepted, [*refused, *messages[position:]], refused)
            accepted.append(text)
            self.delivered.append((entity, text))
        if refused:
            raise self._error(RejectedError("bad"), accepted, refused, refused)
        return SendResult(primary=len(accepted), message_ids=tuple(accepted))

    def _error(
        self, cause: Exception, accepted: list[str], unsent: list[AmqpMessage], refused: list[AmqpMessage]
    ) -> SendError:
        result = SendResult(primary=len(accepted), message_ids=tuple(accepted))
        error = NoBacklogQueueError(str(cause), cause=cause, result=result, unsent=unsent)
        error.refused, error.verdicts = tuple(refused), ("bad",)[: len(refused)]
        return error


class Setting:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(1_700_000_000.0)
        self.storage = FolderStorage(str(folder))
        self.spool = Spool(self.storage, clock=self.clock, max_bytes=10_000_000)
        self.service = Service()

    async def write(self, entity: str, *texts: str) -> None:
        await self.spool.write(entity, [new_message(text) for text in texts])

    async def empty(self, **more: Any) -> SpoolReport:
        claims = Claims(self.storage, clock=Waiting(self.clock.time), owner="test")
        return await empty_spool(self.spool, claims, self.service.deliver, **more)

    def files(self, folder: str) -> list[Path]:
        return [path for path in (self.folder / folder).rglob("*") if path.is_file()]


class Waiting:
    """A clock that stands still."""

    def __init__(self, time: float) -> None:
        self.time = time

    def now(self) -> float:
        return self.time

    async def sleep(self, _: float) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


async def test_everything_is_delivered_in_the_order_of_writing_and_deleted(setting: Setting) -> None:
    for number in range(5):
        await setting.write("flights", f"{number}a", f"{number}b")
        await setting.write("Gates", f"g{number}")
    report = await setting.empty()
    flights = [text for entity, text in setting.service.delivered if entity == "flights"]
    assert flights == [f"{number}{letter}" for number in range(5) for letter in "ab"]
    assert [text for entity, text in setting.service.delivered if entity == "Gates"] == [f"g{n}" for n in range(5)]
    assert (report.moved_total, report.left, dict(report.failures), dict(report.set_aside)) == (15, 0, {}, {})
    assert [path.name for path in setting.files("")] == ["name"]


async def test_an_empty_spool_is_nothing_to_do(setting: Setting) -> None:
    assert await setting.empty() == SpoolReport()


async def test_an_entity_that_fails_keeps_its_rest_in_order_and_holds_up_no_other(setting: Setting) -> None:
    for number in range(3):
        await setting.write("flights", f"{number}a", f"{number}b", f"{number}c")
        await setting.write("gates", f"g{number}")
    setting.service.failure_of = lambda _, text: UnreachableError("down") if text == "1b" else None
    report = await setting.empty()
    assert [text for entity, text in setting.service.delivered if entity == "flights"] == ["0a", "0b", "0c", "1a"]
    assert (report.moved_total, report.left, report.failures) == (7, 5, {"flights": "down"})
    setting.service.failure_of = lambda *_: None
    report = await setting.empty()
    flights = [text for entity, text in setting.service.delivered if entity == "flights"]
    assert flights == [f"{number}{letter}" for number in range(3) for letter in "abc"]
    assert (report.left, [path.name for path in setting.files("")]) == (0, ["name"])


async def test_a_refused_message_is_set_aside_and_the_rest_goes_on(setting: Setting) -> None:
    await setting.write("flights", "a", "poison", "c")
    await setting.write("flights", "d")
    setting.service.failure_of = lambda _, text: RejectedError("bad") if text == "poison" else None
    report = await setting.empty()
    assert [text for _, text in setting.service.delivered] == ["a", "c", "d"]
    assert (report.moved_total, report.left, report.set_aside, report.failures) == (3, 0, {"flights": 1}, {})
    [file] = [path for path in setting.files("set-aside") if path.suffix == ".spool"]
    assert file.with_name(f"{file.name}.reason").read_text() == "bad\n"
    assert setting.files("messages") == []


async def test_a_file_of_refused_messages_is_set_aside_as_it_is(setting: Setting) -> None:
    for _ in range(2):
        await setting.write("flights", "poison", "poison")
    written = setting.files("messages")
    kept = {path.name: path.stat().st_ino for path in written}
    setting.service.failure_of = lambda *_: RejectedError("bad")
    report = await setting.empty()
    assert (report.left, report.set_aside, report.failures) == (0, {"flights": 4}, {})
    assert {path.name: path.stat().st_ino for path in (setting.folder / "set-aside").rglob("*.spool")} == kept
    assert [path.read_text() for path in (setting.folder / "set-aside").rglob("*.reason")] == ["bad\n"] * 2
    assert setting.files("messages") == []


async def test_what_is_refused_of_a_damaged_file_keeps_its_own_reason(setting: Setting) -> None:
    await setting.write("flights", "poison", "b")
    [path] = setting.files("messages")
    path.write_bytes(path.read_bytes()[:-1])
    setting.service.failure_of = lambda *_: RejectedError("bad")
    assert (await setting.empty()).set_aside == {"flights": 2}
    reasons = {path.read_text().partition(":")[0].strip() for path in (setting.folder / "set-aside").rglob("*.reason")}
    assert reasons == {"bad", "record 1 is damaged"}


@pytest.mark.parametrize("damage", ["foreign", "torn", "empty"])
async def test_a_damaged_file_is_set_aside_and_what_is_whole_is_delivered(setting: Setting, damage: str) -> None:
    await setting.write("flights", "a", "b", "c")
    await setting.write("flights", "d")
    [first, _] = await setting.spool.batches()
    path = setting.folder / first.name
    content = path.read_bytes()
    broken = {"foreign": b"GIF89a", "torn": content[:-5], "empty": b""}[damage]
    path.write_bytes(broken)
    report = await setting.empty()
    whole = ["a", "b"] if damage == "torn" else []
    assert [text for _, text in setting.service.delivered] == [*whole, "d"]
    assert (report.left, report.set_aside, report.failures) == (0, {"flights": 3 - len(whole)}, {})
    [kept] = [each for each in setting.files("set-aside") if each.suffix == ".spool"]
    assert kept.read_bytes() == broken
    assert setting.files("messages") == []


async def test_a_file_in_the_folder_of_another_entity_is_set_aside(setting: Setting) -> None:
    await setting.write("Flights", "a")
    [path] = setting.files("messages")
    target = setting.folder / "messages" / "gates" / path.name
    target.parent.mkdir()
    path.rename(target)
    await setting.write("Flights", "b")
    await setting.write("gates", "g")
    report = await setting.empty()
    assert sorted(setting.service.delivered) == [("Flights", "b"), ("gates", "g")]
    assert (report.left, report.set_aside, report.failures) == (0, {"gates": 1}, {})
    [reason] = (setting.folder / "set-aside").rglob("*.reason")
    assert "holds messages for Flights" in reason.read_text()


async def test_a_torn_file_that_holds_more_than_its_name_says_counts_nothing_as_set_aside(setting: Setting) -> None:
    await setting.write("flights", "a", "b", "c")
    [batch] = await setting.spool.batches()
    path = setting.folder / batch.name
    path.with_name(path.name.replace("-3.spool", "-1.spool")).write_bytes(path.read_bytes()[:-5])
    path.unlink()
    report = await setting.empty()
    assert (report.moved_total, report.left, report.set_aside) == (2, 0, {})


async def test_what_another_process_empties_is_left_to_it(setting: Setting) -> None:
    await setting.write("flights", "a")
    other = Claims(setting.storage, clock=Waiting(setting.clock.time), owner="other")
    async with other.claim("flights"):
        report = await setting.empty()
    assert (report.left, report.failures) == (1, {"flights": "another process is emptying it"})
    assert setting.service.delivered == []


async def test_what_is_left_of_a_batch_keeps_the_entity_as_the_sender_wrote_it(setting: Setting) -> None:
    await setting.write("Gates", "a", "b")
    setting.service.failure_of = lambda _, text: UnreachableError("down") if text == "b" else None
    assert (await setting.empty()).left == 1
    setting.service.failure_of = lambda *_: None
    assert (await setting.empty()).left == 0
    assert setting.service.delivered == [("Gates", "a"), ("Gates", "b")]


async def test_a_store_that_raises_an_error_of_its_own_holds_up_no_other_entity(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setting.write("flights", "a")
    await setting.write("gates", "g")
    create = setting.storage.create

    def fail_for_flights(name: str, content: bytes) -> None:
        if name.startswith("claims/flights"):
            raise ArithmeticError("an error that no library documents")
        create(name, content)

    monkeypatch.setattr(setting.storage, "create", fail_for_flights)
    report = await setting.empty()
    assert setting.service.delivered == [("gates", "g")]
    assert (report.left, list(report.failures)) == (1, ["flights"])
    assert "an error that no library documents" in report.failures["flights"]


async def test_a_foreign_file_that_claims_to_have_no_messages_is_set_aside_once(setting: Setting) -> None:
    await setting.write("flights", "a")
    [batch] = await setting.spool.batches()
    (setting.folder / batch.name).with_name(f"{1:020d}-x-0.spool").write_bytes(b"GIF89a")
    await setting.empty()
    assert setting.files("messages") == []
    assert setting.service.delivered == [("flights", "a")]


async def test_only_selected_entities_are_emptied(setting: Setting) -> None:
    for entity in ("Flights", "gates"):
        await setting.write(entity, "a", "b")
    report = await setting.empty(entities=["GATES"])
    assert (setting.service.delivered, report.left) == ([("gates", "a"), ("gates", "b")], 0)


@pytest.mark.parametrize(("less", "together"), [(0, 2), (1, 1)])
async def test_large_files_are_delivered_one_after_the_other(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, less: int, together: int
) -> None:
    for entity in ("flights", "delayed"):
        await setting.write(entity, "a")
    [size] = {batch.size_bytes for batch in await setting.spool.batches()}
    monkeypatch.setattr(drain, "_LARGE_BYTES", size - less)
    running = most = 0
    deliver = setting.service.deliver

    async def slow(entity: str, messages: Sequence[AmqpMessage]) -> SendResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        running -= 1
        return await deliver(entity, messages)

    setting.service.deliver = slow  # type: ignore[method-assign]
    assert ((await setting.empty()).moved_total, most) == (2, together)


async def test_each_batch_asks_for_leave_and_none_is_begun_without_it(setting: Setting) -> None:
    for number in range(3):
        await setting.write("flights", *"ab"[: number + 1])
    asked = list[int]()

    async def before_batch(messages: int) -> bool:
        asked.append(messages)
        return len(asked) < 3

    report = await setting.empty(before_batch=before_batch)
    assert (asked, report.moved_total, report.left, report.failures) == ([1, 2, 2], 3, 2, {})


async def test_copies_are_counted_and_ids_are_not_kept(setting: Setting) -> None:
    async def deliver(_: str, messages: Sequence[AmqpMessage]) -> SendResult:
        ids = tuple(map(str, range(len(messages))))
        return SendResult(1, 1, ("q",), message_ids=ids, primary_ids=ids[:1], duplicates_possible_ids=ids[1:])

    setting.service.deliver = deliver  # type: ignore[method-assign, assignment]
    await setting.write("flights", "a", "b")
    await setting.write("flights", "c", "d")
    report = await setting.empty()
    assert (report.duplicates_possible, report.results) == (2, {"flights": SendResult(2, 2, ("q",))})


async def test_a_batch_that_another_process_emptied_meanwhile_is_passed_over(setting: Setting) -> None:
    await setting.write("flights", "a")
    await setting.write("flights", "b")
    [first, _] = await setting.spool.batches()

    async def before_batch(_: int) -> bool:
        setting.storage.delete(first.name)
        return True

    report = await setting.empty(before_batch=before_batch)
    assert (setting.service.delivered, report.left, report.failures) == ([("flights", "b")], 0, {})


async def test_without_its_claim_or_its_key_an_entity_waits(setting: Setting) -> None:
    await setting.write("flights", "a")

    class LostClaims:
        @asynccontextmanager
        async def claim(self, _: str) -> AsyncIterator[Any]:
            yield SimpleNamespace(lost=True)

    claims: Any = LostClaims()
    report = await empty_spool(setting.spool, claims, setting.service.deliver)
    assert (report.left, report.failures) == (1, {"flights": "its claim was lost to another process"})

    async def read(_: object) -> Any:
        raise WrongKeyError("another key")

    setting.spool.read = read  # type: ignore[method-assign, assignment]
    report = await setting.empty()
    assert (report.left, report.failures, setting.service.delivered) == (1, {"flights": "another key"}, [])
