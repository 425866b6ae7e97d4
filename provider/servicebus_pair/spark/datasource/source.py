"""The data source ``servicebus``, from which Spark creates readers and writers."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ServiceBusDataSource(DataSource):
    """Writes tables and streams through failover-aware senders, and reads queues by peek.

    See ``option_table`` for the options, ``write_schema`` and ``read_schema`` for the columns. Spark imports this
    module in every session that looks up any data source, so most imports are deferred.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Store the options. :raises ConfigurationError: the credential is not a reference, so it may be a secret."""
        super().__init__(options)
        if "credential" in options:
            from servicebus_pair.spark.datasource.options import check_credential

            check_credential(options["credential"])

    @classmethod
    def name(cls) -> str:
        """The name for ``spark.read.format`` and ``df.write.format``."""
        return "servicebus"

    def schema(self) -> str:
        """Return the columns of a read, as DDL. :raises ConfigurationError: an option is not valid for reading."""
        from servicebus_pair.spark.datasource.option_table import Direction, parse_options
        from servicebus_pair.spark.datasource.read_schema import SCHEMA

        parse_options(self.options, direction=Direction.READ)
        return SCHEMA.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader. :raises ConfigurationError: the schema or an option is invalid."""
        from servicebus_pair.spark.datasource.options import ReadOptions
        from servicebus_pair.spark.datasource.read_schema import check_schema
        from servicebus_pair.spark.datasource.reader import FilteringReader, ServiceBusReader

        options = ReadOptions.parse(self.options, streaming=False)
        return (FilteringReader if options.push_filters else ServiceBusReader)(options, check_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Return the stream reader. :raises ConfigurationError: see :meth:`reader`."""
        from servicebus_pair.spark.datasource.options import ReadOptions
        from servicebus_pair.spark.datasource.read_schema import check_schema
        from servicebus_pair.spark.datasource.reader import ServiceBusStreamReader
        from servicebus_pair.spark.datasource.receive_reader import ServiceBusReceiveReader

        options = ReadOptions.parse(self.options, streaming=True)
        return (ServiceBusReceiveReader if options.receives else ServiceBusStreamReader)(options, check_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  Spark's signature
        """Return the batch writer.

        :raises ConfigurationError: a column or an option is invalid; nothing was sent.
        """
        from servicebus_pair.spark.datasource.option_table import DEAD_LETTER_ACTION
        from servicebus_pair.spark.datasource.writer import ServiceBusWriter, parse_write_options

        if self.options.get("action") == DEAD_LETTER_ACTION:
            from servicebus_pair.spark.datasource.dead_letter_writer import DeadLetterOptions, DeadLetterWriter

            return DeadLetterWriter(DeadLetterOptions.parse(self.options, schema, overwrite=overwrite))
        return ServiceBusWriter(parse_write_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001  Spark's
        """Return the stream writer. :raises ConfigurationError: see :meth:`writer`."""
        from servicebus_pair.spark.datasource.writer import ServiceBusStreamWriter, parse_write_options

        return ServiceBusStreamWriter(parse_write_options(self.options, schema, overwrite=overwrite))
