"""The reconcile job says what it judged by its exit status, and rejects invalid arguments (SPEC section 9)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from pyspark.sql import SparkSession

from servicebus_pair.core.ledger.manifest import EntityManifest, PublishManifest
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.model.events import MessageRef, MessagesAccepted, Route
from servicebus_pair.core.model.health_state import EntityHealth
from servicebus_pair.core.model.interfaces import SystemClock
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.protocol.amqp_message import body_digest, new_message
from servicebus_pair.core.spool.spool import open_spool
from servicebus_pair.spark.jobs import reconcile as job
from tests.spark.conftest import Pair
from tests.spark.support.job_files import arguments, read_summary
from tests.spark.support.messages import receiver_of
from tests.spark.support.messages import send as send_copies


@dataclass(frozen=True)
class Planted:
    """A queue that received a thousandth of the issue's messages, their ledger, and the traps that it sets."""

    pair: Pair
    folder: Path
    queue: str

    def reconcile(self, *more: str, **changes: str) -> tuple[int, dict[str, Any]]:
        """Return the job's exit status and its summary."""
        status = run_job(self.pair, self.folder, self.queue, *more, **changes)
        return status, read_summary(self.folder / "proof")

    def manifest(self, files: dict[str, int], count: int) -> str:
        of_queue = EntityManifest(count, 0, EntityHealth())
        file = self.folder / "publish.json"
        PublishManifest("monday", {self.queue: of_queue}, 10, 1.0, files).write(file)
        return str(file)

    @property
    def files(self) -> dict[str, int]:
        """Records by ledger file."""
        return {file.name: len(file.read_text().splitlines()) - 1 for file in (self.folder / "ledger").rglob("*.jsonl")}


@pytest.fixture
async def planted(spark: SparkSession, pair: Pair, tmp_path: Path) -> Planted:
    """Ten messages of the run monday, of which consumers took four."""
    del spark
    queue = pair.fresh_queue()
    for part in (range(5), range(5, 10)):
        with Ledger(tmp_path / "ledger", run="monday") as ledger:
            await send(pair, ledger, queue, part)
    with receiver_of(pair, queue) as receiver:
        for _ in range(4):
            (received,) = receiver.receive_messages(max_message_count=1, max_wait_time=20)
            receiver.complete_message(received)
    return Planted(pair, tmp_path, queue)


@pytest.mark.slow
def test_consumed_messages_are_no_loss_and_proven(planted: Planted, capsys: pytest.CaptureFixture[str]):
    status, summary = planted.reconcile("--run", "monday", "--manifest", planted.manifest(planted.files, 10))
    totals = summary["totals"]
    assert (status, summary["judgement"], summary["reasons"]) == (0, "proven", [])
    assert (totals["sent"], totals["delivered"], totals["consumed"], totals["lost"]) == (10, 6, 4, 0)
    assert "proven: reconciled 10 messages: 6 delivered" in capsys.readouterr().out
    assert "Nothing is lost." in (planted.folder / "proof" / "report.html").read_text()


@pytest.mark.slow
def test_what_was_not_examined_is_not_proven(planted: Planted, capsys: pytest.CaptureFixture[str]):
    folder, files = planted.folder / "ledger", planted.files

    status, _ = planted.reconcile("--run", "mondy")
    assert status == 3
    assert "the ledger has no records of run 'mondy' for these entities: did you mean 'monday'?" in error(capsys)

    status, _ = planted.reconcile(entities=planted.pair.fresh_queue())
    assert status == 3
    assert f"entity {planted.queue} was not examined, to which 10 recorded messages were sent" in error(capsys)

    first, second = sorted(folder.rglob("*.jsonl"))
    hidden = second.rename(folder / f".{second.name}")
    status, _ = planted.reconcile("--run", "monday", "--manifest", planted.manifest(files, 10))
    assert status == 3
    message = error(capsys)
    assert f"ledger file {second.name} is missing, with 5 records according to the manifest" in message
    assert f"the manifest counts 10 messages to {planted.queue}, the ledger has 5 records of them" in message
    hidden.rename(second)

    lines = first.read_text().splitlines(keepends=True)
    first.write_text("".join(lines[1:]))
    assert planted.reconcile()[0] == 3
    assert f"ledger file {first.name} holds 4 of the 5 records that it was closed with" in error(capsys)

    first.write_text("".join(lines[:-1]))
    assert planted.reconcile()[0] == 3
    assert f"ledger file {first.name} is not closed" in error(capsys)
    assert "no closed file records 5 of its messages" in planted_page(planted)

    (folder / "retry.jsonl").write_text("".join(lines))
    assert planted.reconcile()[0] == 0, "another attempt repeated its messages"


@pytest.mark.slow
def test_receipts_and_taps_say_what_consumers_received(
    planted: Planted, spark: SparkSession, capsys: pytest.CaptureFixture[str]
):
    taken = {f"m-{number}" for number in range(10)} - {found.key[1] for found in planted.pair.peek(planted.queue)}
    receipts = str(planted.folder / "received.parquet")
    some, *others = sorted(taken)
    spark.createDataFrame([(each,) for each in others], "messageId string").write.parquet(receipts)
    assert planted.reconcile("--receipts", receipts)[0] == 3
    assert "1 consumed or expired messages have no receipt" in error(capsys)

    spark.createDataFrame([(some,)], "messageId string").write.mode("append").parquet(receipts)
    assert planted.reconcile("--receipts", receipts)[0] == 0

    tap = planted.pair.fresh_queue()
    with_tap = ("--taps", f"{tap}={planted.queue}")
    assert planted.reconcile(*with_tap)[0] == 3
    send_copies(planted.pair, tap, *(ServiceBusMessage(b"x", message_id=each) for each in taken))
    assert planted.reconcile(*with_tap)[0] == 0


