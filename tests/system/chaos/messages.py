"""The messages of a chaos run: the id determines body and properties, so content can be verified without a copy."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from azure.servicebus import ServiceBusMessage

# The queue with duplicate detection, whose window covers the whole run.
DEDUPLICATED = "once"
ENTITIES = ("flights", "delays", DEDUPLICATED)
_MAX_BODY_BYTES = 2000
_SESSIONS = 7
_MAX_INT32 = 2**31  # the SDK encodes larger numbers as long


def make_message(message_id: str) -> ServiceBusMessage:
    checksum = zlib.crc32(message_id.encode())
    random = Random(checksum)  # noqa: S311 - content, not a secret
    number = checksum % _MAX_INT32
    return ServiceBusMessage(
        f"{message_id}:{random.getrandbits(64):x}:".encode() + random.randbytes(random.randint(0, _MAX_BODY_BYTES)),
        message_id=message_id,
        session_id=session_of(message_id),
        subject=f"subject {number}",
        application_properties={"number": number, "name": message_id},
    )


def session_of(message_id: str) -> str:
    return f"session {zlib.crc32(message_id.encode()) % _MAX_INT32 % _SESSIONS}"


def is_unchanged(received: ServiceBusMessage) -> bool:
    """Return whether body and properties are those that were sent, without additional properties."""
    sent = make_message(received.message_id or "")
    properties = {_text(key): _text(value) for key, value in (received.application_properties or {}).items()}
    return (b"".join(received.body), received.session_id, received.subject, properties) == (
        b"".join(sent.body),
        sent.session_id,
        sent.subject,
        sent.application_properties,
    )


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


class Journal:
    """The ids of the messages that one sender process knows to be accepted; written before it continues."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = (folder / f"{name}.jsonl").open("ab", buffering=0)

    def record(self, entity: str, message_ids: Iterable[str]) -> None:
        self._file.write(json.dumps([entity, *message_ids]).encode() + b"\n")


def read_journals(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield entity and id of every accepted message."""
    for path in folder.glob("*.jsonl"):
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                continue  # truncated: its sender was killed before it continued
            entity, *ids = json.loads(line)
            for message_id in ids:
                yield entity, message_id
