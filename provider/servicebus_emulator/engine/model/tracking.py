"""What the service appends to the text of an error: an id to quote to its support, where it happened, and when.

The id differs from error to error, so that clients cannot compare texts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4


def tracked(text: str, *, system: str = "NoSystemTracker") -> str:
    """Return the text of an error as a client of the service sees it.

    :param system: namespace and entity; the service, too, does not always name them.
    """
    now = datetime.now(UTC)
    return f"{text} TrackingId:{uuid4()}_G0, SystemTracker:{system}, Timestamp:{now:%Y-%m-%dT%H:%M:%S}"
