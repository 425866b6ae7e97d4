"""What all senders of a pair in one process share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from servicebus_pair.core.board import HealthBoard
from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.home import Home
from servicebus_pair.core.options import PairOptions
from servicebus_pair.core.ordering import SessionOrder
from servicebus_pair.core.ports import Clock
from servicebus_pair.core.prober import Prober
from servicebus_pair.core.rotation import BacklogRotation
from servicebus_pair.core.traffic import Traffic

__all__ = ["SMALLEST_BATCH_LIMIT", "Shared"]

# Bytes; used only while no link could be asked. It is the Standard tier's, which every tier takes.
SMALLEST_BATCH_LIMIT: Final = 262_144


@dataclass(frozen=True, slots=True)
class Shared:
    """Clients, health, pings, the rotation of backlog queues and what is in flight, of one open pair.

    :param order: with ``ordering="session"``.
    """

    options: PairOptions
    primary: NamespaceClient
    secondary: NamespaceClient
    board: HealthBoard
    prober: Prober
    rotation: BacklogRotation
    clock: Clock
    home: Home
    traffic: Traffic = field(default_factory=Traffic)
    order: SessionOrder | None = None
