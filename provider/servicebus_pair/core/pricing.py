"""Cost functions: what a pair's operations cost at a dated price list (SPEC section 8)."""

from __future__ import annotations

from servicebus_pair.core.model.pricing import (
    BILLED_BYTES,
    STANDARD_PRICES,
    Bill,
    Operations,
    PriceList,
    PriceTier,
    backlog_operations,
    bill,
    idle_syphon_operations,
    ping_operations,
    read_prices,
)

__all__ = [
    "BILLED_BYTES",
    "STANDARD_PRICES",
    "Bill",
    "Operations",
    "PriceList",
    "PriceTier",
    "backlog_operations",
    "bill",
    "idle_syphon_operations",
    "ping_operations",
    "read_prices",
]
