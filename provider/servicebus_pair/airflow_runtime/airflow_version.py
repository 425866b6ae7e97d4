"""Checks the Airflow version; called by every package that only works inside Airflow.

The check is not in the top-level package, because its core works without Airflow. It is not in the provider's
metadata either, because an error there would keep Airflow from starting.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["require_airflow"]

_MINIMUM: Final = (3, 3)


def require_airflow() -> None:
    """Check that Airflow is recent enough.

    :raises RuntimeError: it is too old; the message names both versions and the remedies.
    """
    from airflow import __version__ as installed

    if tuple(map(int, re.findall(r"\d+", installed)[:2])) < _MINIMUM:
        minimum = ".".join(map(str, _MINIMUM))
        raise RuntimeError(
            f"airflow-provider-servicebus-pair needs Airflow {minimum} or later; found {installed}: tasks share the "
            f"health of entities through the state store of assets, which was added in {minimum}; upgrade Airflow, or "
            "use servicebus_pair.core, which needs no Airflow"
        )
