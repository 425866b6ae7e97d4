"""Whoever may write to a spool holds up no message, and reaches no other file."""

from __future__ import annotations

import json
import os
import resource
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.errors import SpoolError
from servicebus_pair.core.model.interfaces import SystemClock
from servicebus_pair.core.model.regular_files import IrregularFileError
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, new_message
from servicebus_pair.core.spool import object_storage
from servicebus_pair.core.spool.claims import Claims
from servicebus_pair.core.spool.drain import empty_spool
from servicebus_pair.core.spool.folder_storage import FolderStorage
from servicebus_pair.core.spool.spool import Spool, SpooledBatch
from tests.security.planting import NESTED, Plant, close_folder, endless, holding, sparse


def spool_file(content: bytes = b"", **header: Any) -> Plant:
    """A file with one record, in front of all others."""
    about = {"format": "servicebus-pair spool 1", "entity": "flights", "created": 1.0, "messages": 1, **header}
    record = struct.pack(">II", len(content), zlib.crc32(content)) + content
    return lambda spool: holding(json.dumps(about).encode() + b"\n" + record)(
        spool / "messages" / "flights" / f"{1:020d}-aaaaaaaa-1.spool"
    )


def claim(make: Plant) -> Plant:
    def plant(spool: Path) -> None:
        (spool / "claims").mkdir()
        make(spool / "claims" / "flights")

    return plant


def name(make: Plant) -> Plant:
    def plant(spool: Path) -> None:
        (spool / "name").unlink()
        make(spool / "name")

    return plant


def zeros(spool: Path) -> None:
    """A file of 128 MB that takes nothing of the disk."""
    spool_file(messages=9)(spool)
    os.truncate(spool / "messages" / "flights" / f"{1:020d}-aaaaaaaa-1.spool", 128 << 20)


IN_A_SPOOL: dict[str, Plant] = {
    "a claim that is nested": claim(NESTED),
    "a claim of 400 digits": claim(holding(f'{{"owner": "x", "renewed": {10**400}}}')),
    "a claim that is a pipe": claim(os.mkfifo),
    "a time of 400 digits": spool_file(created=10**400),
    "infinitely many messages": spool_file(messages=float("inf")),
    "an entity of two lines": spool_file(entity="a\nERROR forged\x1b[2J"),
    "a key of two lines": spool_file(key="a\nERROR forged\x1b[2J"),
    "millions of records without content": zeros,
    "a record that is nested": spool_file(b"[" * 60_000),
    "more values than a message has": spool_file(b'{"body_type":"data","body":[' + b'"",' * 1_000_001 + b'""]}'),
    "a claim of many values": claim(holding(b"[" + b"[]," * 8_000_000)),
    "a name that is a pipe": name(os.mkfifo),
    "a name that is large": name(lambda path: sparse(path, 500 << 20, b"x")),
    "a file that is endless": lambda spool: endless(spool / "messages" / "flights" / f"{1:020d}-aaaaaaaa-1.spool"),
}


async def emptied(folder: Path, spool: Spool) -> tuple[list[str], dict[str, str]]:
    delivered: list[str] = []

    async def deliver(entity: str, messages: Sequence[AmqpMessage]) -> SendResult:
        delivered.extend(f"{entity} {b''.join(each.body).decode()}" for each in messages)
        return SendResult(primary=len(messages))

    claims = Claims(FolderStorage(str(folder)), clock=SystemClock(), owner="test")
    return delivered, dict((await empty_spool(spool, claims, deliver)).failures)


def spool_in(folder: Path) -> Spool:
    return Spool(FolderStorage(str(folder)), clock=SystemClock(), max_bytes=1 << 50)


