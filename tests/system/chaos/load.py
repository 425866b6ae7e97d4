"""What is sent under chaos: every message can be checked by its id alone."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage

__all__ = ["DETECTING", "ENTITIES", "Journal", "is_as_sent", "message", "recorded"]

# The last one has duplicate detection, over the whole run.
DETECTING = "once"
ENTITIES = ("flights", "delays", DETECTING)
_LONGEST_BODY = 2000
# What the SDK sends as an int.
_LARGEST_NUMBER = 2**31


def body_of(name: str) -> bytes:
    """The body that the message of this id was sent with."""
    random = Random(zlib.crc32(name.encode()))  # noqa: S311 - content, no secret
    return f"{name}:{random.getrandbits(64):x}:".encode() + random.randbytes(random.randint(0, _LONGEST_BODY))


def message(name: str) -> ServiceBusMessage:
    number = zlib.crc32(name.encode()) % _LARGEST_NUMBER
    return ServiceBusMessage(
        body_of(name),
        message_id=name,
        session_id=f"session {number % 7}",
        subject=f"subject {number}",
        application_properties={"number": number, "name": name},
    )


def is_as_sent(received: ServiceBusReceivedMessage) -> bool:
    """Answer whether a message is the one that was sent under its id: body and properties, and nothing beside them."""
    sent = message(received.message_id or "")
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
    """The ids that were accepted, as their sender learned it: one file per process, written before it goes on."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = (folder / f"{name}.jsonl").open("ab", buffering=0)

    def accepted(self, entity: str, ids: Iterable[str]) -> None:
        self._file.write(json.dumps([entity, *ids]).encode() + b"\n")


def recorded(folder: Path) -> Iterator[tuple[str, str]]:
    """Entity and id of every accepted message."""
    for path in folder.glob("*.jsonl"):
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                continue  # its writer was killed in the middle, and so before it relied on it
            entity, *ids = json.loads(line)
            for name in ids:
                yield entity, name
