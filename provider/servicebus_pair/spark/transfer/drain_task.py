"""One Spark task of a drain: runs the core's syphon over some of the backlog queues and returns a report.

Several tasks may drain one queue: the service gives each message to one of them.

At least once: a message leaves the backlog after the primary has confirmed it. A retried task drains what the previous
attempt left; messages that attempt had locked reappear when their locks expire, within a minute.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from servicebus_pair.core import DrainReport, NamespacePair, Operations, SyncBridge, TimeToLive
from servicebus_pair.core.ledger import open_ledger
from servicebus_pair.core.model import get_logger
from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.redaction import Redaction, redact_errors

_log = get_logger(__name__)
REPORT_SCHEMA: Final = RowSchema({"report": "string"})
_LOG_INTERVAL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What the tasks of one drain do.

    :param queue_groups: paths of backlog queues, by index of the task.
    :param run: name of the drain in the ledger.
    :param entities: move only messages for these entities; ``None`` moves everything.
    :param rate: messages per second of one task; ``None`` is unlimited.
    :param redrive: move the dead letters of the backlog queues instead.
    """

    reference: PairReference
    queue_groups: tuple[tuple[str, ...], ...]
    ledger: str
    run: str
    entities: tuple[str, ...] | None = None
    rate: float | None = None
    time_to_live: TimeToLive = TimeToLive.RESTART
    redrive: bool = False


@dataclass(frozen=True, slots=True)
class DrainTaskReport:
    """What the successful attempt of a task did; earlier attempts are known from the ledger only.

    :param attempt: number of the attempt, from 0, which is also the number of failed attempts.
    :param ended: seconds since the Unix epoch.
    """

    task: int
    attempt: int
    report: DrainReport
    operations: Operations
    ended: float

    def without_remainder(self) -> DrainTaskReport:
        """Return the report without what remained in the queues."""
        return replace(self, report=replace(self.report, left=0, failures={}))

    def to_json(self) -> str:
        """Serialize for the way to the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DrainTaskReport:
        """Parse the result of :meth:`to_json`."""
        value: Mapping[str, Any] = json.loads(text)
        report, operations = DrainReport(**value["report"]), Operations(**value["operations"])
        return cls(value["task"], value["attempt"], report, operations, value["ended"])


def run_drain_task(plan: DrainPlan, index: int, *, attempt: int) -> DrainTaskReport:
    """Drain the queues of one task; returns when they are empty, or the rest cannot be moved now.

    :raises SparkTaskError: what stopped the task, without secrets.
    """
    _configure_logging()
    redaction = Redaction()
    with redact_errors(redaction), ExitStack() as stack:
        settings = plan.reference.resolve(redaction)
        ledger = stack.enter_context(open_ledger(plan.ledger, run=plan.run))
        # The pair's own background syphon would compete with the one whose work is reported.
        options = replace(settings.options, enable_syphon=False)
        pair = NamespacePair(settings.primary, settings.secondary, options, observers=[ledger])
        bridge = stack.enter_context(SyncBridge())
        queues = plan.queue_groups[index]
        _log.info("drain task=%d attempt=%d begins queues=%s", index, attempt, ",".join(queues))
        report = bridge.run(_drain(pair, plan, queues, progress=_ProgressLog(index)))
        failures = {place: redaction.clean(failure) for place, failure in report.failures.items()}
        return DrainTaskReport(index, attempt, replace(report, failures=failures), pair.meter.read(), time.time())


async def _drain(
    pair: NamespacePair, plan: DrainPlan, queues: tuple[str, ...], *, progress: Callable[[DrainReport], None]
) -> DrainReport:
    async with pair:
        syphon = pair.syphon(
            queues,
            entities=plan.entities,
            rate=plan.rate,
            time_to_live=plan.time_to_live,
            redrive=plan.redrive,
        )
        return await syphon.drain(progress=progress)


class _ProgressLog:
    """Logs the progress of a task every ten seconds."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._started_at = self._logged_at = time.monotonic()

    def __call__(self, report: DrainReport) -> None:
        now = time.monotonic()
        if now - self._logged_at < _LOG_INTERVAL_SECONDS:
            return
        self._logged_at = now
        _log.info(
            "drain task=%d moved=%d dead_lettered=%d rate=%.0f/s",
            self._index,
            report.moved_total,
            sum(report.dead_lettered.values()),
            report.moved_total / (now - self._started_at),
        )


def _configure_logging() -> None:
    """Send this package's log records to the executor's stderr: Spark's Python workers configure no logging."""
    logger = logging.getLogger("servicebus_pair")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
