"""The data source ``servicebus``: what Spark makes readers and writers of."""

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

__all__ = ["ServiceBusDataSource"]


class ServiceBusDataSource(DataSource):
    """Writes tables and streams through failover-aware sends, and reads queues by peek.

    Options are those of ``servicebus_pair.spark.option_table``, columns those of ``schema`` (written) and ``received``
    (read). Spark imports this module in every session that looks for a data source, so it imports little itself.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Take the options. :raises ConfigurationError: the credential is no reference, and so may be a secret."""
        super().__init__(options)
        if "credential" in options:
            from servicebus_pair.spark.options import check_credential

            check_credential(options["credential"])

    @classmethod
    def name(cls) -> str:
        """The name that Spark knows it by."""
        return "servicebus"

    def schema(self) -> StructType:
        """Answer the columns that are read. :raises ConfigurationError: an option is no option of a read."""
        from servicebus_pair.spark.option_table import Use, parsed
        from servicebus_pair.spark.received import SCHEMA

        parsed(self.options, use=Use.READ)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Answer the reader of a batch. :raises ConfigurationError: the schema or an option is wrong."""
        from servicebus_pair.spark.options import ReadOptions
        from servicebus_pair.spark.reader import ServiceBusReader
        from servicebus_pair.spark.received import check_schema

        check_schema(schema)
        return ServiceBusReader(ReadOptions.of(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Answer the reader of a stream. :raises ConfigurationError: as :meth:`reader`."""
        from servicebus_pair.spark.options import ReadOptions
        from servicebus_pair.spark.reader import ServiceBusStreamReader
        from servicebus_pair.spark.received import check_schema

        check_schema(schema)
        return ServiceBusStreamReader(ReadOptions.of(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  Spark's signature
        """Answer the writer of a batch.

        :raises ConfigurationError: a column or an option is wrong; nothing was sent.
        """
        from servicebus_pair.spark.options import WriteOptions
        from servicebus_pair.spark.writer import ServiceBusWriter, checked

        return ServiceBusWriter(checked(WriteOptions.of(self.options), schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001  Spark's
        """Answer the writer of a stream. :raises ConfigurationError: as :meth:`writer`."""
        from servicebus_pair.spark.options import WriteOptions
        from servicebus_pair.spark.writer import ServiceBusStreamWriter, checked

        return ServiceBusStreamWriter(checked(WriteOptions.of(self.options), schema, overwrite=overwrite))
