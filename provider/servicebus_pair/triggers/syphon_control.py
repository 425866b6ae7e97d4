"""``SyphonControlTrigger``: waits in the triggerer while the syphon of a pair is paused."""

from __future__ import annotations

from typing import Any

from servicebus_pair.airflow_runtime.syphon_control import wait_until_resumed
from servicebus_pair.airflow_runtime.waiting.deferral import DeferralTrigger

__all__ = ["SyphonControlTrigger"]


class SyphonControlTrigger(DeferralTrigger):
    """Fires once, when the syphon is no longer paused, with ``{"resumed_by": user}``. It connects to no namespace."""

    def __init__(self, *, servicebus_pair_conn_id: str, carry: dict[str, Any] | None = None) -> None:
        super().__init__(servicebus_pair_conn_id=servicebus_pair_conn_id, carry=carry)
        self.check_arguments()

    async def event_payload(self) -> dict[str, Any]:
        """Wait until the syphon is resumed."""
        return {"resumed_by": (await wait_until_resumed(self.servicebus_pair_conn_id)).by}
