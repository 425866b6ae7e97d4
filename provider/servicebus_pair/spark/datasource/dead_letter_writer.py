"""The writer with ``action=deadLetter``: moves messages that a stream has claimed to their dead-letter queues.

A handler in ``foreachBatch`` writes the rows that it rejects. A message that another attempt has moved already is not
moved again, so tasks and batches may be repeated.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import IntegralType, StringType

from servicebus_pair.core import Endpoint, SyncBridge
from servicebus_pair.core.errors import ConfigurationError, LockLostError
from servicebus_pair.core.model import get_logger
from servicebus_pair.core.sdk import ReceivedMessage, ReceiveLink
from servicebus_pair.spark.base.offsets import MAIN, PeekTarget
from servicebus_pair.spark.base.redaction import Redaction, SparkTaskError, redact_errors
from servicebus_pair.spark.connections.claim_client import ClaimClient
from servicebus_pair.spark.connections.peek_client import LOCK_WAIT, PeekClient
from servicebus_pair.spark.datasource.option_table import Direction, parse_options
from servicebus_pair.spark.datasource.options import PairAccess

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = get_logger(__name__)
_PAGE_SIZE: Final = 100
_CALL_SECONDS: Final = 30.0
_RETRY_DELAY: Final = 1.0
# The service's limit for the properties that hold a reason and a description.
_MAX_TEXT: Final = 4096
_ALLOWED_OPTIONS: Final = frozenset(
    {"credential", "primaryNamespace", "secondaryNamespace", "entity", "action", "requiresSession"}
)
_COLUMNS: Final = {
    "entity": StringType,
    "sequenceNumber": IntegralType,
    "sessionId": StringType,
    "subQueue": StringType,
    "deadLetterReason": StringType,
    "deadLetterErrorDescription": StringType,
}

_Verdicts: TypeAlias = dict[int, tuple[str, str]]
"""Reason and description by sequence number."""


@dataclass(frozen=True, slots=True)
class DeadLetterOptions:
    """The options of such a write.

    :param entity: queue or subscription of rows without an ``entity`` value.
    :param requires_session: it requires sessions.
    """

    access: PairAccess
    entity: str | None
    requires_session: bool

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DeadLetterOptions:
        """Parse options and check columns. :raises ConfigurationError: one of them is not allowed."""
        values = parse_options(options, direction=Direction.WRITE)
        for name in values:
            if name not in _ALLOWED_OPTIONS:
                raise ConfigurationError(f"option {name} is given: it is for sending; remove it, or action=deadLetter")
        entities = values.get("entity", (None,))
        parsed = cls(PairAccess.from_values(values), entities[0], values.get("requiresSession", False))
        if overwrite or len(entities) > 1:
            raise ConfigurationError("with action=deadLetter allowed are the mode append, and one entity or the column")
        required = {"sequenceNumber": True, "entity": parsed.entity is None, "sessionId": parsed.requires_session}
        for name, kind in _COLUMNS.items():
            if required.get(name, False) and name not in schema.names:
                raise ConfigurationError(f"column {name} is missing: write rows of the stream, which have it")
            if name in schema.names and not isinstance(schema[name].dataType, kind):
                found = schema[name].dataType.simpleString()
                raise ConfigurationError(f"column {name} is {found}: allowed is the type that a read gives it")
        return parsed


@dataclass(frozen=True, slots=True)
class _Moved(WriterCommitMessage):
    """What a task did.

    :param failure: what no other attempt could mend; the driver fails the write with it.
    """

    messages: int
    failure: str | None = None


class DeadLetterWriter(DataSourceArrowWriter):
    """Batch writer; when the write returns, each message is in the dead-letter queue of its entity."""

    def __init__(self, options: DeadLetterOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Move the messages of one partition. :raises SparkTaskError: what stopped it, without secrets."""
        redaction, moved = Redaction(), 0
        with redact_errors(redaction):
            verdicts = _read_verdicts(iterator, self._options)
            endpoint = self._options.access.resolve(redaction).primary
            try:
                with SyncBridge() as bridge:
                    moved = bridge.run(_move(endpoint, verdicts, requires_session=self._options.requires_session))
            except _NotClaimedError as error:
                return _Moved(0, str(error))
        return _Moved(moved)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the total. :raises SparkTaskError: a row names no claimed message; others are moved nevertheless."""
        own = [message for message in messages if isinstance(message, _Moved)]
        for message in own:
            if message.failure is not None:
                raise SparkTaskError(message.failure)
        _log.info("%d messages were dead-lettered", sum(message.messages for message in own))


class _NotClaimedError(Exception):
    """A message is neither claimed nor dead-lettered, which another attempt would not change."""


def _read_verdicts(
    batches: Iterator[pa.RecordBatch], options: DeadLetterOptions
) -> Mapping[tuple[str, str], _Verdicts]:
    """Return what to move, by queue and session."""
    verdicts: defaultdict[tuple[str, str], _Verdicts] = defaultdict(dict)
    for batch in batches:
        wanted = [name for name in batch.schema.names if name in _COLUMNS]
        for row in batch.select(wanted).to_pylist():
            entity, number = row.get("entity") or options.entity, row["sequenceNumber"]
            if entity is None or number is None or row.get("subQueue") not in {None, MAIN}:
                raise SparkTaskError(f"a row names no message of a main queue: {_identity(row)}")
            session_id = str(row["sessionId"]) if options.requires_session else ""
            texts = (row.get("deadLetterReason") or "Rejected", row.get("deadLetterErrorDescription") or "")
            verdicts[entity, session_id][number] = (texts[0][:_MAX_TEXT], texts[1][:_MAX_TEXT])
    return verdicts


def _identity(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={row.get(name)!r}" for name in ("entity", "subQueue", "sequenceNumber"))


async def _move(endpoint: Endpoint, verdicts: Mapping[tuple[str, str], _Verdicts], *, requires_session: bool) -> int:
    targets = [PeekTarget(entity) for entity in dict.fromkeys(entity for entity, _ in verdicts)]
    claims = ClaimClient(endpoint, targets, requires_session=requires_session)
    peeks = PeekClient(endpoint)
    try:
        moved = 0
        for (entity, session_id), each in verdicts.items():
            async with claims.link(entity, session_id) as link:
                moved += await _Mover(claims, peeks, entity, link).move(each)
        return moved
    finally:
        await peeks.close()
        await claims.close()


class _Mover:
    """Moves messages of one queue or session."""

    def __init__(self, claims: ClaimClient, peeks: PeekClient, entity: str, link: ReceiveLink) -> None:
        self._claims = claims
        self._peeks = peeks
        self._entity = entity
        self._link = link

    async def move(self, verdicts: _Verdicts) -> int:
        """Return how many were moved now."""
        numbers, moved = sorted(verdicts), 0
        for first in range(0, len(numbers), _PAGE_SIZE):
            locked = await self._lock(numbers[first : first + _PAGE_SIZE])
            results = await asyncio.gather(
                *(self._dead_letter(message, *verdicts[message.sequence_number]) for message in locked)
            )
            moved += len(results)
        return moved

    async def _dead_letter(self, message: ReceivedMessage, reason: str, description: str) -> None:
        error = await self._link.dead_letter(message, reason=reason, description=description, timeout=_CALL_SECONDS)
        if error is not None:
            raise error

    async def _lock(self, numbers: Sequence[int]) -> list[ReceivedMessage]:
        """Lock claimed messages, without those that were dead-lettered already."""
        locked = await self._link.receive_deferred(numbers, timeout=_CALL_SECONDS)
        if locked is not None:
            return locked
        deferred = await self._claims.still_deferred(self._link, numbers)
        gone = set(numbers).difference(deferred)
        unknown = gone.difference(await self._peeks.dead_letters(self._entity, gone))
        if unknown:
            raise _NotClaimedError(
                f"{len(unknown)} messages of {self._entity} are not claimed by a stream that receives, such as "
                f"{min(unknown)}: write rows of a stream with mode=receive, in foreachBatch"
            )
        return [await self._lock_one(number) for number in deferred]

    async def _lock_one(self, number: int) -> ReceivedMessage:
        """Lock a claimed message, which a task that was killed may have left locked."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + LOCK_WAIT
        while (locked := await self._link.receive_deferred([number], timeout=_CALL_SECONDS)) is None:
            if clock() >= deadline:
                raise LockLostError(f"message {number} of {self._entity} is locked by another receiver")
            await asyncio.sleep(_RETRY_DELAY)
        return locked[0]
