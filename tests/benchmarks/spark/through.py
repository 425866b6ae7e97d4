"""Messages through an outage on ``local[2]``, as a program: published, diverted, drained and reconciled.

::

    python -m tests.benchmarks.spark.through 100000

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

__all__ = ["Passage", "Watch", "go_through"]

_CORES: Final = 2
_WARM_UP: Final = 2_000
_SAMPLE_SECONDS: Final = 0.5
_LOG_SECONDS: Final = 10.0
ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class Passage:
    """Times and memory of one passage.

    :param seconds: by phase.
    :param processor: CPU seconds by phase, of Spark and of both namespaces.
    :param driver_peak: sum of the peaks of the JVM and the Python driver, bytes.
    :param workers_peak: peak of all Python workers together, bytes.
    :param namespaces_peak: sum of the peaks of both namespaces, bytes.
    """

    messages: int
    seconds: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)
    diverted: int = 0
    moved: int = 0
    delivered: int = 0
    lost: int = 0
    duplicates: int = 0
    driver_peak: int = 0
    workers_peak: int = 0
    namespaces_peak: int = 0


class Watch:
    """Logs the progress of a passage, and records the peak memory of its workers."""

    def __init__(self, pair: Namespaces) -> None:
        self._pair = pair
        self._ledger = pair.home / "ledger"
        self._over = threading.Event()
        self._phase = "warm up"
        self._began = perf_counter()
        # Idle Python workers end after a minute, so their CPU time is recorded before.
        self._spent: dict[psutil.Process, float] = {}
        self.workers_peak = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sample twice a second."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def timed(self, passage: Passage, phase: str, act: Callable[[], ResultT]) -> ResultT:
        """Run one phase of ``passage``, and record its times there."""
        self._phase, self._began = phase, perf_counter()
        used = self._processor()
        result = act()
        passage.seconds[phase] = perf_counter() - self._began
        passage.processor[phase] = self._processor() - used
        self._tell()
        return result

    def _processor(self) -> float:
        self._look()
        return process_time() + sum(list(self._spent.values()))

    def _look(self) -> None:
        spark = Processes.now()
        self.workers_peak = max(self.workers_peak, spark.workers_bytes())
        served = self._pair.processes()
        for each in (*spark.jvm, *spark.workers, *served):
            self._spent[each] = max(self._spent.get(each, 0.0), seconds(each))

    def _watch(self) -> None:
        logged_at = perf_counter()
        while not self._over.wait(_SAMPLE_SECONDS):
            self._look()
            if perf_counter() - logged_at >= _LOG_SECONDS:
                logged_at = perf_counter()
                self._tell()

    def _tell(self) -> None:
        written = sum(file.stat().st_size for file in self._ledger.glob("*.jsonl"))
        print(  # noqa: T201 - progress is for who waits
            f"    {self._phase}: {perf_counter() - self._began:.1f} s, ledger {written / 1e6:.0f} MB, "
            f"workers at most {self.workers_peak / 1e6:.0f} MB",
            file=sys.stderr,
            flush=True,
        )


def main(count: int) -> None:
    """Run the passage of ``count`` messages, after a short one to warm up."""
    with namespaces() as pair, session(cores=_CORES) as spark:
        watch = Watch(pair)
        with watch.watching():
            go_through(spark, pair, watch, _WARM_UP, run="warm-up")
            pair.primary_process.kill()
            pair.primary_process.start()
            passage = go_through(spark, pair, watch, count, run="bench")
        [jvm] = Processes.now().jvm
        passage.driver_peak = peak_bytes(jvm.pid) + peak_bytes(psutil.Process().pid)
        passage.workers_peak = watch.workers_peak
        passage.namespaces_peak = peak_bytes(pair.primary_process.pid) + peak_bytes(pair.secondary_process.pid)
    print(json.dumps(asdict(passage)))  # noqa: T201 - the result


def go_through(spark: SparkSession, pair: Namespaces, watch: Watch, count: int, *, run: str) -> Passage:
    """Publish to a primary that is killed first, start it again, drain and reconcile."""
    passage, ledger = Passage(count), str(pair.home / "ledger")
    pair.primary_process.kill()
    rows = table(spark, count)
    published = watch.timed(
        passage,
        "publish",
        lambda: publish(rows, pair_reference=pair.reference, ledger=ledger, run=run, entity=QUEUE),
    )
    passage.diverted = published.diverted
    pair.primary_process.start()
    drained = watch.timed(
        passage, "drain", lambda: drain(spark, pair_reference=pair.reference, ledger=ledger, run=f"{run}-drain")
    )
    passage.moved = sum(drained.moved.values())
    proof = watch.timed(
        passage,
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
    passage.delivered, passage.lost = proof.totals.delivered, proof.totals.lost
    passage.duplicates = proof.totals.duplicates
    return passage


if __name__ == "__main__":
    main(int(sys.argv[1]))
