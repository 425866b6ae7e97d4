"""The reconcile job finds what was planted, as the pure rules judge it (SPEC section 9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import SparkSession

from servicebus_pair.core.ledger import Ledger
from servicebus_pair.spark.jobs import reconcile as job
from tests.spark.conftest import Pair

TOPIC, SUBSCRIPTION = "delays", "delays/Subscriptions/all"


@pytest.mark.slow
async def test_planted_losses_duplicates_and_strays_are_found(
    spark: SparkSession, pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    queue = pair.fresh_queue()
    with Ledger(tmp_path / "ledger", run="one") as ledger:
        await send(pair, ledger, queue, *range(40))
        await send(pair, ledger, TOPIC, *range(10))
        await send(pair, ledger, queue, 38, 39, diverted=True)
        await send(pair, ledger, queue, 40, 41, 42, diverted=True)
    with Ledger(tmp_path / "ledger" / "again", run="two") as ledger:
        await send(pair, ledger, queue, 0, 1)
    with (tmp_path / "ledger" / "killed.jsonl").open("w") as torn:
        torn.write('{"v":1,"kind":"sent","id":"m-0","ent')
    with ServiceBusClient.from_connection_string(pair.primary.connection_string) as client:
        take(client, queue, dead_letter={"m-5"}, consume={"m-2", "m-3"})
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([message(7), message(7), message(99)])

    status = job.main(arguments(pair, tmp_path, f"{queue},{SUBSCRIPTION}={TOPIC},briefings"))

    assert status == 1
    printed = capsys.readouterr()
    assert f"2 messages are lost, such as: {queue} m-2, {queue} m-3" in printed.err
    summary = json.loads((tmp_path / "proof" / "summary.json").read_text())
    found = summary["entities"][queue]
    counts = {name: found[name] for name in ("sent", "delivered", "waiting", "dead_lettered", "lost", "unrecorded")}
    assert counts == {"sent": 43, "delivered": 37, "waiting": 3, "dead_lettered": 1, "lost": 2, "unrecorded": 1}
    assert (found["primary"], found["diverted"]) == (40, 3)
    assert (found["duplicates"], found["duplicates_predicted"]) == (6, 4)
    assert summary["entities"][TOPIC]["delivered"] == 10
    assert summary["entities"]["briefings"]["messages"] == 0
    assert summary["ledger"]["torn"] == 1
    assert summary["totals"]["lost"] == 2
    table = spark.read.parquet(str(tmp_path / "proof" / "verdicts"))
    verdicts = {row["message_id"]: row["outcome"] for row in table.where(table.entity == queue).collect()}
    assert len(verdicts) == 44
    assert {message for message, outcome in verdicts.items() if outcome == "lost"} == {"m-2", "m-3"}
    page = (tmp_path / "proof" / "report.html").read_text()
    assert "2 messages are lost" in page
    assert "<polygon" in page

    assert job.main(arguments(pair, tmp_path, queue, "--run", "two")) == 0, "run two lost nothing; the job writes anew"
    again = json.loads((tmp_path / "proof" / "summary.json").read_text())
    assert (again["totals"]["sent"], again["totals"]["lost"], again["totals"]["duplicates_predicted"]) == (2, 0, 2)
    assert again["unexamined"][TOPIC] > 0


def message(number: int) -> ServiceBusMessage:
    return ServiceBusMessage(b"x", message_id=f"m-{number}")


async def send(pair: Pair, ledger: Ledger, entity: str, *numbers: int, diverted: bool = False) -> None:
    read = pair.open()
    async with type(read)(read.primary, read.secondary, read.options, observers=[ledger]) as opened:
        if diverted:
            opened.fail_over(entity, reason="planted")
        async with opened.sender(entity) as sender:
            await sender.send([message(number) for number in numbers])


def take(client: ServiceBusClient, queue: str, *, dead_letter: set[str], consume: set[str]) -> None:
    """Receive until the named messages are dead-lettered and consumed; what else comes is put back."""
    with client.get_queue_receiver(queue, prefetch_count=0) as receiver:
        for received in receiver.receive_messages(max_message_count=100, max_wait_time=2):
            if received.message_id in consume:
                receiver.complete_message(received)
            elif received.message_id in dead_letter:
                receiver.dead_letter_message(received, reason="planted")
            else:
                receiver.abandon_message(received)


def arguments(pair: Pair, home: Path, entities: str, *more: str) -> list[str]:
    given = {
        "--pair": pair.reference,
        "--ledger": str(home / "ledger"),
        "--entities": entities,
        "--output": str(home / "proof"),
    }
    return [*(word for option in given.items() for word in option), *more]


WRONG = {
    "ledger '/no/such/ledger' cannot be read": ("--ledger", "/no/such/ledger"),
    "output is 'abfss://c@a/proof', which is a URL": ("--output", "abfss://c@a/proof"),
    "entity '' is not a place": ("--entities", "flights,,delays"),
    "entity 'flights' is given twice": ("--entities", "flights,FLIGHTS"),
    "allowed are env:NAME, file:PATH": ("--pair", "Endpoint=sb://x"),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("says", WRONG)
def test_a_wrong_argument_is_named_and_nothing_is_written(
    says: str, pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "ledger").mkdir()
    name, value = WRONG[says]
    given = arguments(pair, tmp_path, "flights")
    given[given.index(name) + 1] = value
    assert job.main(given) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "proof").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_queue_that_cannot_be_read_is_named_in_one_line_and_nothing_is_judged(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "ledger").mkdir()
    queue = pair.fresh_queue(requires_session=True)
    assert job.main(arguments(pair, tmp_path, queue)) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("reconcile: "))
    assert "RefusedError" in line
    assert queue in line
    assert line.endswith("nothing was judged")
    assert not (tmp_path / "proof" / "summary.json").exists()
