"""What the service appends to the texts of errors."""

from __future__ import annotations

import re


def tracked_pattern(system: str = "NoSystemTracker") -> str:
    """Return the pattern of an id, the place and the time of an error."""
    return rf"TrackingId:[0-9a-f-]{{36}}_G0, SystemTracker:{re.escape(system)}, Timestamp:\d{{4}}-\d\d-\d\dT[\d:]{{8}}"
