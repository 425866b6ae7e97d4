"""Whoever may write to a folder of ledgers, spools or manifests stops no reader, and reaches no other file."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import struct
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from servicebus_pair.core import Ledger
from servicebus_pair.core.errors import ConfigurationError, SpoolError
from servicebus_pair.core.events import MessageRef, MessagesAccepted, Route
from servicebus_pair.core.ledger import PublishManifest, count_ledger, folded_twice, open_files
from servicebus_pair.core.ledger.partitions import partition_path
from servicebus_pair.core.ledger.reader import read_records
from servicebus_pair.core.model.interfaces import SystemClock
from servicebus_pair.core.model.regular_files import IrregularFileError
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, new_message
from servicebus_pair.core.spool import object_storage
from servicebus_pair.core.spool.claims import Claims
from servicebus_pair.core.spool.drain import empty_spool
from servicebus_pair.core.spool.folder_storage import FolderStorage
from servicebus_pair.core.spool.spool import Spool, SpooledBatch
from servicebus_pair.spark.analysis.evidence import read_manifests
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.folded_ledger import FOLDED_SCHEMA, check_readable, fold
from servicebus_pair.spark.base.redaction import Redaction
from servicebus_pair.spark.base.report_files import read_json, write_json
from servicebus_pair.spark.datasource.commit_messages import has_manifest, write_batch_manifest

Plant = Callable[[Path], object]

RECORD: dict[str, Any] = {"v": 1, "kind": "syphoned", "id": "m", "entity": "q", "route": "primary", "bytes": 9}
RECORD |= {"at": time.time(), "run": "r"}


def holding(content: bytes | str) -> Plant:
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def sparse(path: Path, size: int, end: bytes) -> None:
    with path.open("wb") as file:
        file.seek(size - len(end))
        file.write(end)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(path.parent)  # the address of a socket is short
        server.bind(path.name)
        os.chdir(before)


NO_FILES: dict[str, Plant] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "socket": listening,
    "folder": Path.mkdir,
}
NESTED = holding("[" * 60_000)
NO_RECORDS = NO_FILES | {
    "nested": NESTED,
    "long": holding(b"x" * (1 << 20)),
    "endless": endless,
    "blank": holding("\n" * 300_000),
    **{
        f"{name} {str(value)[:9]}": holding(json.dumps({**RECORD, name: value}))
        for name, value in [
            *(("bytes", value) for value in (10**17, 10**400, -1)),
            *(("at", value) for value in (10**400, 1e300, -1, float("nan"))),
            *((name, "x" * 5000) for name in ("id", "run")),
        ]
    },
}


@pytest.mark.parametrize("plant", NO_RECORDS.values(), ids=NO_RECORDS)
def test_what_is_planted_in_a_ledger_is_no_record(tmp_path: Path, plant: Plant):
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(MessagesAccepted("q", Route.PRIMARY, None, (MessageRef("m", 9),), time.time()))
    planted = ledger.path.with_name("0.jsonl")
    plant(planted)
    now = datetime.now(UTC) + timedelta(seconds=9)

    count = count_ledger(tmp_path, since=now - timedelta(days=1), until=now)

    assert (count.records, count.operations.total) == (1, 1)
    assert count.unreadable == (0 if planted.is_dir() else 1)
    waited_for = list(open_files(tmp_path, now=time.time(), silence=60))
    assert waited_for == ([planted] if planted.is_file() and not planted.is_symlink() else [])
    assert fold(str(tmp_path), str(ledger.path.parent.relative_to(tmp_path))) == (1, 1)
    assert os.path.lexists(planted)


@pytest.mark.parametrize(
    "line", [json.dumps({**RECORD, "id": "x" * 5000}), json.dumps({**RECORD, "run": "é" * 2049}), "{}"]
)
def test_what_no_writer_writes_is_not_folded_with_records(tmp_path: Path, line: str):
    """Readers would refuse all that is folded with it, or pass over it."""
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(MessagesAccepted("q", Route.PRIMARY, None, (MessageRef("m", 9),), time.time()))
    planted, closing = ledger.path.with_name("0.jsonl"), json.dumps({"kind": "closed", "records": 9})
    holding(f"{line}\n" * 9 + f"{closing}\n")(planted)

    assert fold(str(tmp_path), str(ledger.path.parent.relative_to(tmp_path))) == (1, 1)
    assert planted.exists()
    assert len([each for each in read_records(tmp_path) if each is not None]) == 1


@pytest.mark.parametrize("depth", [0, 1])
def test_no_ledger_is_written_where_a_link_leads(tmp_path: Path, depth: int):
    run = Path(partition_path("r", at=time.time()))
    link = tmp_path / "ledger" / (run.parent, run)[depth]
    link.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    link.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="is a link"):
        Ledger(tmp_path / "ledger", run="r")
    assert not list((tmp_path / "elsewhere").iterdir())


def parquet_of(**columns: Any) -> Plant:
    """What a program that knows the records writes, in a few bytes for terabytes of text."""
    record = {name: RECORD.get(name) for name in FOLDED_SCHEMA.columns} | columns
    values = [each if isinstance(each, pa.Array) else pa.array([each] * ROWS) for each in record.values()]
    table = pa.table(dict(zip(record, values, strict=True)))
    return lambda path: parquet.write_table(table, path, compression="zstd", store_schema=False)


ROWS = 20_000
REPEATED = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array(["x" * (8 << 20)]))
RANDOM = pa.array([os.urandom(4) for _ in range(ROWS)])  # so that there are no more records than bytes
NOT_UTF_8 = pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("<ii", 0, 1)), pa.py_buffer(b"\xff"))
PARQUET = {
    "records that are one": parquet_of(),
    "repeated": parquet_of(id=REPEATED),
    "repeated kind": parquet_of(kind=REPEATED, other=RANDOM),
    "repeated number": parquet_of(at=REPEATED, other=RANDOM),
    "not text": parquet_of(id=pa.concat_arrays([NOT_UTF_8] * ROWS), other=RANDOM),
    "nested": parquet_of(id=pa.array([["x"]] * ROWS)),
    "other types": parquet_of(bytes="9", at=True, v=2.5),
    "impossible": parquet_of(bytes=2**60),
    "large": parquet_of(id=pa.array(["x" * (1 << 28)] + [""] * (ROWS - 1))),
    "cut": holding(b"PAR1PAR1"),
    "metadata": lambda path: sparse(path, 2 << 30, (1 << 30).to_bytes(4, "little") + b"PAR1"),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("plant", PARQUET.values(), ids=PARQUET)
def test_parquet_that_compact_did_not_write_takes_little_memory(tmp_path: Path, plant: Plant):
    plant(tmp_path / "a.parquet")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with suppress(ConfigurationError):
        count = count_ledger(tmp_path, since=datetime(2020, 1, 1, tzinfo=UTC), until=datetime(2100, 1, 1, tzinfo=UTC))
        assert count.records == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KB


def close_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path).name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)


def circle(path: Path) -> None:
    """Two links make two to the power of forty paths."""
    for name in ("a", "b"):
        path.with_name(name).symlink_to(path.parent)


def deep(path: Path) -> None:
    path.parent.joinpath(*["d"] * 20).mkdir(parents=True)


def test_what_lies_too_deep_is_passed_over_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Readers would exceed the depth of their calls."""
    day = partition_path("r", at=time.time()).partition("/")[0]
    for depth in (16, 17, 18):
        caplog.clear()
        folder = tmp_path / str(depth)
        planted = folder.joinpath(day, *["d"] * (depth - 1))
        planted.mkdir(parents=True)
        (planted / "a.jsonl").write_text(json.dumps(RECORD))
        MANIFEST.write(planted / "0.json")

        assert len(list(read_records(folder))) == (depth == 16)
        assert ("it lies too deep" in caplog.text) == (depth > 16)
        with nullcontext() if depth == 16 else pytest.raises(ConfigurationError, match="of the runs none"):
            read_manifests(str(folder), run=None)
        assert len(list(open_files(folder, now=time.time(), silence=60))) == (depth <= 17)  # counted from the day


