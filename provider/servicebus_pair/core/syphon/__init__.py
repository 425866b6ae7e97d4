"""Drain the backlog queues into their destination entities on the primary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.syphon.link_pool import max_links
    from servicebus_pair.core.syphon.queue_worker import MAX_WAITING_BATCHES
    from servicebus_pair.core.syphon.rate_limiter import RateLimiter
    from servicebus_pair.core.syphon.survey import DestinationSurvey

__all__ = [
    "MAX_WAITING_BATCHES",
    "DestinationSurvey",
    "RateLimiter",
    "max_links",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "link_pool": ["max_links"],
        "queue_worker": ["MAX_WAITING_BATCHES"],
        "rate_limiter": ["RateLimiter"],
        "survey": ["DestinationSurvey"],
    },
)
