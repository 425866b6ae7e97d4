"""Operations counted from a ledger (SPEC section 9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from servicebus_pair.core.ledger.usage import count_ledger
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.events import MessageRef, MessagesAccepted, MessagesSyphoned, MessagesUnspooled, Route
from servicebus_pair.core.model.pricing import Operations

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def test_records_are_counted_as_operations(tmp_path: Path) -> None:
    small, large = MessageRef("a", 65_536), MessageRef("b", 65_537)
    at = NOON.timestamp()
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(MessagesAccepted("flights", Route.SPOOLED, None, (large,), at, "s"))
        ledger.observe(MessagesUnspooled("flights", Route.PRIMARY, None, (small,), at, "s"))
        ledger.observe(MessagesUnspooled("flights", Route.BACKLOG, "queue", (small,), at, "s"))
        ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, (small, large), at))
        ledger.observe(MessagesAccepted("flights", Route.BACKLOG, "queue", (large,), at + 1))
        ledger.observe(MessagesSyphoned("flights", "queue", (large,), at + 59))
        ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, (small,), at - 1))
        ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, (small,), at + 60))
        ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, (small,), at + 61))
    ledger.path.write_bytes(ledger.path.read_bytes() + b'{"v":1,"kind":"sen')
    counted = count_ledger(tmp_path, since=NOON, until=NOON + timedelta(minutes=1))
    assert counted.operations == Operations(sends=4, diverts=2, receives=1, settlements=1, further_increments=4)
    assert (counted.records, counted.unreadable) == (7, 1)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing' is not a folder"):
        count_ledger(tmp_path / "missing", since=NOON, until=NOON)
