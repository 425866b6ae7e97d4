"""The AMQP 1.0 wire: Qpid Proton's engine under asyncio, and messages kept in their encoded form."""

from __future__ import annotations
