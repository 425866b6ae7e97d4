"""The reader of a stream that consumes: claims messages by deferring them, and removes them once they have landed.

Spark writes the offset of a batch, which names the claimed messages, before it runs the batch, and asks for the next
offset only once the batch is in the log of commits. So what the start of the next batch names has landed: it is removed
then, before anything else is claimed. A batch that is repeated after a restart reads the same messages again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from servicebus_pair.core import SyncBridge
from servicebus_pair.spark.base.claims import (
    Claims,
    Ranges,
    claims_from_offset,
    claims_to_offset,
    count,
    distribute,
    merge_claims,
    numbers_of,
)
from servicebus_pair.spark.base.offsets import FIRST_SEQUENCE_NUMBER, MAIN, PeekTarget
from servicebus_pair.spark.base.redaction import Redaction, SparkTaskError, redact_errors
from servicebus_pair.spark.base.spark_version import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    check_stream_read,
)
from servicebus_pair.spark.connections.claim_client import ClaimClient, ClaimedNumbers
from servicebus_pair.spark.connections.peek_client import PeekClient, iterate
from servicebus_pair.spark.datasource.options import ReadOptions
from servicebus_pair.spark.datasource.read_schema import SCHEMA, to_record_batch

CLAIMED_MESSAGES: Final = 10_000
"""Messages of a batch by default: a batch is claimed as a whole before it is read."""
# Spark polls without a pause while there is nothing new, and each empty receive is billed.
_WAIT: Final = 1.0
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ClaimedMessages(InputPartition):
    """Claimed messages that one task reads, by queue or session."""

    parts: tuple[tuple[PeekTarget, Ranges], ...]


class ServiceBusReceiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader that receives.

    :param columns: of the rows.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str] = tuple(SCHEMA.columns)) -> None:
        check_stream_read()
        self._options = options
        self._columns = tuple(columns)
        self._targets = {target.address: target for target in options.targets}
        self._lazy_claimer: _Claimer | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return the offset of no messages."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return ``maxMessagesPerTrigger`` as a read limit."""
        limit = self._options.max_messages
        return ReadMaxRows(max(CLAIMED_MESSAGES, self._options.min_messages or 0) if limit is None else limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Remove the messages of the batch that ended at ``start``; claim those of the next.

        :raises SparkTaskError: without secrets.
        """
        landed = claims_from_offset(start)
        for key in landed:
            self._target(*key)  # nothing is removed from other queues
        claims = self._claimer().next_batch(
            landed, limit=limit.max_rows if isinstance(limit, ReadMaxRows) else CLAIMED_MESSAGES
        )
        return claims_to_offset(claims) if claims else start

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Record the current ends, where this query stops."""
        self._claimer().stop_at_current_ends()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """Return what the query's progress shows: messages behind, claimed and dead-lettered so far."""
        return None if self._lazy_claimer is None else self._lazy_claimer.progress()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002  Spark's
        """Return what each task reads, without connecting, so a batch can be read again."""
        return [
            ClaimedMessages(tuple((self._target(*key), ranges) for key, ranges in sorted(claims.items())))
            for claims in distribute(claims_from_offset(end), self._options.tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield claimed messages, page by page. :raises SparkTaskError: without secrets, or some are gone."""
        if not isinstance(partition, ClaimedMessages):
            raise TypeError(f"the partition is a {type(partition).__name__}: it must be ClaimedMessages")
        return _read(self._options, partition, self._columns)

    def stop(self) -> None:
        """Close the driver's connections. What has not landed stays claimed, and is read again after a restart."""
        if self._lazy_claimer is not None:
            self._lazy_claimer.close()

    def _target(self, address: str, session_id: str) -> PeekTarget:
        target = self._targets.get(address)
        if target is None:
            raise SparkTaskError(f"the checkpoint has claims of {address}, which option entity does not name")
        return PeekTarget(target.path, target.sub_queue, session_id or None)

    def _claimer(self) -> _Claimer:
        if self._lazy_claimer is None:
            self._lazy_claimer = _Claimer(self._options)
        return self._lazy_claimer


class _Claimer:
    """Claims and removes messages on the driver; its links stay open between batches."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._redaction = Redaction()
        with redact_errors(self._redaction):
            endpoint = options.access.resolve(self._redaction).primary
            self._client = ClaimClient(
                endpoint,
                options.targets,
                requires_session=options.requires_session,
                max_bytes=options.max_bytes,
            )
        self._resources = ExitStack()
        self._bridge = self._resources.enter_context(SyncBridge())
        self._resources.callback(lambda: self._bridge.run(self._client.close()))
        self._removed: Claims = {}
        self._is_searched = False
        self._claimed = 0
        self._last: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._stops_at: dict[str, int] | None = None
        self._is_drained = False
        self._batch_at = -inf

    def next_batch(self, landed: Claims, *, limit: int) -> Claims:
        """Remove what has landed and claim the next batch; empty if there is nothing."""
        if landed != self._removed:
            self._run(self._client.remove(landed))
            self._removed = landed
        if not self._is_searched:
            # What was claimed and is in no checkpoint is read first, in one batch: it is older than everything else.
            lost = merge_claims(self._run(self._client.deferred()))
            self._is_searched = True
            if lost:
                return self._counted(lost)
        if self._is_drained:
            return {}
        if self._waits_for_more():
            self._run(asyncio.sleep(_WAIT))
            return {}
        self._is_searched = False  # until the claim has succeeded
        claimed = self._run(self._client.claim(limit, wait=_WAIT))
        self._is_searched = not self._client.uncertain
        self._is_drained = self._stops_at is not None and (not claimed or self._has_reached_ends(claimed))
        return self._counted(merge_claims(claimed))

    def _waits_for_more(self) -> bool:
        minimum = self._options.min_messages
        if minimum is None or self._stops_at is not None or monotonic() - self._batch_at >= self._options.max_delay:
            return False
        return minimum > sum(
            self._run(self._client.waiting(address, max(FIRST_SEQUENCE_NUMBER, self._last.get(address, 0) + 1)))
            for address in {target.address for target in self._options.targets}
        )

    def stop_at_current_ends(self) -> None:
        """Claim nothing more once the current ends are reached; with sessions, once there is nothing left."""
        self._stops_at = {} if self._options.requires_session else self._current_ends()

    def progress(self) -> dict[str, Any]:
        """Return how many messages are behind (an upper bound, unknown with sessions), claimed and dead-lettered."""
        behind = {}
        if not self._options.requires_session:
            ends = self._current_ends()
            behind = {address: max(0, end - 1 - self._last.get(address, end - 1)) for address, end in ends.items()}
        return {"behind": behind, "claimed": self._claimed, "deadLettered": self._client.dead_lettered}

    def close(self) -> None:
        """Close the client and its thread."""
        self._resources.close()

    def _counted(self, claims: Claims) -> Claims:
        if claims:
            self._batch_at = monotonic()
        self._claimed += sum(map(count, claims.values()))
        for (address, _), ranges in claims.items():
            self._last[address] = max(self._last.get(address, 0), ranges[-1][1])
        return claims

    def _has_reached_ends(self, claimed: ClaimedNumbers) -> bool:
        last = dict(self._last)
        for (address, _), numbers in claimed.items():
            last[address] = max(last.get(address, 0), *numbers)
        ends = self._stops_at or {}
        return bool(ends) and all(last.get(address, 0) >= end - 1 for address, end in ends.items())

    def _current_ends(self) -> dict[str, int]:
        for target in self._options.targets:
            first = max(FIRST_SEQUENCE_NUMBER, self._ends.get(target.address, 0), self._last.get(target.address, 0))
            self._ends[target.address] = self._run(self._client.end(target.address, first))
        return dict(self._ends)

    def _run(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        with redact_errors(self._redaction):
            return self._bridge.run(call)


def _read(options: ReadOptions, partition: ClaimedMessages, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    redaction = Redaction()
    with redact_errors(redaction):
        endpoint = options.access.resolve(redaction).primary
        with PeekClient.kept((options.access.reference, options.secondary), endpoint) as (bridge, client):
            for target, ranges in partition.parts:
                cursor = client.cursor(target)
                missing = set(numbers_of(ranges))
                for page in iterate(bridge, cursor.claimed_pages(ranges)):
                    missing.difference_update(message.sequence_number for message in page)
                    yield to_record_batch(page, namespace=client.namespace, target=target, columns=columns)
                bridge.run(client.leave(cursor))
                if missing and target.sub_queue == MAIN:
                    # A handler rejected it before the batch was repeated, or it expired there: it is not lost.
                    missing -= bridge.run(client.dead_letters(target.path, missing))
                if missing and options.fail_on_data_loss:
                    raise SparkTaskError(_gone(target, missing))


def _gone(target: PeekTarget, missing: set[int]) -> str:
    return (
        f"{len(missing)} claimed messages of {target.offset_key} are gone, such as {min(missing)}: they expired, or "
        "another receiver took them by sequence number; failOnDataLoss=false goes on without them"
    )
