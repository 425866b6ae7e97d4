"""Ledger records survive the death of their process (SPEC section 9)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.ledger.reader import read_records
from servicebus_pair.core.ledger.writer import LEDGER_VERSION, Ledger, LedgerWriter
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.events import (
    DeadLettered,
    Event,
    MessageRef,
    MessagesAccepted,
    MessagesSyphoned,
    MessagesUnspooled,
    Pinged,
    QueuePulled,
    Route,
)

AT = 1_357_041_600.1234567
TWO = (MessageRef("m-1", 250), MessageRef("m-2", 300, "0f"))
DIVERTED = MessagesAccepted("flights", Route.BACKLOG, "contoso/x-servicebus-transfer/3", TWO, AT)

RECORD_AND_WAIT = """
import signal, sys
from servicebus_pair.core.model.events import MessageRef, MessagesAccepted, Route
from servicebus_pair.core.ledger.writer import Ledger

ledger = Ledger(sys.argv[1], run="killed")
for number in range(200):
    messages = tuple(MessageRef(f"m-{number}-{part}", 100) for part in range(100))
    ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, messages, 0.0))
    print(number, flush=True)
signal.pause()
"""


FILL_THE_DISK = """
import resource, signal, sys
from servicebus_pair.core.model.events import MessageRef, MessagesAccepted, Route
from servicebus_pair.core.ledger.writer import Ledger

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)


def send(name):
    refs = tuple(MessageRef(f"{name}-{part}", 100) for part in range(10))
    ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, refs, 0.0))


ledger = Ledger(sys.argv[1], run="full")
send("before")
resource.setrlimit(resource.RLIMIT_FSIZE, (ledger.path.stat().st_size + 180, most))
for name in ("full", "still full"):
    try:
        send(name)
    except OSError as error:
        print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
send("after")
"""


class CountedFile:
    """A file whose ``write`` takes at most some bytes, as the operating system may."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.pieces: list[bytes] = []

    def write(self, data: memoryview) -> int:
        self.pieces.append(bytes(data[: self.max_bytes]))
        return len(self.pieces[-1])

    def close(self) -> None:
        """Nothing to close."""


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]


def test_accepted_message_is_recorded_before_observe_returns(tmp_path: Path) -> None:
    with Ledger(tmp_path, run="run-7") as ledger:
        ledger.observe(DIVERTED)
        found = records(tmp_path)
    assert found == [
        {
            "v": LEDGER_VERSION,
            "kind": "sent",
            "id": name,
            "digest": digest,
            "bytes": size,
            "entity": "flights",
            "route": "backlog",
            "queue": "contoso/x-servicebus-transfer/3",
            "at": 1_357_041_600.123457,
            "run": "run-7",
        }
        for name, size, digest in (("m-1", 250, None), ("m-2", 300, "0f"))
    ]


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (MessagesAccepted("flights", Route.PRIMARY, None, TWO[:1], AT), ("sent", "primary", None)),
        (MessagesSyphoned("flights", "contoso/q", TWO[:1], AT), ("syphoned", "primary", "contoso/q")),
        (MessagesUnspooled("flights", Route.PRIMARY, None, TWO[:1], AT), ("unspooled", "primary", None)),
        (MessagesUnspooled("flights", Route.BACKLOG, "q", TWO[:1], AT), ("unspooled", "backlog", "q")),
    ],
)
def test_record_names_kind_route_and_backlog_queue(
    tmp_path: Path, event: Event, fields: tuple[str | None, ...]
) -> None:
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(event)
    [record, _] = records(tmp_path)
    assert (record["kind"], record["route"], record["queue"]) == fields


@pytest.mark.parametrize(
    "event",
    [
        DeadLettered("q", "m", "NoPath", AT),
        Pinged("flights", succeeded=True, seconds=0.1, error=None, at=AT),
        QueuePulled("q", "no connection", AT),
        MessagesAccepted("flights", Route.PRIMARY, None, (), AT),
    ],
    ids=lambda event: type(event).__name__,
)
def test_other_events_leave_no_record(tmp_path: Path, event: Event) -> None:
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(event)
        assert ledger.path.read_bytes() == b""


