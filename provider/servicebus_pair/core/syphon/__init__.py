"""Drain the backlog queues into their destination entities on the primary."""

from __future__ import annotations

from servicebus_pair.core.syphon.policies.rate_limiter import RateLimiter
from servicebus_pair.core.syphon.spool_drain import SPOOL
from servicebus_pair.core.syphon.survey import DestinationSurvey

__all__ = ["SPOOL", "DestinationSurvey", "RateLimiter"]
