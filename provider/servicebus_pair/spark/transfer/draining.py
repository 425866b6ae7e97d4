"""``drain``: runs the syphon as a Spark job, whose tasks share the backlog queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core import DrainReport, Operations, TimeToLive
from servicebus_pair.core.ledger import check_ledger
from servicebus_pair.core.model import SystemClock, get_logger
from servicebus_pair.spark.analysis.observations import read_run
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.preflight import check_access, check_job, select_queues
from servicebus_pair.spark.base.redaction import Redaction
from servicebus_pair.spark.base.shared_paths import shared_location
from servicebus_pair.spark.transfer.drain_task import REPORT_SCHEMA, DrainPlan, DrainTaskReport, run_drain_task

_log = get_logger(__name__)
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What one drain did, over all attempts of its tasks.

    :param moved: number of messages that the primary confirmed, each counted once, by entity.
    :param dead_lettered: messages that can never be delivered, by reason; of successful attempts.
    :param left: selected messages that are known to remain in the backlog.
    :param failures: last failure of each destination or queue that is not empty.
    :param repeated: messages that were moved more than once according to the ledger, so certainly duplicated.
    :param duplicates_possible: upper bound of duplicates caused by this drain, including ``repeated``.
    :param lost_attempts: task attempts that failed or lost their executor.
    :param operations: metered operations of successful attempts.
    :param began: seconds since the Unix epoch.
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
        """Whether no selected message is known to remain."""
        return self.left == 0 and not self.failures

    def to_json(self) -> dict[str, Any]:
        """Return the JSON report that Airflow reads."""
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
) -> DrainResult:
    """Move what the backlog queues hold to their entities on the primary (SPEC section 6).

    Guarantee: at least once. A message leaves the backlog after the primary has confirmed it and the ledger has
    recorded it. A retried task or drain continues where it stopped; drains and syphons may run concurrently.

    :param pair_reference: where driver and executors find the pair's settings, such as ``env:NAME`` or ``file:PATH``.
    :param ledger: folder of the ledger, or URL of one, which driver and executors share.
    :param run: name of this drain in the ledger.
    :param queues: paths of backlog queues; default: all of the pair.
    :param entities: move only messages for these entities.
    :param rate: messages per second over all tasks; ``None`` is unlimited.
    :param redrive: move the dead letters of the backlog queues instead.
    :param tasks: number of tasks; with fewer than queues a task drains several, with more several drain one. Default:
        one per queue, so that executors that finish short queues take the next ones, and at least one per core; dead
        letters are left to one task per queue.
    :raises ConfigurationError: an argument is invalid, a permission is missing or a namespace does not respond; no
        task was started.
    :raises pyspark.errors.PySparkException: a task failed after all retries; the message contains no secrets, and
        moved messages stay moved.
    """
    clock, redaction = SystemClock(), Redaction()
    started_at = clock.now()
    check_job(spark, rate=rate, tasks=tasks)
    reference = PairReference.parse(pair_reference)
    settings = reference.resolve(redaction)
    selected = select_queues(settings, queues)
    folder = shared_location(ledger, what="ledger")
    check_ledger(folder)
    access = check_access(settings, selected, redaction=redaction, entities=entities, sends=True)
    for entity, error in access.unavailable.items():
        _log.warning("entity=%s does not respond (%s): its messages may remain in the backlog", entity, error)
    cores = spark.sparkContext.defaultParallelism
    if tasks is None:
        # What one task skips, another one would wait for until it is released.
        tasks = len(selected) if redrive else max(len(selected), cores)
    queue_groups = _distribute(selected, tasks)
    concurrent_tasks = min(len(queue_groups), cores)
    plan = DrainPlan(
        reference=reference,
        queue_groups=queue_groups,
        ledger=folder,
        run=run,
        entities=None if entities is None else tuple(entities),
        rate=None if rate is None else rate / concurrent_tasks,
        time_to_live=time_to_live,
        redrive=redrive,
    )
    reports = _run_tasks(spark, plan)
    recorded = _recorded_moves(spark, folder, run=run, since=started_at)
    result = _merge_reports(
        plan,
        reports,
        recorded,
        batch_size=settings.options.syphon_batch_size,
        ordered=settings.options.ordering == "session",
        started_at=started_at,
        ended_at=clock.now(),
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
class _RecordedMoves:
    """Ledger records of this drain for one entity, and the number of distinct messages among them."""

    records: int
    messages: int


def _distribute(queues: Sequence[str], tasks: int) -> tuple[tuple[str, ...], ...]:
    """Return the queues of each task: one task has several, or several tasks have one."""
    return tuple(tuple(queues[number % len(queues) :: tasks]) for number in range(tasks))


def _run_tasks(spark: SparkSession, plan: DrainPlan) -> list[DrainTaskReport]:
    def drain_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        for batch in batches:
            for index in batch.column("id").to_pylist():
                report = run_drain_task(plan, index, attempt=attempt)
                yield REPORT_SCHEMA.batch([{"report": report.to_json()}])

    count = len(plan.queue_groups)
    rows = spark.range(0, count, 1, count).mapInArrow(drain_batches, REPORT_SCHEMA.ddl).collect()
    return [DrainTaskReport.from_json(row["report"]) for row in rows]


def _recorded_moves(spark: SparkSession, ledger: str, *, run: str, since: float) -> dict[str, _RecordedMoves]:
    """Return the moves that this drain's tasks have recorded, including those of failed attempts."""
    records = read_run(spark, ledger, run=run, since=since).where(F.col("kind") == "syphoned")
    rows = records.groupBy("entity").agg(F.count("*").alias("records"), F.count_distinct("id").alias("messages"))
    return {row["entity"]: _RecordedMoves(row["records"], row["messages"]) for row in rows.collect()}


def _merge_reports(
    plan: DrainPlan,
    reports: Sequence[DrainTaskReport],
    recorded: Mapping[str, _RecordedMoves],
    *,
    batch_size: int,
    ordered: bool,
    started_at: float,
    ended_at: float,
) -> DrainResult:
    # Of tasks that share a queue, the last one to end knows what remains in it.
    last = {plan.queue_groups[each.task]: each for each in sorted(reports, key=lambda each: each.ended)}
    known = [each if each is last[plan.queue_groups[each.task]] else each.without_remainder() for each in reports]
    total = sum((each.report for each in known), DrainReport())
    lost_attempts = sum(each.attempt for each in reports)
    moved = dict(total.moved) | {entity: each.messages for entity, each in recorded.items()}
    missing = {
        entity for entity, count in total.moved.items() if entity not in recorded or count > recorded[entity].records
    }
    if missing:
        _log.warning("the ledger %s lacks records of %s: executors must share it with the driver", plan.ledger, missing)
    repeated = sum(each.records - each.messages for each in recorded.values())
    # The ledger has every move of a lost attempt except those of the batches that were in flight: one of each queue,
    # or of each session that a queue may hold, one for each entity.
    in_flight = batch_size * sum(each.attempt * len(plan.queue_groups[each.task]) for each in reports)
    in_flight *= max(1, len(moved)) if ordered else 1
    return DrainResult(
        run=plan.run,
        moved=dict(sorted(moved.items())),
        dead_lettered=total.dead_lettered,
        left=total.left,
        failures=total.failures,
        repeated=repeated,
        duplicates_possible=repeated + total.duplicates_possible + in_flight,
        tasks=len(plan.queue_groups),
        lost_attempts=lost_attempts,
        operations=sum((each.operations for each in reports), Operations()),
        began=round(started_at, 3),
        seconds=round(ended_at - started_at, 3),
    )
