"""Tables are read as their suffix says, and of those that others wrote only what is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.analysis.observations import read_receipts
from servicebus_pair.spark.base import tables
from servicebus_pair.spark.base.tables import read_table

COLUMNS = ("messageId", "entity")


def test_receipts_in_json_have_a_column_for_no_other_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of 400 KB with 30,000 names took minutes."""
    monkeypatch.setattr(tables, "_MAX_LINE_BYTES", 100_000)
    file = tmp_path / "received.json"
    many = {f"k{number}": number for number in range(5000)}
    lines = [{"messageId": "m", **many}, {"messageId": 5}, {"messageId": "x" * 200_000}, {"messageId": None}]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n[]\n\n")

    found = read_table(spark, str(file), columns=COLUMNS)

    assert found.columns == ["messageId"]
    assert {row["id"] for row in read_receipts(found, entities=["flights"]).collect()} == {"m", "5"}
    file.write_text('{"entity": "flights", "messageId": "m"}\n')
    assert read_table(spark, str(file), columns=COLUMNS).collect() == [("m", "flights")]
    file.write_text('{"id": "m"}\n')
    with pytest.raises(ConfigurationError, match="required are messageId"):
        read_receipts(read_table(spark, str(file), columns=COLUMNS), entities=["flights"])