@pytest.mark.parametrize("max_write", [10**9, 7], ids=["at once", "partial writes"])
def test_batch_is_written_completely_in_whole_lines(tmp_path: Path, max_write: int) -> None:
    ledger = Ledger(tmp_path, run="r")
    ledger._file.close()
    file = CountedFile(max_write)
    ledger._file = file  # type: ignore[assignment]
    ledger.observe(DIVERTED)
    assert [json.loads(line)["id"] for line in b"".join(file.pieces).splitlines()] == ["m-1", "m-2"]
    assert b"".join(file.pieces).endswith(b"}\n")
    assert (len(file.pieces) == 1) is (max_write > 1000)


def test_any_text_stays_on_one_line(tmp_path: Path) -> None:
    odd = 'a\n"b"\u2028\ud800ä'
    with Ledger(tmp_path, run=odd) as ledger:
        ledger.observe(MessagesAccepted(odd, Route.PRIMARY, None, (MessageRef(odd, 1),), AT))
    assert ledger.path.read_bytes().count(b"\n") == 2
    [record, _] = records(tmp_path)
    assert (record["id"], record["entity"], record["run"]) == (odd, odd, odd)


def test_each_writer_has_its_own_file(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "ledger"
    with Ledger(folder, run="r") as one, Ledger(folder, run="r") as two:
        one.observe(DIVERTED)
        two.observe(DIVERTED)
    assert one.path != two.path
    assert len(records(folder)) == 2 * (2 + 1)


def test_file_is_closed_with_the_number_of_its_records(tmp_path: Path) -> None:
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(DIVERTED)
        ledger.observe(DIVERTED)
    ledger.close()
    *_, last = records(tmp_path)
    assert last == {"v": LEDGER_VERSION, "kind": "closed", "records": 4, "run": "r"}
    assert len(list(read_records(tmp_path))) == 4, "the closing line is no record"


def test_file_that_misses_an_acceptance_is_not_closed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, run="r")
    ledger.observe(DIVERTED)
    ledger._file.close()
    ledger._file = ledger.path.open("rb", buffering=0)
    with pytest.raises(OSError, match="not open for writing"):
        ledger.observe(DIVERTED)
    ledger._file.close()
    ledger._file = ledger.path.open("ab", buffering=0)
    ledger.close()
    assert [each["kind"] for each in records(tmp_path)] == ["sent", "sent"]


def test_closed_ledger_raises(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, run="r")
    ledger.close()
    with pytest.raises(ValueError, match="closed file"):
        ledger.observe(DIVERTED)


def test_records_survive_sigkill(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RECORD_AND_WAIT, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        confirmed = -1
        while confirmed < 20:
            confirmed = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        confirmed = max([confirmed, *(int(line) for line in process.stdout.read().splitlines())])
    assert process.returncode == -signal.SIGKILL
    # The kill may truncate the line that was being written, which was not confirmed yet.
    found = {record.message_id for record in read_records(tmp_path) if record is not None}
    assert {f"m-{number}-{part}" for number in range(confirmed + 1) for part in range(100)} <= found


def test_full_disk_raises_and_truncates_only_one_record(tmp_path: Path) -> None:
    confirmed = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(tmp_path)],
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert confirmed.stdout.splitlines() == [b"File too large"] * 2
    [ledger] = tmp_path.rglob("*.jsonl")
    complete, truncated = [], []
    for line in ledger.read_bytes().splitlines():
        try:
            complete.append(json.loads(line)["id"])
        except ValueError:
            truncated.append(line)
    assert [name for name in complete if not name.startswith("full")] == [
        f"{name}-{part}" for name in ("before", "after") for part in range(10)
    ]
    assert len(truncated) == 1
    assert truncated[0].startswith(b'{"v":1,"kind":"sent","id":"ful')


KEY = "SharedAccessKey=abcdefgh"


@pytest.mark.parametrize(("folder", "run"), [("a", KEY), (KEY, "a"), ("memory://x", "a")])
def test_a_secret_or_a_url_makes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, run: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        Ledger(folder, run=run)
    assert "abcdefgh" not in str(caught.value)
    assert [*tmp_path.iterdir()] == []


def test_each_kind_of_ledger_says_where_its_lines_go() -> None:
    assert LedgerWriter.__abstractmethods__ == {"flush", "close", "_append"}


@pytest.mark.parametrize("folder", [0, 1])
def test_a_ledger_is_not_written_through_a_link_that_its_readers_do_not_follow(tmp_path: Path, folder: int) -> None:
    with Ledger(tmp_path / "ledger", run="r") as before:
        linked = [before.path.parent.parent, before.path.parent][folder]
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=f"{linked.name} is a link, which no reader of the ledger follows"):
        Ledger(tmp_path / "ledger", run="r")