def test_a_folder_that_another_user_has_closed_is_passed_over_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "closed").mkdir()
    MANIFEST.write(tmp_path / "0.json")
    close_folder("closed", monkeypatch)

    assert read_manifests(str(tmp_path), run=None) == MANIFEST
    assert f"folder '{tmp_path / 'closed'}' is passed over: it cannot be read by this user" in caplog.text


FOR_SPARK = {
    **{name: PARQUET[name] for name in ("records that are one", "nested", "other types", "large", "cut", "metadata")},
    "circle": circle,
    "deep": deep,
    "colon": lambda path: path.with_name("a:b.jsonl").touch(),
    "endless": lambda path: endless(path.with_name("a.jsonl")),
    "link to Parquet": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("plant", FOR_SPARK.values(), ids=FOR_SPARK)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_spark_would_follow_or_believe_is_found_before(tmp_path: Path, plant: Plant, scheme: str):
    run = tmp_path / "day=1" / "run=r"
    run.mkdir(parents=True)
    check_readable(f"{scheme}{tmp_path}")
    plant(run / "a.parquet")

    for folders in ([""], ["day=0/run=r", "day=1/run=r"]):
        with pytest.raises(ConfigurationError, match=r"ledger .*(cannot be read|is damaged|delete it)"):
            check_readable(f"{scheme}{tmp_path}", folders)


@pytest.mark.parametrize(
    "listed",
    [
        '["../../victim.jsonl"]',
        '["../../../{name}.jsonl"]',
        '["{root}/victim.jsonl"]',
        '["victim"]',
        "5",
        "[[1]]",
        "{}",
        '["a\\u0000.jsonl"]',
        "[" * 100_000,
        *NO_FILES,
    ],
)
def test_a_planted_list_of_folded_files_deletes_nothing(tmp_path: Path, listed: str):
    folder = tmp_path / "day=1" / "run=r"
    folder.mkdir(parents=True)
    victims = [tmp_path.with_name(f"{tmp_path.name}.jsonl"), tmp_path / "victim.jsonl", folder / "victim"]
    for each in victims:
        each.write_text("precious")
    (folder / "a.parquet").touch()
    NO_FILES.get(listed, holding(listed.replace("{root}", str(tmp_path)).replace("{name}", tmp_path.name)))(
        folder / "a.folded"
    )

    for read in (lambda: fold(str(tmp_path), "day=1/run=r"), lambda: folded_twice(tmp_path)):
        if listed in NO_FILES:
            assert not read() or read() == (0, 0)
            continue
        with pytest.raises(ConfigurationError, match="is not a list of ledger files, as compact writes them"):
            read()
    assert [each.read_text() for each in victims] == ["precious"] * 3


READERS: dict[str, Callable[[str], Any]] = {
    "manifest": lambda path: read_manifests(path, run=None),
    "manifests": lambda path: read_manifests(str(Path(path).parent), run=None),
    "report": lambda path: read_json(path, what="report"),
    "settings": lambda path: PairReference.parse(f"file:{path}").resolve(Redaction()),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "nested", "endless", "infinite"])
