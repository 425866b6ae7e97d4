from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from servicebus_pair.airflow_runtime import syphon_control
from servicebus_pair.airflow_runtime.syphon_control import SyphonControl


class FakeSyphon:
    """Ignores a stop before its drain has started, as the syphon does."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self.draining = False
        self.ended = asyncio.Event()

    def stop(self) -> None:
        if self.draining:
            self.ended.set()


def test_json_round_trip_and_smallest_rate():
    control = SyphonControl(paused=True, rate=12.5, by="anna", reason="<b>", at=5.0)

    assert SyphonControl.from_json(json.loads(json.dumps(control.to_json()))) == control
    assert SyphonControl.from_json(SyphonControl().to_json()) == SyphonControl()
    assert (control.effective_rate(None), control.effective_rate(5), control.effective_rate(50)) == (12.5, 5, 12.5)
    assert [control.effective_rate(None, tasks=5), control.effective_rate(2, tasks=5)] == [2.5, 2]
    assert SyphonControl().effective_rate(None, tasks=5) is None


@pytest.mark.parametrize("name", ["at", "rate"])
@pytest.mark.parametrize("number", [float("inf"), 10**400, -(10**400)], ids=["inf", "+", "-"])
def test_a_number_that_is_no_time_or_rate_is_no_control(name: str, number: float):
    with pytest.raises(ValueError, match="not a syphon control"):
        SyphonControl.from_json({**SyphonControl(rate=5, at=5.0).to_json(), name: number})


async def test_a_paused_syphon_is_stopped_as_soon_as_its_drain_has_started(monkeypatch: pytest.MonkeyPatch):
    async def paused(_: str) -> SyphonControl:
        return SyphonControl(paused=True, by="anna", reason="maintenance")

    monkeypatch.setattr(syphon_control, "syphon_control", paused)
    syphon: Any = FakeSyphon()
    stopped = asyncio.Event()
    async with syphon_control.apply_control("contoso_pair", syphon, rate=None, stopped=stopped):
        syphon.draining = True
        await asyncio.wait_for(syphon.ended.wait(), syphon_control._POLL_SECONDS / 2)
    assert stopped.is_set()
