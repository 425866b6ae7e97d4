"""The Azure SDK behind our own types: clients, links, credentials, administration, error mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.sdk.administration import QueueDepth
    from servicebus_pair.core.sdk.message_browser import MessageBrowser, sequence_number
    from servicebus_pair.core.sdk.namespace_client import NamespaceClient
    from servicebus_pair.core.sdk.receive_link import ReceiveLink
    from servicebus_pair.core.sdk.session_browser import SessionBrowser

__all__ = [
    "MessageBrowser",
    "NamespaceClient",
    "QueueDepth",
    "ReceiveLink",
    "SessionBrowser",
    "sequence_number",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "administration": ["QueueDepth"],
        "message_browser": ["MessageBrowser", "sequence_number"],
        "namespace_client": ["NamespaceClient"],
        "receive_link": ["ReceiveLink"],
        "session_browser": ["SessionBrowser"],
    },
)
