"""``drain``: the syphon at scale, a Spark task for each backlog queue, or for each slice of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.costs import Operations
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.lanes import most_lanes
from servicebus_pair.core.mover import PARKED_HANDS
from servicebus_pair.core.parcels import TimeToLive
from servicebus_pair.core.ports import Clock, SystemClock
from servicebus_pair.core.results import DrainReport
from servicebus_pair.spark.drain_task import RECEIPT, DrainReceipt, DrainTask, drain_slice
from servicebus_pair.spark.evidence import read_ledger
from servicebus_pair.spark.exclusive import check_no_speculation
from servicebus_pair.spark.looking import chosen_queues, look
from servicebus_pair.spark.mounts import shared
from servicebus_pair.spark.redaction import Redaction
from servicebus_pair.spark.references import PairReference

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Drained", "drain"]

_log = logging.getLogger(__name__)
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Drained:
    """What one drain did, all attempts of its tasks together.

    :param moved: messages that the primary confirmed, each once, by entity.
    :param dead_lettered: messages that can never be delivered, by reason; of attempts that came to their end.
    :param left: messages known to be still in the backlog, of those that were asked for.
    :param failures: last failure of each destination or queue that is not empty.
    :param repeated: messages that the ledger says were moved more than once: so many are duplicates for certain.
    :param duplicates_possible: the most that this drain can have duplicated, these among them.
    :param lost_attempts: attempts of tasks that ended by an error or with their executor.
    :param operations: what was metered, of attempts that came to their end.
    :param began: when it began, seconds since the Unix epoch.
    """

    run: str
    moved: Mapping[str, int]
    dead_lettered: Mapping[str, int]
    left: int
    failures: Mapping[str, str]
    repeated: int
    duplicates_possible: int
    tasks: int
    lost_attempts: int
    operations: Operations
    began: float
    seconds: float

    @property
    def empty(self) -> bool:
        """Nothing of what was asked for is known to be left."""
        return self.left == 0 and not self.failures

    def to_json(self) -> dict[str, Any]:
        """The form of the report that Airflow reads."""
        counts = {name: count for name, count in asdict(self.operations).items() if count}
        return {"version": _VERSION, "job": "drain", **asdict(self), "operations": counts}


def drain(
    spark: SparkSession,
    *,
    pair_reference: str,
    ledger: str,
    run: str,
    queues: Sequence[str] | None = None,
    entities: Sequence[str] | None = None,
    rate: float | None = None,
    time_to_live: TimeToLive = TimeToLive.RESTART,
    redrive: bool = False,
    tasks: int | None = None,
    clock: Clock | None = None,
) -> Drained:
    """Move what the backlog queues hold to their entities on the primary (SPEC section 6).

    Guarantee: at least once. A message leaves the backlog after the primary has confirmed it and the ledger has
    it. A task that is tried again, or a whole drain, goes on where it was; drains and syphons may run at once.

    :param pair_reference: where driver and executors find the pair's settings, such as ``env:NAME`` or ``file:PATH``.
    :param ledger: folder of the ledger, which driver and executors share.
    :param run: what this drain is called in the ledger.
    :param queues: paths of backlog queues; all of the pair's when not given.
    :param entities: move only what is meant for these.
    :param rate: messages per second over all tasks; ``None`` is as fast as it goes.
    :param redrive: move the dead letters of the backlog queues instead.
    :param tasks: how many tasks the queues are shared out to; each queue is a task of its own when not given, so that
        executors that are done with short queues take the next ones.
    :raises ConfigurationError: an argument is wrong, a right is missing or a namespace does not answer; no task was
        begun.
    :raises pyspark.errors.PySparkException: a task failed for good, with its message, free of secrets; what was moved
        stays moved.
    """
    timer = SystemClock() if clock is None else clock
    began, redaction = timer.now(), Redaction()
    _check(spark, rate=rate, tasks=tasks)
    reference = PairReference.parse(pair_reference)
    settings = reference.resolve(redaction)
    chosen = chosen_queues(settings, queues)
    folder = _folder(ledger)
    for entity, error in look(settings, chosen, redaction=redaction, entities=entities, sends=True).items():
        _log.warning("entity=%s does not answer now (%s): its messages may be left", entity, error)
    slices = _slices(chosen, len(chosen) if tasks is None else tasks)
    at_once = min(len(slices), spark.sparkContext.defaultParallelism)
    task = DrainTask(
        reference=reference,
        slices=slices,
        ledger=folder,
        run=run,
        entities=None if entities is None else tuple(entities),
        rate=None if rate is None else rate / at_once,
        time_to_live=time_to_live.value,
        redrive=redrive,
    )
    receipts = _run(spark, task)
    recorded = _recorded(spark, folder, run=run, since=began)
    result = _drained(
        task, receipts, recorded, batch=settings.options.syphon_batch_size, began=began, ended=timer.now()
    )
    _log.info(
        "drain run=%s moved=%d left=%d lost_attempts=%d duplicates_possible=%d seconds=%.1f",
        run,
        sum(result.moved.values()),
        result.left,
        result.lost_attempts,
        result.duplicates_possible,
        result.seconds,
    )
    return result


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What the ledger says of one entity: records of this drain, and messages among them."""

    records: int
    messages: int