def test_what_a_job_reads_is_a_file_of_limited_size(tmp_path: Path, kind: str, read: Callable[[str], Any]):
    infinite = '{"version": 1, "run": "r", "entities": {}, "bytes": 1e999, "seconds": 1}'
    plants = NO_FILES | {"nested": NESTED, "endless": endless, "infinite": holding(infinite)}
    path = tmp_path / "planted.json"
    plants[kind](path)

    if kind == "infinite" and read is READERS["report"]:
        assert read(str(path))["run"] == "r"
    else:
        with pytest.raises(ConfigurationError):
            read(str(path))


MANIFEST = PublishManifest("r", {}, 0, 0.0)
WRITERS: dict[str, Callable[[Path], object]] = {
    "manifest": lambda folder: MANIFEST.write(folder / "0.json"),
    "manifest of a batch": lambda folder: write_batch_manifest(
        str(folder.parent), MANIFEST, query_id=folder.name, batch_id=0
    ),
    "report": lambda folder: write_json(folder / "0.json", {}),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_planted_link_has_no_other_file_written(tmp_path: Path, write: Callable[[Path], object]):
    victim, folder = tmp_path / "victim", tmp_path / "query"
    victim.write_text("precious")
    folder.mkdir()
    for name in (f".0.json.{os.getpid()}", "0.json"):
        (folder / name).symlink_to(victim)

    write(folder)

    assert victim.read_text() == "precious"
    assert json.loads((folder / "0.json").read_text()) is not None


def test_the_manifest_of_a_batch_is_not_written_through_a_folder_that_is_a_link(tmp_path: Path):
    (tmp_path / "others").mkdir()
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "query").symlink_to(tmp_path / "others")

    with pytest.raises(OSError, match="is a link"):
        WRITERS["manifest of a batch"](tmp_path / "manifests" / "query")
    assert not list((tmp_path / "others").iterdir())


@pytest.mark.parametrize("planted", ["", "{}", "[" * 60_000, json.dumps({**MANIFEST.to_json(), "batch": 7}), *NO_FILES])
def test_what_is_no_manifest_of_a_batch_does_not_stand_for_messages_that_were_sent(tmp_path: Path, planted: str):
    def is_committed() -> bool:
        return has_manifest(str(tmp_path), query_id="query", batch_id=0)

    assert not is_committed()
    write_batch_manifest(str(tmp_path), MANIFEST, query_id="query", batch_id=0)
    assert is_committed()
    (tmp_path / "query" / "0.json").unlink()
    NO_FILES.get(planted, holding(planted))(tmp_path / "query" / "0.json")

    with pytest.raises(ConfigurationError, match="is not the manifest of batch 0"):
        is_committed()


def test_settings_may_be_a_link_as_kubernetes_mounts_secrets(tmp_path: Path):
    (tmp_path / "..data").write_text('{"primary_conn_id": "x"}')
    (tmp_path / "pair.json").symlink_to(tmp_path / "..data")

    with pytest.raises(ConfigurationError, match="primary_conn_id"):
        PairReference.parse(f"file:{tmp_path / 'pair.json'}").resolve(Redaction())


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
