"""An outage of the primary in the middle of receiving, and its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import pytest

from servicebus_pair.core.health.prober import Prober
from tests.airflow.conftest import Pair

DOWN_SECONDS: Final = 5
# A second after the outage was noticed, and then each second, which is the ping interval of the tests.
MOST_PINGS: Final = DOWN_SECONDS + 1


def with_short_locks(pair: Pair) -> None:
    """Make locks of the queue ``flights`` expire soon: the broker keeps those of an outage."""
    pair.primary["contoso"].delete("flights")
    pair.primary["contoso"].create_queue("flights", lock_duration=timedelta(seconds=5), max_delivery_count=100)


def count_pings(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the entities that are pinged, which grows."""
    pinged: list[str] = []
    probe = Prober.probe

    async def counted(prober: Prober, entity: str, **options: Any) -> Any:
        pinged.append(entity)
        return await probe(prober, entity, **options)

    patch.setattr(Prober, "probe", counted)
    return pinged


def report_receiving(by: str, sent: Sequence[str], received: Counter[str], *, pings: int, lines: int) -> None:
    """Print the figures, and fail if a message is lost or none is that was never sent."""
    lost = [each for each in sent if not received[each]]
    print(  # noqa: T201
        f"{by}: sent={len(sent)} received={received.total()} lost={len(lost)} "
        f"duplicates={received.total() - len(received)} pings_while_down={pings} lines={lines}"
    )
    assert lost == []
    assert set(received) == set(sent)
