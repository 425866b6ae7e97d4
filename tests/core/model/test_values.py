"""Values of this package are frozen (DESIGN section 5)."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import get_args

from servicebus_pair.core.model.events import Event
from servicebus_pair.core.model.health_state import HealthEvent
from tests.core.support.values import check_values


def test_values_are_frozen_and_have_slots() -> None:
    assert all(is_dataclass(kind) for union in (Event, HealthEvent) for kind in get_args(union))
    check_values("model", keyword_only={"ArmCoordinates", "Endpoint", "Operations", "PairOptions", "PriceList"})