def _check(spark: SparkSession, *, rate: float | None, tasks: int | None) -> None:
    if rate is not None and not 0 < rate < float("inf"):
        raise ConfigurationError(f"rate is {rate}: it must be more than 0 messages per second")
    if tasks is not None and tasks < 1:
        raise ConfigurationError(f"tasks is {tasks}: it must be at least 1")
    check_no_speculation(spark)


def _folder(ledger: str) -> str:
    """Make the ledger's folder, and answer its path from the root."""
    folder = shared(ledger, what="ledger")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"ledger {ledger!r} cannot be a folder: {error.strerror}") from None
    return folder


def _slices(queues: Sequence[str], tasks: int) -> tuple[tuple[str, ...], ...]:
    count = min(len(queues), tasks)
    return tuple(tuple(queues[number::count]) for number in range(count))


def _run(spark: SparkSession, task: DrainTask) -> list[DrainReceipt]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield RECEIPT.batch([{"receipt": drain_slice(task, number, attempt=attempt).to_json()}])

    count = len(task.slices)
    rows = spark.range(0, count, 1, count).mapInArrow(run, RECEIPT.ddl).collect()
    return [DrainReceipt.from_json(row["receipt"]) for row in rows]


def _recorded(spark: SparkSession, ledger: str, *, run: str, since: float) -> dict[str, _Recorded]:
    """What this drain's tasks have recorded, those of lost attempts too."""
    records = read_ledger(spark, ledger).where(
        (F.col("kind") == "syphoned") & (F.col("run") == run) & (F.col("at") >= since)
    )
    rows = records.groupBy("entity").agg(F.count("*").alias("records"), F.count_distinct("id").alias("messages"))
    return {row["entity"]: _Recorded(row["records"], row["messages"]) for row in rows.collect()}


def _drained(
    task: DrainTask,
    receipts: Sequence[DrainReceipt],
    recorded: Mapping[str, _Recorded],
    *,
    batch: int,
    began: float,
    ended: float,
) -> Drained:
    total = sum((receipt.report for receipt in receipts), DrainReport())
    lost = sum(receipt.attempt for receipt in receipts)
    moved = dict(total.moved) | {entity: each.messages for entity, each in recorded.items()}
    missing = {
        entity for entity, count in total.moved.items() if entity not in recorded or count > recorded[entity].records
    }
    if missing:
        _log.warning("the ledger %s lacks records of %s: executors must share it with the driver", task.ledger, missing)
    repeated = sum(each.records - each.messages for each in recorded.values())
    # An attempt that is lost has recorded what it moved, but for what was under way on each lane.
    under_way = lost * PARKED_HANDS * batch * most_lanes(max(1, len(moved)))
    return Drained(
        run=task.run,
        moved=dict(sorted(moved.items())),
        dead_lettered=total.dead_lettered,
        left=total.left,
        failures=total.failures,
        repeated=repeated,
        duplicates_possible=repeated + total.duplicates_possible + under_way,
        tasks=len(task.slices),
        lost_attempts=lost,
        operations=sum((receipt.operations for receipt in receipts), Operations()),
        began=round(began, 3),
        seconds=round(ended - began, 3),
    )
