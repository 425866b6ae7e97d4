"""Managing the queues of a namespace: over its own administration API, or Azure Resource Manager (SPEC section 3)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from servicebus_pair.core.model.options import Endpoint
from servicebus_pair.core.model.usage_meter import Meter
from servicebus_pair.core.sdk.administration.data_plane import Administration, QueueDepth, ServiceBusAdministration

__all__ = ["Administration", "QueueDepth", "administration_for"]


def administration_for(
    endpoint: Endpoint, *, meter: Meter | None = None
) -> AbstractAsyncContextManager[Administration]:
    """Return the administration client of a namespace: through Resource Manager if ``endpoint.arm`` is set.

    :param meter: counts the calls.
    """
    if endpoint.arm is None:
        return ServiceBusAdministration(endpoint, meter=meter)
    # azure-mgmt-servicebus costs 54 ms to import, so it is loaded only when needed.
    from servicebus_pair.core.sdk.administration.arm import ArmAdministration

    return ArmAdministration(endpoint, endpoint.arm, meter=meter)
