"""Publishing with Spark on one core, compared with the bare SDK in a loop and with one send per row.

All send the same messages to the same queue in alternating rounds; a ratio is the median of the ratios per round, so
that other load affects all alike. Ours is ``publish``: it checks the table, distributes it to tasks, and sends with
failover and a ledger. The ceiling is one process that creates messages, adds them to batches of the SDK and sends these
one after another. The third contender is a ``foreachPartition`` that keeps its sender open and sends row by row.

On ``local[1]`` Spark uses one core and the namespace another, as in the loop, so the rates are per core.
CPU time is that of the Python worker, compared with that of the loop; it does not depend on other load.

One send per row costs mainly a round trip per row, which loopback hides. Hence the second namespace with a latency
of a millisecond, which is still less than that of a data center.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError
from pyspark.sql import Row, SparkSession

from servicebus_emulator.faults import Fault, FaultKind
from servicebus_pair.spark import publish
from tests.benchmarks.measure import Measure
from tests.benchmarks.spark.namespaces import QUEUE, Namespaces, namespaces
from tests.benchmarks.spark.processes import Processes
from tests.benchmarks.spark.session import session
from tests.benchmarks.spark.table import messages, table
from tests.benchmarks.timings import Timings, rotated

_ROUNDS: Final = 5
_BY_ROW_MESSAGES: Final = 3_000
# The SDK ignores the batch envelope: a batch filled up to the link's limit is rejected.
_ENVELOPE_BYTES: Final = 1024
_UNIT: Final = "msg/s"


def measures(count: int) -> Iterator[Measure]:
    """Measure the three contenders, with a namespace on the same machine and with one a millisecond away.

    :param count: number of messages per publish.
    """
    with namespaces() as pair, session(cores=1) as spark:
        yield from _on_loopback(spark, pair, count)
        pair.primary.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.001))
        yield from _compare_by_row(_rounds(spark, pair, count, bare=False), "at 1 ms")


def _on_loopback(spark: SparkSession, pair: Namespaces, count: int) -> Iterator[Measure]:
    timings = _rounds(spark, pair, count, bare=True)
    ours, bare = timings["ours"], timings["bare"]
    yield Measure(name=f"publish of {count} on local[1], ours", value=ours.rate, unit=_UNIT)
    yield Measure(name=f"publish of {count}, bare SDK in a loop", value=bare.rate, unit=_UNIT)
    yield Measure(name="publish, ours / bare SDK", value=ours.relative_to(bare), unit="ratio", at_least=0.85)
    for name, each in (("Python worker", ours), ("bare SDK", bare)):
        value = median(each.cpu) * 1e6
        yield Measure(name=f"publish, CPU time, {name}", value=value, unit="us per message")
    value = ours.cpu_relative_to(bare)
    yield Measure(name="publish, CPU time, bare SDK / Python worker", value=value, unit="ratio", at_least=0.85)
    yield from _compare_by_row(timings, "on loopback")


def _compare_by_row(timings: dict[str, Timings], where: str) -> Iterator[Measure]:
    ours, by_row = timings["ours"], timings["by row"]
    yield Measure(name=f"one send per row in foreachPartition, {where}", value=by_row.rate, unit=_UNIT)
    value = ours.relative_to(by_row)
    yield Measure(name=f"publish, ours / one send per row, {where}", value=value, unit="ratio", at_least=10)


def _rounds(spark: SparkSession, pair: Namespaces, count: int, *, bare: bool) -> dict[str, Timings]:
    ways: dict[str, tuple[Callable[[int], None], Callable[[], float], int]] = {
        "ours": (partial(_publish, spark, pair), _workers_seconds, count),
        "by row": (partial(_send_by_row, spark, pair), _workers_seconds, min(count, _BY_ROW_MESSAGES)),
    }
    if bare:
        ways["bare"] = (partial(_send_bare, pair), process_time, count)
    timings = {name: Timings() for name in ways}
    for send, _, _ in ways.values():
        send(100)
    for number in range(_ROUNDS):
        for name in rotated(list(ways), number):
            send, cpu, many = ways[name]
            started, used = perf_counter(), cpu()
            send(many)
            timings[name].elapsed.append((perf_counter() - started) / many)
            timings[name].cpu.append((cpu() - used) / many)
    return timings


def _workers_seconds() -> float:
    return Processes.now().workers_seconds()


def _publish(spark: SparkSession, pair: Namespaces, count: int) -> None:
    ledger = str(pair.home / "ledger")
    sent = publish(table(spark, count), pair_reference=pair.reference, ledger=ledger, run="bench", entity=QUEUE)
    if sent.primary != count:
        raise RuntimeError(f"{sent.primary} of {count} messages arrived at the primary")


def _send_bare(pair: Namespaces, count: int) -> None:
    with (
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        limit = sender.create_message_batch().max_size_in_bytes - _ENVELOPE_BYTES
        batch = sender.create_message_batch(limit)
        for message in messages(count):
            try:
                batch.add_message(message)
            except MessageSizeExceededError:
                sender.send_messages(batch)
                batch = sender.create_message_batch(limit)
                batch.add_message(message)
        sender.send_messages(batch)


def _send_by_row(spark: SparkSession, pair: Namespaces, count: int) -> None:
    connection = pair.primary.connection_string

    def send(rows: Iterable[Row]) -> None:
        with (
            ServiceBusClient.from_connection_string(connection) as client,
            client.get_queue_sender(QUEUE) as sender,
        ):
            for row in rows:
                sender.send_messages(
                    ServiceBusMessage(
                        row.body,
                        message_id=row.messageId,
                        subject=row.subject,
                        content_type=row.contentType,
                        application_properties=row.applicationProperties,
                    )
                )

    table(spark, count).coalesce(1).foreachPartition(send)
