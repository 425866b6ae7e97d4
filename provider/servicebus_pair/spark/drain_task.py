"""One Spark task of a drain: one pair, the core's syphon over some of the backlog queues, one receipt.

At least once: a message leaves the backlog after the primary has confirmed it. A task that is tried again
drains what the attempt before it has left; what that one held comes back when its locks end, within a minute.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from servicebus_pair.core.blocking import Bridge
from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.core.costs import Operations
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.pair import NamespacePair
from servicebus_pair.core.parcels import TimeToLive
from servicebus_pair.core.ports import Clock, SystemClock
from servicebus_pair.core.results import DrainReport
from servicebus_pair.spark.redaction import Redaction, secret_free
from servicebus_pair.spark.references import PairReference
from servicebus_pair.spark.shape import Shape

__all__ = ["RECEIPT", "DrainReceipt", "DrainTask", "drain_slice"]

_log = logging.getLogger(__name__)
RECEIPT: Final = Shape({"receipt": "string"})
_TELL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class DrainTask:
    """What all tasks of one drain are to do.

    :param slices: paths of backlog queues, by the number of the task.
    :param run: what the drain is called in the ledger.
    :param entities: move only what is meant for these; ``None`` moves everything.
    :param rate: messages per second of one task; ``None`` is as fast as it goes.
    :param time_to_live: ``restart`` or ``elapse``.
    :param redrive: move the dead letters of the backlog queues instead.
    """

    reference: PairReference
    slices: tuple[tuple[str, ...], ...]
    ledger: str
    run: str
    entities: tuple[str, ...] | None = None
    rate: float | None = None
    time_to_live: str = TimeToLive.RESTART.value
    redrive: bool = False


@dataclass(frozen=True, slots=True)
class DrainReceipt:
    """What the attempt of a task that came to its end did; attempts before it are known by the ledger.

    :param attempt: its number, from 0: so many before it were lost.
    """

    task: int
    attempt: int
    report: DrainReport
    operations: Operations

    def to_json(self) -> str:
        """The form in which it comes to the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DrainReceipt:
        """Read what :meth:`to_json` wrote."""
        value: Mapping[str, Any] = json.loads(text)
        report, operations = DrainReport(**value["report"]), Operations(**value["operations"])
        return cls(value["task"], value["attempt"], report, operations)


def drain_slice(task: DrainTask, number: int, *, attempt: int, clock: Clock | None = None) -> DrainReceipt:
    """Drain the queues of one task; returns when they are empty, or what is left cannot be moved now.

    :raises SparkTaskError: what stopped the task, without secrets.
    """
    _speak()
    timer, redaction = SystemClock() if clock is None else clock, Redaction()
    with secret_free(redaction), ExitStack() as stack:
        settings = task.reference.resolve(redaction)
        ledger = stack.enter_context(Ledger(task.ledger, run=task.run))
        pair = _pair(settings, ledger, timer)
        bridge = stack.enter_context(Bridge())
        queues = task.slices[number]
        _log.info("drain task=%d attempt=%d begins queues=%s", number, attempt, ",".join(queues))
        report = bridge.run(_drain(pair, task, queues, tell=_Telling(number, timer)))
        failures = {place: redaction.clean(failure) for place, failure in report.failures.items()}
        return DrainReceipt(number, attempt, replace(report, failures=failures), pair.meter.read())


def _pair(settings: PairSettings, ledger: Ledger, clock: Clock) -> NamespacePair:
    # A syphon that the options begin would work beside the one that is counted here.
    options = replace(settings.options, enable_syphon=False)
    return NamespacePair(settings.primary, settings.secondary, options, observers=[ledger], clock=clock)


async def _drain(
    pair: NamespacePair, task: DrainTask, queues: tuple[str, ...], *, tell: Callable[[DrainReport], None]
) -> DrainReport:
    async with pair:
        syphon = pair.syphon(
            queues,
            entities=task.entities,
            rate=task.rate,
            time_to_live=TimeToLive(task.time_to_live),
            redrive=task.redrive,
        )
        return await syphon.drain(progress=tell)


class _Telling:
    """Logs how far a task is, every ten seconds."""

    def __init__(self, number: int, clock: Clock) -> None:
        self._number = number
        self._clock = clock
        self._began = self._told = clock.now()

    def __call__(self, report: DrainReport) -> None:
        now = self._clock.now()
        if now - self._told < _TELL_SECONDS:
            return
        self._told = now
        _log.info(
            "drain task=%d moved=%d dead_lettered=%d rate=%.0f/s",
            self._number,
            report.moved_total,
            sum(report.dead_lettered.values()),
            report.moved_total / (now - self._began),
        )


def _speak() -> None:
    """Have this worker's log lines reach the executor's log: Spark's Python workers configure none."""
    ours = logging.getLogger("servicebus_pair")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        ours.addHandler(handler)
        ours.setLevel(logging.INFO)
