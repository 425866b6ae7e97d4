"""The ledger (SPEC section 9): one JSON line per accepted and per syphoned message.

A record is handed to the operating system before the send that caused it returns, so it survives
the death of the process. Bodies are never recorded. One file per process and run, so that writers
never share one; Spark reads the folder. A line that was torn by the end of the process or of the
disk is never glued to another one: who reads leaves it out.

What cannot be written is never passed over: the send (or drain) ends with an ``ObserverError``, whose
``SendError`` says what was accepted all the same and what is unsent. So without room for its ledger
a pair does not go on sending.

Line: ``{"v":1,"kind":"sent"|"syphoned","id":...,"entity":...,"route":"primary"|"backlog",
"queue":null|...,"bytes":...,"at":unix seconds,"run":...}``
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from servicebus_pair.core.events import Event, MessagesAccepted, MessagesSyphoned, Route

__all__ = ["LEDGER_VERSION", "Ledger"]

LEDGER_VERSION: Final = 1
_END_OF_LINE: Final = ord("\n")
# What ``json.dumps`` ends up with for a text, without the way there.
_quoted: Final = json.encoder.encode_basestring_ascii


class Ledger:
    """An observer that writes the ledger of one process; a context manager.

    :param folder: directory of the ledger's files; it is made when missing.
    :param run: what this run is called in the records, such as an Airflow run id.
    """

    def __init__(self, folder: str | os.PathLike[str], *, run: str) -> None:
        self._run = run
        directory = Path(folder)
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{uuid.uuid4().hex}.jsonl"
        # Unbuffered: one write call per batch, complete lines only.
        self._file = self.path.open("ab", buffering=0)
        self._torn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def observe(self, event: Event) -> None:
        """Record accepted and syphoned messages; other events are not the ledger's."""
        match event:
            case MessagesAccepted():
                self._write("sent", event, event.route)
            case MessagesSyphoned():
                self._write("syphoned", event, Route.PRIMARY)

    def close(self) -> None:
        """Close the file; records written before stay."""
        self._file.close()

    def _write(self, kind: str, event: MessagesAccepted | MessagesSyphoned, route: Route) -> None:
        # All but id and size is the same for every message of the batch: encoded once, it costs next to nothing.
        head = json.dumps({"v": LEDGER_VERSION, "kind": kind}, separators=(",", ":"))[:-1]
        tail = json.dumps(
            {
                "entity": event.entity,
                "route": route.value,
                "queue": event.queue,
                "at": round(event.at, 6),
                "run": self._run,
            },
            separators=(",", ":"),
        )[1:]
        lines = [f'{head},"id":{_quoted(ref.message_id)},"bytes":{ref.size_bytes},{tail}\n' for ref in event.messages]
        self._append("".join(lines).encode())

    def _append(self, records: bytes) -> None:
        """Write all of it. :raises OSError: such as a full disk; then some of it may be there, and a torn line."""
        # A line that was torn stands alone: what comes after it must not be torn with it.
        data = memoryview(b"\n" + records if self._torn else records)
        while data:
            written = self._file.write(data)
            self._torn = data[written - 1] != _END_OF_LINE
            data = data[written:]
