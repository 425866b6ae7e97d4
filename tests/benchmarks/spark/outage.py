"""Messages through an outage on ``local[2]``, as a program: published, diverted, drained and reconciled.

::

    python -m tests.benchmarks.spark.outage 100000

The primary is killed before the publish and restarted after it. Progress goes to standard error; the last line of
standard output is JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter, process_time
from typing import Final, TypeVar

import psutil
from pyspark.sql import SparkSession

from servicebus_pair.spark import ReceivingEntity, publish, reconcile
from servicebus_pair.spark.transfer.draining import drain
from tests.benchmarks.spark.namespaces import QUEUE, Namespaces, namespaces
from tests.benchmarks.spark.processes import Processes, peak_bytes, seconds
from tests.benchmarks.spark.session import session
from tests.benchmarks.spark.table import table

_CORES: Final = 2
_WARM_UP: Final = 2_000
_SAMPLE_SECONDS: Final = 0.5
_LOG_SECONDS: Final = 10.0
ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class OutageRun:
    """Times and memory of one run.

    :param seconds: by phase.
    :param cpu: CPU seconds by phase, of Spark and of both namespaces.
    :param driver_peak: sum of the peaks of the JVM and the Python driver, bytes.
    :param workers_peak: peak of all Python workers together, bytes.
    :param namespaces_peak: sum of the peaks of both namespaces, bytes.
    """

    messages: int
    seconds: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    diverted: int = 0
    moved: int = 0
    delivered: int = 0
    lost: int = 0
    duplicates: int = 0
    driver_peak: int = 0
    workers_peak: int = 0
    namespaces_peak: int = 0


class ProgressMonitor:
    """Logs the progress of a run, and records the peak memory of its workers."""

    def __init__(self, pair: Namespaces) -> None:
        self._pair = pair
        self._ledger = pair.home / "ledger"
        self._stopped = threading.Event()
        self._phase = "warm up"
        self._started_at = perf_counter()
        # Idle Python workers end after a minute, so their CPU time is recorded before.
        self._cpu: dict[psutil.Process, float] = {}
        self.workers_peak = 0

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample twice a second."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def timed(self, outcome: OutageRun, phase: str, action: Callable[[], ResultT]) -> ResultT:
        """Run one phase, and record its times in ``outcome``."""
        self._phase, self._started_at = phase, perf_counter()
        used = self._cpu_seconds()
        result = action()
        outcome.seconds[phase] = perf_counter() - self._started_at
        outcome.cpu[phase] = self._cpu_seconds() - used
        self._log_progress()
        return result

    def _cpu_seconds(self) -> float:
        self._sample()
        return process_time() + sum(list(self._cpu.values()))

    def _sample(self) -> None:
        spark = Processes.now()
        self.workers_peak = max(self.workers_peak, spark.workers_bytes())
        served = self._pair.processes()
        for each in (*spark.jvm, *spark.workers, *served):
            self._cpu[each] = max(self._cpu.get(each, 0.0), seconds(each))

    def _run(self) -> None:
        logged_at = perf_counter()
        while not self._stopped.wait(_SAMPLE_SECONDS):
            self._sample()
            if perf_counter() - logged_at >= _LOG_SECONDS:
                logged_at = perf_counter()
                self._log_progress()

    def _log_progress(self) -> None:
        written = sum(file.stat().st_size for file in self._ledger.rglob("*.jsonl"))
        print(  # noqa: T201 - progress of a run of minutes
            f"    {self._phase}: {perf_counter() - self._started_at:.1f} s, ledger {written / 1e6:.0f} MB, "
            f"workers at most {self.workers_peak / 1e6:.0f} MB",
            file=sys.stderr,
            flush=True,
        )


def main(count: int) -> None:
    """Send ``count`` messages through an outage, after a short run to warm up."""
    with namespaces() as pair, session(cores=_CORES) as spark:
        monitor = ProgressMonitor(pair)
        with monitor.sampling():
            run_through_outage(spark, pair, monitor, _WARM_UP, run="warm-up")
            pair.primary_process.kill()
            pair.primary_process.start()
            outcome = run_through_outage(spark, pair, monitor, count, run="bench")
        [jvm] = Processes.now().jvm
        outcome.driver_peak = peak_bytes(jvm.pid) + peak_bytes(psutil.Process().pid)
        outcome.workers_peak = monitor.workers_peak
        outcome.namespaces_peak = peak_bytes(pair.primary_process.pid) + peak_bytes(pair.secondary_process.pid)
    print(json.dumps(asdict(outcome)))  # noqa: T201 - the result


def run_through_outage(
    spark: SparkSession, pair: Namespaces, monitor: ProgressMonitor, count: int, *, run: str
) -> OutageRun:
    """Publish to a primary that is killed first, start it again, drain and reconcile."""
    outcome, ledger = OutageRun(count), str(pair.home / "ledger")
    pair.primary_process.kill()
    rows = table(spark, count)
    published = monitor.timed(
        outcome,
        "publish",
        lambda: publish(rows, pair_reference=pair.reference, ledger=ledger, run=run, entity=QUEUE),
    )
    outcome.diverted = published.diverted
    pair.primary_process.start()
    drained = monitor.timed(
        outcome, "drain", lambda: drain(spark, pair_reference=pair.reference, ledger=ledger, run=f"{run}-drain")
    )
    outcome.moved = sum(drained.moved.values())
    proof = monitor.timed(
        outcome,
        "reconcile",
        lambda: reconcile(
            spark,
            pair_reference=pair.reference,
            ledger=ledger,
            receiving_entities=[ReceivingEntity.parse(QUEUE)],
            output=str(pair.home / "proof"),
            run=run,
        ),
    )
    outcome.delivered, outcome.lost = proof.totals.delivered, proof.totals.lost + proof.totals.consumed
    outcome.duplicates = proof.totals.duplicates
    return outcome


if __name__ == "__main__":
    main(int(sys.argv[1]))
