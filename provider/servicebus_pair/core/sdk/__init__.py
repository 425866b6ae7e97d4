"""The Azure SDK behind our own types: clients, links, credentials, administration, error mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.sdk.administration import QueueDepth
    from servicebus_pair.core.sdk.administration.entities import EntityAdministration, EntityName
    from servicebus_pair.core.sdk.message_browser import MessageBrowser
    from servicebus_pair.core.sdk.namespace_client import NamespaceClient
    from servicebus_pair.core.sdk.receive_link import ReceiveLink
    from servicebus_pair.core.sdk.received_message import MessageState, ReceivedMessage
    from servicebus_pair.core.sdk.session_browser import SessionBrowser

__all__ = [
    "EntityAdministration",
    "EntityName",
    "MessageBrowser",
    "MessageState",
    "NamespaceClient",
    "QueueDepth",
    "ReceiveLink",
    "ReceivedMessage",
    "SessionBrowser",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "administration": ["QueueDepth"],
        "administration.entities": ["EntityAdministration", "EntityName"],
        "message_browser": ["MessageBrowser"],
        "namespace_client": ["NamespaceClient"],
        "receive_link": ["ReceiveLink"],
        "received_message": ["MessageState", "ReceivedMessage"],
        "session_browser": ["SessionBrowser"],
    },
)
