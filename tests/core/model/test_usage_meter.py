"""The operation counters of a pair (SPEC section 8)."""

from __future__ import annotations

from servicebus_pair.core.model.pricing import Operations
from servicebus_pair.core.model.usage_meter import Meter, Operation


def test_meter_counts_operations_and_increments_of_64_kb() -> None:
    meter = Meter()
    meter.count(Operation.PING)
    meter.count(Operation.RENEW, 3)
    meter.count_sizes(Operation.SEND, [0, 65_536, 65_537, 131_072, 200_000])
    meter.count_increments(131_073)
    assert meter.read() == Operations(pings=1, lock_renewals=3, sends=5, further_increments=1 + 1 + 3 + 2)
