"""Reconciling a planted ledger of any size on ``local[2]``: no broker has carried its messages.

::

    python -m tests.benchmarks.spark.reconciling 10000000

Spark writes the ledger (a tenth diverted and moved) and the receipts of every message. A tenth of the messages is
measured first, each number in a process of its own: time and peak memory of each, and the growth from one to the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from time import perf_counter
from typing import Final

import psutil
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.spark import ReceivingEntity, reconcile
from tests.benchmarks.spark.namespaces import PRIMARY, QUEUE, namespaces
from tests.benchmarks.spark.processes import Processes, peak_bytes
from tests.benchmarks.spark.session import session

_CORES: Final = 2
_HEAP: Final = "6g"
FILES: Final = 20
TENTH: Final = 10
_MEGABYTE: Final = 1_000_000
_BILLION: Final = 1_000_000_000
_CORES_OF_TEN_EXECUTORS: Final = 40


def main(arguments: list[str]) -> None:
    """Measure a tenth and all of them; with ``--one``, one number in this process."""
    if arguments[:1] == ["--one"]:
        print(json.dumps(_measure(int(arguments[1]))))  # noqa: T201 - the result
        return
    count = int(arguments[0])
    few, many = _in_a_process(count // TENTH), _in_a_process(count)
    grown = (many["seconds"] - few["seconds"]) / (many["records"] - few["records"])
    print(f"time for each further million records: {grown * 1e6:.2f} s on {_CORES} cores")  # noqa: T201
    projected = grown * _BILLION * _CORES / _CORES_OF_TEN_EXECUTORS
    print(  # noqa: T201
        f"a billion records on ten executors of four cores, if it grows like that: {projected / 60:.0f} min"
    )


def _in_a_process(count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.spark.reconciling", "--one", str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(  # noqa: T201
        f"{count} messages, {result['records']:.0f} records: planted in {result['planted']:.1f} s, reconciled in "
        f"{result['seconds']:.1f} s; peak memory {result['jvm'] / _MEGABYTE:.0f} MB (JVM), "
        f"{result['python'] / _MEGABYTE:.0f} MB (Python driver); ledger {result['ledger'] / _MEGABYTE:.0f} MB",
        flush=True,
    )
    return result


def _measure(count: int) -> dict[str, float]:
    if count % (TENTH * FILES):
        raise ValueError(f"the number of messages is {count}: it must be a multiple of {TENTH * FILES}")
    with namespaces() as pair, session(cores=_CORES, heap=_HEAP) as spark:
        ledger, started = pair.home / "ledger", perf_counter()
        plant(spark, ledger, count)
        receipts = str(pair.home / "receipts")
        spark.range(0, count, 1, FILES).select(_message_id().alias("messageId")).write.parquet(receipts)
        planted = perf_counter() - started
        _log(f"{count} messages are planted after {planted:.1f} s")
        started = perf_counter()
        proof = reconcile(
            spark,
            pair_reference=pair.reference,
            ledger=str(ledger),
            receiving_entities=[ReceivingEntity.parse(QUEUE)],
            output=str(pair.home / "proof"),
            run="bench",
            receipts=spark.read.parquet(receipts),
        )
        seconds = perf_counter() - started
        if proof.totals.lost or proof.totals.consumed != count:
            raise RuntimeError(f"of {count} messages {proof.totals.consumed} were consumed, {proof.totals.lost} lost")
        [jvm] = Processes.now().jvm
        return {
            "records": count + count // TENTH,
            "planted": planted,
            "seconds": seconds,
            "jvm": peak_bytes(jvm.pid),
            "python": peak_bytes(psutil.Process().pid),
            "ledger": sum(file.stat().st_size for file in ledger.rglob("*.jsonl")),
        }


def plant(spark: SparkSession, ledger: Path, count: int) -> None:
    """Write a ledger as a publish and a drain leave it: every tenth message was diverted, and moved an hour later."""
    sent = spark.range(0, count, 1, FILES)
    diverted = F.col("id") % TENTH == 0
    route = F.when(diverted, "backlog").otherwise("primary")
    moved = spark.range(0, count, TENTH, FILES)
    for name, rows, fields in (
        ("sent", sent, {"kind": "sent", "route": route, "at": _sent_at(), "run": "bench"}),
        ("moved", moved, {"kind": "syphoned", "route": "primary", "at": _sent_at() + 3600, "run": "bench-drain"}),
    ):
        queue = F.when(diverted, f"{PRIMARY}/x-servicebus-transfer/0")
        record = {"v": 1, "id": _message_id(), "entity": QUEUE, "queue": queue, "bytes": 300, **fields}
        columns = [(value if isinstance(value, Column) else F.lit(value)).alias(key) for key, value in record.items()]
        folder = ledger / "day=2026-11-22" / f"run={fields['run']}"
        text = rows.select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("value"))
        text.write.text(f"{folder}/{name}")
        per_file = (count if name == "sent" else count // TENTH) // FILES
        closing = json.dumps({"v": 1, "kind": "closed", "records": per_file, "run": fields["run"]})
        for part in Path(folder, name).glob("part-*.txt"):
            with part.open("a", encoding="utf-8") as lines:
                lines.write(f"{closing}\n")
            part.rename(part.with_suffix(".jsonl"))
        _log(f"the ledger has what was {name}")


def _message_id() -> Column:
    return F.concat(F.lit("m-"), F.col("id"))


def _sent_at() -> Column:
    # A thousand a second.
    return F.col("id") / 1000 + 1_795_000_000


def _log(text: str) -> None:
    print(f"    {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress


if __name__ == "__main__":
    main(sys.argv[1:])
