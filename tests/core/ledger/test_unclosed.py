"""A proof waits for the writers of the ledger (SPEC section 9: a file that is not closed proves nothing)."""

from __future__ import annotations

import time
from pathlib import Path

from servicebus_pair.core.ledger.unclosed import open_files
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.model.events import MessageRef, MessagesSyphoned


def test_a_file_is_open_until_its_writer_closes_it_or_falls_silent(tmp_path: Path) -> None:
    def found(*, later: float = 0.0) -> list[Path]:
        return list(open_files(tmp_path, now=time.time() + later, silence=60.0))

    assert found() == []
    with Ledger(tmp_path, run="done") as closed, Ledger(tmp_path, run="running") as running:
        assert len(found()) == 2, "a writer that has sent nothing yet is one"
        event = MessagesSyphoned("flights", "q", (MessageRef("m", 1),), time.time())
        for ledger in (closed, running):
            ledger.observe(event)
        closed.close()
        assert found() == [running.path]
        assert found(later=61) == [], "its process was killed"
    assert found() == []