@pytest.mark.parametrize("plant", IN_A_SPOOL.values(), ids=IN_A_SPOOL)
async def test_what_is_planted_in_a_spool_holds_up_no_message(tmp_path: Path, plant: Plant):
    await spool_in(tmp_path).write("flights", [new_message(b"a")])
    plant(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert await emptied(tmp_path, spool_in(tmp_path)) == (["flights a"], {})
    await spool_in(tmp_path).write("flights", [new_message(b"b")])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KB


async def test_a_damaged_file_is_set_aside_without_a_copy(tmp_path: Path):
    """A planted one may be large and take nothing of the disk, unlike its copy."""
    await spool_in(tmp_path).write("flights", [new_message(b"a")])
    [planted] = (tmp_path / "messages" / "flights").iterdir()
    planted.write_bytes(planted.read_bytes()[:-1])
    inode = planted.stat().st_ino

    await emptied(tmp_path, spool_in(tmp_path))

    assert [each.stat().st_ino for each in (tmp_path / "set-aside" / "flights").glob("*.spool")] == [inode]


async def test_damaged_files_are_set_aside_behind_what_is_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Thousands in front of a message would hold it up for minutes."""
    spool, steps = spool_in(tmp_path), list[str]()
    await spool.write("flights", [new_message(b"a")])
    for number, planted in enumerate((spool_file(b"[]"), holding(b"{}"))):
        planted(tmp_path if number == 0 else tmp_path / "messages" / "flights" / f"{2:020d}-aaaaaaaa-1.spool")
    for method in ("keep_only", "set_aside"):
        original = getattr(spool, method)

        async def recorded(
            batch: SpooledBatch, *args: Any, original: Any = original, method: str = method, **more: Any
        ) -> None:
            steps.append(method)
            await original(batch, *args, **more)

        monkeypatch.setattr(spool, method, recorded)

    assert await emptied(tmp_path, spool) == (["flights a"], {})
    assert steps == ["keep_only", "set_aside", "set_aside"]


@pytest.mark.parametrize(
    "name",
    [
        f"{10**20 - 1}-aaaaaaaa-1",
        "9" * 200 + "-aaaaaaaa-1",
        f"{1:020d}-aaaaaaaa-{10**30}",
        f"{1:020d}-{'a' * 220}-1",  # with a reason it could not be set aside
    ],
)
async def test_a_planted_name_changes_neither_order_nor_counts(tmp_path: Path, name: str):
    spool = spool_in(tmp_path)
    await spool.write("flights", [new_message(b"a")])
    (tmp_path / "messages" / "flights" / f"{name}.spool").write_bytes(b"x")
    await spool_in(tmp_path).write("flights", [new_message(b"b")])

    assert [each.messages for each in await spool.batches()] == [1, 1]
    assert await emptied(tmp_path, spool) == (["flights a", "flights b"], {})


@pytest.mark.parametrize("folder", ["messages", "messages/%66lights", "messages/FLIGHTS", "messages/flights/flights"])
async def test_a_file_that_no_entity_finds_does_not_count(tmp_path: Path, folder: str):
    await spool_in(tmp_path).write("flights", [new_message(b"a")])
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / f"{1:020d}-aaaaaaaa-1.spool").touch()

    assert {entity: each.messages for entity, each in (await spool_in(tmp_path).survey()).items()} == {"flights": 1}


@pytest.mark.parametrize("folder", ["messages", "messages/flights"])
async def test_nothing_is_accepted_into_a_folder_that_is_a_link(tmp_path: Path, folder: str):
    (tmp_path / "spool" / folder).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "spool" / folder).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SpoolError, match="is a link"):
        await spool_in(tmp_path / "spool").write("flights", [new_message(b"a")])
    assert not [each for each in (tmp_path / "elsewhere").rglob("*") if each.is_file()]


@pytest.mark.parametrize("folder", ["messages", "messages/flights"])
async def test_nothing_is_taken_from_another_spool_to_which_a_folder_leads(tmp_path: Path, folder: str):
    """Whoever may write to one spool would receive, and remove, what is in another that its syphon can read."""
    theirs, spool = spool_in(tmp_path / "theirs"), tmp_path / "spool"
    await theirs.write("flights", [new_message(b"secret")])
    (spool / folder).parent.mkdir(parents=True)
    (spool / folder).symlink_to(tmp_path / "theirs" / folder)

    for read in (lambda: emptied(spool, spool_in(spool)), lambda: spool_in(spool).batches("flights")):
        with suppress(SpoolError):
            assert not any(await read())
    assert await emptied(tmp_path / "theirs", theirs) == (["flights secret"], {})


async def test_a_folder_that_another_user_has_closed_holds_up_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await spool_in(tmp_path).write("flights", [new_message(b"a")])
    (tmp_path / "messages" / "gates").mkdir()
    close_folder("gates", monkeypatch)

    assert await emptied(tmp_path, spool_in(tmp_path)) == (["flights a"], {})


def test_an_object_that_no_spool_writes_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch):
    storage = object_storage.ObjectStorage("memory://planted")
    for size in (10, 11):
        storage.replace(str(size), b"x" * size)

    assert storage.read("10", 10) == b"x" * 10
    for size_before in (11, 10, None):  # it is replaced before it is read
        monkeypatch.setattr(storage._files, "size", lambda _, size=size_before: size)
        with pytest.raises(IrregularFileError, match="larger than 10 bytes"):
            storage.read("11", 10)
