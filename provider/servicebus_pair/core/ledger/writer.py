"""Write the ledger: one JSON line for each accepted and each moved message (SPEC section 9).

A record is written to the operating system before the send that caused it returns, so it survives a crash of the
process. Bodies are never recorded. Each process and run writes its own file, below a folder
for the day and the run (``partitions``); Spark reads the folder. A line truncated
by a crash or a full disk is never joined to the next one, and readers skip it.

A failed write ends the send (or drain) with an ``ObserverError``, and its ``SendError`` says what was accepted and what
is unsent. A pair without space for its ledger therefore stops sending.

Line: ``{"v":1,"kind":"sent"|"syphoned"|"unspooled","id":...,"digest":null|...,"bytes":...,"entity":...,
"route":"primary"|"backlog"|"spooled","queue":null|...,"at":unix seconds,"run":...}``, and the name of the
``"spool"`` that a message went to or came from.

The last line closes the file with the number of its records: ``{"v":1,"kind":"closed","records":...,"run":...}``. A
file without it was left by a process that was killed, or still runs; one with fewer records was damaged afterwards.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from servicebus_pair.core.ledger.partitions import partition_path
from servicebus_pair.core.model.checks import no_secret
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.events import Event, MessagesAccepted, MessagesSyphoned, MessagesUnspooled, Route

LEDGER_VERSION: Final = 1
CLOSED: Final = "closed"
"""Kind of the line that closes a file."""
# What json.dumps uses for a str, without its overhead.
_quoted: Final = json.encoder.encode_basestring_ascii


class LedgerWriter(ABC):
    """Observer that writes the records of one process; a context manager.

    :param run: name of this run in the records, such as an Airflow run id.
    :raises ConfigurationError: it holds a secret.
    :ivar name: of the file, as a manifest names it.
    :ivar records: number of records so far.
    """

    name: str

    def __init__(self, *, run: str) -> None:
        no_secret("run", run, belongs="in a connection")
        self._run = run
        self.records = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def observe(self, event: Event) -> None:
        """Record accepted and moved messages; ignore other events."""
        match event:
            case MessagesAccepted():
                self._write("sent", event, event.route)
            case MessagesSyphoned():
                self._write("syphoned", event, Route.PRIMARY)
            case MessagesUnspooled():
                self._write("unspooled", event, event.route)

    @abstractmethod
    def flush(self) -> None:
        """Write all records."""

    @abstractmethod
    def close(self) -> None:
        """Write all records and the line that closes the file."""

    @abstractmethod
    def _append(self, kind: str, lines: Sequence[str]) -> None:
        """Add records of one kind."""

    def _closing_line(self) -> str:
        closing = {"v": LEDGER_VERSION, "kind": CLOSED, "records": self.records, "run": self._run}
        return f"{json.dumps(closing, separators=(',', ':'))}\n"

    def _write(self, kind: str, event: MessagesAccepted | MessagesSyphoned | MessagesUnspooled, route: Route) -> None:
        # Only id and size differ between the messages of a batch, so the rest is encoded once per batch.
        head = json.dumps({"v": LEDGER_VERSION, "kind": kind}, separators=(",", ":"))[:-1]
        rest: dict[str, object] = {
            "entity": event.entity,
            "route": route.value,
            "queue": event.queue,
            "at": round(event.at, 6),
            "run": self._run,
        }
        if not isinstance(event, MessagesSyphoned) and event.spool is not None:
            rest["spool"] = event.spool
        tail = json.dumps(rest, separators=(",", ":"))[1:]
        lines = [
            f'{head},"id":{_quoted(ref.message_id)},"digest":{_quoted(ref.digest) if ref.digest else "null"},'
            f'"bytes":{ref.size_bytes},{tail}\n'
            for ref in event.messages
        ]
        if lines:
            self._append(kind, lines)


class Ledger(LedgerWriter):
    """Writes the ledger of one process to a file in a folder; each record at once.

    :param folder: folder of the ledger's files; created if missing.
    :ivar path: the file.
    """

    def __init__(self, folder: str | os.PathLike[str], *, run: str) -> None:
        super().__init__(run=run)
        no_secret("folder", str(folder), belongs="in a connection")
        if "://" in str(folder):
            raise ConfigurationError("folder is a URL: it must be a folder; open_ledger takes both")
        directory = Path(folder) / partition_path(run, at=time.time())
        for each in (directory.parent, directory):
            if each.is_symlink():
                raise OSError(f"{each} is a link, which no reader of the ledger follows")
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{uuid.uuid4().hex}.jsonl"
        self.name = self.path.name
        # Unbuffered: one write call per batch, complete lines only.
        self._file = self.path.open("ab", buffering=0)
        self._truncated = False
        self._complete = True

    def flush(self) -> None:
        """Do nothing: each record is written at once."""

    def close(self) -> None:
        """Close the file with the number of its records, unless an acceptance could not be recorded."""
        if self._file.closed:
            return
        try:
            if self._complete:
                # Without this line the file counts as not closed, which is true of a full disk.
                with suppress(OSError):
                    self._write_all(self._closing_line().encode())
        finally:
            self._file.close()

    def _append(self, kind: str, lines: Sequence[str]) -> None:  # noqa: ARG002  all are written at once
        complete, self._complete = self._complete, False
        self._write_all("".join(lines).encode())
        self._complete = complete
        self.records += len(lines)

    def _write_all(self, records: bytes) -> None:
        """Write all records. :raises OSError: for example a full disk; a part may be written, with a truncated line."""
        # Start a new line after a truncated one, so that the next record stays readable.
        data = memoryview(b"\n" + records if self._truncated else records)
        while data:
            written = self._file.write(data)
            self._truncated = data[written - 1] not in b"\n"
            data = data[written:]
