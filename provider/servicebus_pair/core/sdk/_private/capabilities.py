"""Which way this process takes into azure-servicebus: the fast path through private names, or the public interface.

The fast path is taken on the versions that the tests ran with, and only there. Any other version may have renamed what
the fast path uses, or worse, changed what it means: there the public interface does everything, more slowly, and one
warning says so.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from azure.core.settings import settings
from azure.servicebus import __version__

from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.sdk._private.decode_limits import limit_arrays, limit_messages
from servicebus_pair.core.sdk._private.frame_checks import limit_frames
from servicebus_pair.core.sdk._private.sender_patches import limit_settlements
from servicebus_pair.core.sdk._private.turns import take_turns

_log = get_logger(__name__)
TESTED_VERSIONS: Final = ("7.15.0",)
"""The versions of azure-servicebus that all tests were run with; the only ones on which private names are used."""
PATH_VARIABLE: Final = "SERVICEBUS_PAIR_SDK_PATH"
"""Environment variable for comparisons: ``public`` selects the public interface on every version, and ``decode`` the
fast path without links that leave messages encoded."""


@cache
def fast_path() -> bool:
    """Return whether private names of azure-servicebus are used; decided once per process."""
    if (unlimited := limit_arrays()) is not None:
        _log.warning("azure-servicebus %s: arrays in messages are not limited: %s", __version__, unlimited)
    if os.environ.get(PATH_VARIABLE) == "public":
        _log.info("%s=public: azure-servicebus is used through its public interface only", PATH_VARIABLE)
        return False
    reason = _obstacle()
    if reason is None:
        limit_frames()
        limit_messages()
        limit_settlements()
        take_turns()
        return True
    _log.warning(
        "azure-servicebus %s is used through its public interface only, which is slower: %s", __version__, reason
    )
    return False


def relays() -> bool:
    """Return whether a syphon moves encoded messages without decoding them; asked when a pair is opened."""
    return os.environ.get(PATH_VARIABLE) != "decode" and fast_path() and not tracing()


def _obstacle() -> str | None:
    """Return why the fast path cannot be taken, or ``None``."""
    if __version__ not in TESTED_VERSIONS:
        return f"the fast path was tested with {', '.join(TESTED_VERSIONS)}"
    try:
        # All private names that are imported; the attributes of this version are known.
        from azure.servicebus._pyamqp._encode import encode_payload  # noqa: F401 - probed
        from azure.servicebus._pyamqp.constants import SessionState, SessionTransferState  # noqa: F401 - probed
        from azure.servicebus._pyamqp.message import Header, Message, Properties  # noqa: F401 - probed
    except ImportError as error:
        return f"this build of it differs ({error})"
    return None


def tracing() -> bool:
    """Return whether the SDK traces: then it adds a context to each message while it encodes, so we must not."""
    return settings.tracing_implementation() is not None