@pytest.mark.slow
async def test_lost_and_changed_messages_set_exit_status_1(planted: Planted, capsys: pytest.CaptureFixture[str]):
    queue = planted.pair.fresh_queue()
    with Ledger(planted.folder / "ledger", run="tuesday") as ledger:
        ledger.observe(MessagesAccepted(queue, Route.BACKLOG, "contoso/x-servicebus-transfer/0", (LOST,), 1.0))
        ledger.observe(MessagesAccepted(queue, Route.PRIMARY, None, (CHANGED,), 1.0))
        ledger.observe(MessagesAccepted(queue, Route.PRIMARY, None, (VALUE, SHARED), 1.0))
    with Ledger(planted.folder / "ledger", run="of somebody else") as ledger:
        body = b"of somebody else"
        digest = body_digest(new_message(body))
        ledger.observe(MessagesAccepted(queue, Route.PRIMARY, None, (replace(SHARED, digest=digest),), 1.0))
    send_copies(
        planted.pair,
        queue,
        ServiceBusMessage(b"changed", message_id=CHANGED.message_id),
        AmqpAnnotatedMessage(value_body="x", properties=AmqpMessageProperties(message_id=VALUE.message_id)),
        ServiceBusMessage(body, message_id=SHARED.message_id),
    )
    assert planted.reconcile("--run", "tuesday", entities=queue)[0] == 1
    reasons, _, examples = error(capsys).rpartition("; such as: ")
    assert reasons.endswith(
        "1 message is lost: diverted, in no backlog queue, and never moved; 3 messages are altered: a copy has another "
        "body, or another message its id"
    )
    assert {each.removeprefix(f"{queue} ") for each in examples.strip().split(", ")} == {
        *("gone", "changed", "value", "shared")
    }
    assert "1 message is lost." in planted_page(planted)
    assert planted.reconcile("--run", "of somebody else", entities=queue)[0] == 0


@pytest.mark.slow
async def test_what_waits_in_the_spool_of_another_machine_is_not_lost_but_not_proven(
    planted: Planted, capsys: pytest.CaptureFixture[str]
):
    queue = planted.pair.fresh_queue()
    # The folders of two machines at one path, each as itself: here, and there.
    here, there = (planted.folder / name for name in ("here", "there"))
    for folder in (here, there):
        spool = open_spool(PairOptions(spool=str(folder)), clock=SystemClock())
        assert spool is not None
        await spool.write(queue, [new_message("a", message_id=folder.name)])
        with Ledger(planted.folder / "ledger", run="tuesday") as ledger:
            refs = (MessageRef(folder.name, 100),)
            ledger.observe(MessagesAccepted(queue, Route.SPOOLED, None, refs, 1.0, await spool.name()))
    file = planted.folder / "pair.json"
    file.touch(mode=0o600)

    def reconcile(folder: Path) -> tuple[int, str]:
        file.write_text(json.dumps({**planted.pair.settings, "spool": str(folder)}))
        status, _ = planted.reconcile("--run", "tuesday", entities=queue, pair=f"file:{file}")
        return status, error(capsys)

    name = (there / "name").read_text().strip()
    unseen = f"1 message is in spool {name}, which cannot be seen from here: empty it where it is"
    assert reconcile(here) == (3, f"not proven: {unseen}; 1 message is in the spool: empty it first\n")
    shutil.rmtree(here / "messages")
    status, text = reconcile(here)
    assert (status, "1 message is lost" in text, unseen in text) == (1, True, True)


LOST, CHANGED, VALUE, SHARED = (MessageRef(each, 100, "0f") for each in ("gone", "changed", "value", "shared"))


def error(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.partition("reconcile: ")[2]


def planted_page(planted: Planted) -> str:
    return (planted.folder / "proof" / "report.html").read_text()


async def send(pair: Pair, ledger: Ledger, entity: str, numbers: Iterable[int]) -> None:
    read = pair.open()
    async with (
        type(read)(read.primary, read.secondary, read.options, observers=[ledger]) as opened,
        opened.sender(entity) as sender,
    ):
        await sender.send([ServiceBusMessage(b"x", message_id=f"m-{number}") for number in numbers])


def run_job(namespaces: Pair, folder: Path, queues: str = "flights", *more: str, **changes: str) -> int:
    options = {"pair": namespaces.reference, "ledger": str(folder / "ledger"), "output": str(folder / "proof")}
    options |= {"entities": queues} | changes
    return job.main([*arguments({f"--{name}": value for name, value in options.items()}), *more])


INVALID = {
    "ledger '/no/such/ledger' cannot be read": {"ledger": "/no/such/ledger"},
    "output is a URL of 'nosuchstore', which cannot be opened": {"output": "nosuchstore://a/proof"},
    "entity '' is invalid": {"entities": "flights,,delays"},
    "entity 'flights' is given twice": {"entities": "flights,FLIGHTS"},
    "allowed are env:NAME, file:PATH": {"pair": "Endpoint=sb://x"},
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("error", INVALID)
def test_invalid_argument_is_named_and_nothing_is_written(
    error: str, pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "ledger").mkdir()
    assert run_job(pair, tmp_path, **INVALID[error]) == 2
    assert error in capsys.readouterr().err
    assert not (tmp_path / "proof").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_unreadable_queue_prints_one_line_and_sets_exit_status_2(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "ledger").mkdir()
    queue = pair.fresh_queue(requires_session=True)
    assert run_job(pair, tmp_path, queue) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("reconcile: "))
    assert "RefusedError" in line
    assert queue in line
    assert line.endswith("nothing was classified")
    assert not (tmp_path / "proof" / "summary.json").exists()
