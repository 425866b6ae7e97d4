"""The reconcile job reports losses by its exit status, and rejects invalid arguments (SPEC section 9)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.spark.jobs import reconcile as job
from tests.spark.conftest import Pair
from tests.spark.support.job_files import arguments, read_summary
from tests.spark.support.messages import receiver_of


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
async def test_lost_messages_set_exit_status_1(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    queue, empty = pair.fresh_queue(), pair.fresh_queue()
    for run, numbers in {"one": range(4), "two": range(2)}.items():
        with Ledger(tmp_path / "ledger" / run, run=run) as ledger:
            await send(pair, ledger, queue, numbers)
    with receiver_of(pair, queue) as receiver:
        for received in receiver.receive_messages(max_message_count=10, max_wait_time=2):
            settle = receiver.complete_message if received.message_id in ("m-2", "m-3") else receiver.abandon_message
            settle(received)

    assert run_job(pair, tmp_path, f"{queue},{empty}") == 1
    assert f"2 messages are lost, such as: {queue} m-2, {queue} m-3" in capsys.readouterr().err
    entities = read_summary(tmp_path / "proof")["entities"]
    found = entities[queue]
    assert (found["sent"], found["delivered"], found["lost"], found["duplicates_predicted"]) == (4, 2, 2, 2)
    assert entities[empty]["messages"] == 0
    assert "2 messages are lost" in (tmp_path / "proof" / "report.html").read_text()

    assert run_job(pair, tmp_path, queue, "--run", "two") == 0, "run two lost nothing; the output is replaced"
    totals = read_summary(tmp_path / "proof")["totals"]
    assert (totals["sent"], totals["lost"], totals["duplicates_predicted"]) == (2, 0, 2)


async def send(pair: Pair, ledger: Ledger, entity: str, numbers: Iterable[int]) -> None:
    read = pair.open()
    async with (
        type(read)(read.primary, read.secondary, read.options, observers=[ledger]) as opened,
        opened.sender(entity) as sender,
    ):
        await sender.send([ServiceBusMessage(b"x", message_id=f"m-{number}") for number in numbers])


def run_job(namespaces: Pair, folder: Path, entities: str, *more: str, **changes: str) -> int:
    options = {"pair": namespaces.reference, "ledger": str(folder / "ledger"), "output": str(folder / "proof")}
    options |= {"entities": entities} | changes
    return job.main([*arguments({f"--{name}": value for name, value in options.items()}), *more])


INVALID = {
    "ledger '/no/such/ledger' cannot be read": {"ledger": "/no/such/ledger"},
    "output is 'abfss://c@a/proof', which is a URL": {"output": "abfss://c@a/proof"},
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
    assert run_job(pair, tmp_path, **({"entities": "flights"} | INVALID[error])) == 2
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
