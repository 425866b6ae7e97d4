"""Columns of a written table are checked by name and type; errors suggest the probable name."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.spark.datasource.write_schema import check_columns


def table(columns: str) -> StructType:
    read = StructType.fromDDL(columns)
    assert isinstance(read, StructType)
    return read


ALLOWED = (
    "body binary",
    "body string",
    *(f"body string, timeToLive {kind}" for kind in ("tinyint", "int", "bigint", "float", "double", "decimal(10,2)")),
    "body string, scheduledEnqueueTime timestamp",
    *(
        f"body string, applicationProperties map<string,{kind}>"
        for kind in ("string", "tinyint", "smallint", "int", "bigint", "float", "double", "boolean")
    ),
    "body string, applicationProperties struct<far:bigint,by:string,late:double,own:boolean>",
    "body string, applicationProperties string",
)
INVALID = {
    "body void": "column body is void: allowed is binary or string",
    "body array<int>": "column body is array<int>: allowed is binary or string",
    "value string, id int": "column body is missing: it is required; the columns are value, id: derive it from",
    "body string, messageid string": "column messageid is unknown: did you mean messageId? allowed are body, entity,",
    "body string, session_id string": "column session_id is unknown: did you mean sessionId?",
    "body string, ttl int": "column ttl is unknown: did you mean timeToLive?",
    "body string, colour string": "column colour is unknown: allowed are body, entity,",
    "body string, messageId bigint": "column messageId is bigint: allowed is string",
    "body string, timeToLive string": "column timeToLive is string: allowed is numeric",
    "body string, scheduledEnqueueTime date": "column scheduledEnqueueTime is date: allowed is timestamp",
    "body string, applicationProperties map<int,string>": (
        "column applicationProperties is map<int,string>: allowed is a map with string keys, or a struct, of string, "
    ),
    "body string, applicationProperties map<string,date>": "column applicationProperties is map<string,date>",
    "body string, applicationProperties struct<at:timestamp>": "column applicationProperties is struct<at:timestamp>",
    "body string, subject string, subject string": "column subject occurs 2 times: allowed is once",
}


@pytest.mark.usefixtures("spark")  # which reads the types
@pytest.mark.parametrize("columns", ALLOWED)
def test_valid_columns_are_accepted(columns: str):
    check_columns(table(columns), entity="flights")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("columns", INVALID)
def test_invalid_column_is_named_with_the_allowed_types(columns: str):
    with pytest.raises(ConfigurationError) as caught:
        check_columns(table(columns), entity="flights")
    assert str(caught.value).startswith(INVALID[columns])


@pytest.mark.usefixtures("spark")
def test_entity_is_required_as_column_or_option():
    check_columns(table("body string, entity string"), entity=None)
    with pytest.raises(ConfigurationError, match="column entity and option entity are both missing"):
        check_columns(table("body string"), entity=None)
