"""Drain the backlog queues into their destination entities on the primary."""

from __future__ import annotations

from servicebus_pair.core.syphon.policies.link_pool import max_links
from servicebus_pair.core.syphon.policies.rate_limiter import RateLimiter
from servicebus_pair.core.syphon.queue_worker import MAX_WAITING_BATCHES
from servicebus_pair.core.syphon.spool_drain import SPOOL
from servicebus_pair.core.syphon.survey import DestinationSurvey

__all__ = ["MAX_WAITING_BATCHES", "SPOOL", "DestinationSurvey", "RateLimiter", "max_links"]
