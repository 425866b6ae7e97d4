from __future__ import annotations

import json

from servicebus_pair.airflow_runtime.syphon_control import SyphonControl


def test_json_round_trip_and_smallest_rate():
    control = SyphonControl(paused=True, rate=12.5, by="anna", reason="<b>", at=5.0)

    assert SyphonControl.from_json(json.loads(json.dumps(control.to_json()))) == control
    assert SyphonControl.from_json(SyphonControl().to_json()) == SyphonControl()
    assert (control.effective_rate(None), control.effective_rate(5), control.effective_rate(50)) == (12.5, 5, 12.5)
    assert [control.effective_rate(None, tasks=5), control.effective_rate(2, tasks=5)] == [2.5, 2]
    assert SyphonControl().effective_rate(None, tasks=5) is None
