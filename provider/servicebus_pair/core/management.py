"""Which way in a namespace is managed by: its own administration, or Azure Resource Manager (SPEC section 3)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from servicebus_pair.core.administration import Administration, ServiceBusAdministration
from servicebus_pair.core.meter import Meter
from servicebus_pair.core.options import Endpoint

__all__ = ["administration_of"]


def administration_of(endpoint: Endpoint, *, meter: Meter | None = None) -> AbstractAsyncContextManager[Administration]:
    """Answer the administration of a namespace, to be entered: through Resource Manager where it has ``arm``.

    :param meter: counts the calls.
    """
    if endpoint.arm is None:
        return ServiceBusAdministration(endpoint, meter=meter)
    # Importing azure-mgmt-servicebus is for those who use it.
    from servicebus_pair.core.arm_administration import ArmAdministration

    return ArmAdministration(endpoint, endpoint.arm, meter=meter)
