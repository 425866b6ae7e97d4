"""The Airflow that this provider needs, asked for wherever its parts for Airflow are first imported.

Not in the package itself, whose core works without Airflow, and not in the provider's metadata: an error there would
keep the whole of Airflow from starting.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["require_airflow"]

_NEEDED: Final = (3, 3)


def require_airflow() -> None:
    """Check that Airflow is new enough.

    :raises RuntimeError: it is not; naming both versions and what to do.
    """
    from airflow import __version__ as found

    if tuple(map(int, re.findall(r"\d+", found)[:2])) < _NEEDED:
        needed = ".".join(map(str, _NEEDED))
        raise RuntimeError(
            f"airflow-provider-servicebus-pair needs Airflow {needed} or later; found {found}: tasks share the health "
            f"of entities through the state store of assets, which came with {needed}; upgrade Airflow, or use "
            "servicebus_pair.core, which needs no Airflow"
        )
