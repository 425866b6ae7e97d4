"""What differs between Spark 4.0, 4.1 and 4.2: names that older versions lack, and what cannot be done without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import datasource

from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:
        # Spark 4.0 and 4.1 have no admission control.
        ReadAllAvailable = ReadLimit = ReadMaxRows = None
        SupportsTriggerAvailableNow = object
    # Spark 4.0 writes streams by rows only.
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)

__all__ = [
    "MISSING",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "check_stream_read",
    "check_stream_write",
]


MISSING: Final = {
    "reading of streams": ("4.2", "refused: read batches, with `startingOffsets` and `endingOffsets`"),
    "writing of streams": ("4.1", "refused: write each batch with `foreachBatch`"),
    "filters of a query": ("4.1", "`pushFilters` saves nothing"),
}
"""What older versions lack: since when it is there, and what is done before, as the compatibility page says."""


def check_stream_read() -> None:
    """Check that this Spark can read a stream. :raises ConfigurationError: it has no admission control."""
    if ReadLimit is None:
        raise ConfigurationError(
            f"Spark {pyspark.__version__} cannot read a stream from servicebus: Spark 4.2 or later is required; read "
            "batches, with startingOffsets and endingOffsets"
        )


def check_stream_write() -> None:
    """Check that this Spark can write a stream. :raises ConfigurationError: it has no writer of Arrow batches."""
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise ConfigurationError(
            f"Spark {pyspark.__version__} cannot write a stream to servicebus: Spark 4.1 or later is required; write "
            "each batch with foreachBatch"
        )
