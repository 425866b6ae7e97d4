"""A secret as the value or the name of any option is in no error, plan or event log of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from servicebus_pair.spark.datasource.option_table import OPTIONS, Direction
from tests.security.canaries import CANARIES, disclosed
from tests.spark.conftest import Pair, Session

STRING = str(CANARIES["connection string"])


@pytest.mark.slow
def test_no_option_leaves_a_secret_behind(session: Session, pair: Pair, tmp_path: Path):
    spark = session.spark
    valid = {"credential": pair.reference, "entity": "flights"}
    ledger = str(tmp_path)
    table = spark.createDataFrame([("body",)], "body string")

    def read(options: dict[str, str]) -> None:
        spark.read.format("servicebus").options(**options).load().collect()

    def write(options: dict[str, str]) -> None:
        table.write.format("servicebus").mode("append").options(**{"ledger": ledger, **options}).save()

    leaks = {}
    for name in (*OPTIONS, "unknown", STRING):
        direction = OPTIONS[name].direction if name in OPTIONS else Direction.BOTH
        for attempt, kind in ((read, Direction.READ), (write, Direction.WRITE)):
            if kind not in direction:
                continue
            with pytest.raises(PySparkException) as caught:
                attempt({**valid, name: STRING})
            if disclosed(f"{caught.value!r} {caught.value} {caught.value.__dict__}"):
                leaks[name, kind] = str(caught.value)
    assert leaks == {}
    found = [line[:2000] for line in session.event_log().splitlines() if disclosed(line)]
    assert found == []
    assert not [path for path in tmp_path.rglob("*") if disclosed(str(path))]
