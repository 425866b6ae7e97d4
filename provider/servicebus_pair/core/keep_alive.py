"""Closing a link of azure-servicebus (7.15) without a second of waiting for nothing.

An open link has a task that keeps its connection alive. It sleeps for a second at a time, and
closing the link waits for the end of that sleep, last of all, when nothing is left to be kept alive.
Every short-lived process, such as a task of Airflow or of Spark, would pay that second.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from typing import Any, Final

from servicebus_pair.core.sdk_names import absent

__all__ = ["end_keep_alive"]

_TASK: Final = "_keep_alive_thread"
_SLOWER: Final = "closing a link takes up to a second more"


def end_keep_alive(handler: Any) -> None:
    """End the keep-alive task of a sender or receiver, which is about to be closed.

    What has no open link has no such task. Should a newer SDK lack the name, nothing is done but a note in the log.
    """
    inner = getattr(handler, "_handler", None)
    if inner is None or absent(inner, (_TASK,), costs=_SLOWER):
        return
    task = inner._keep_alive_thread
    if task is not None:
        # It is forgotten as well: the SDK would take its cancellation for one of its own closing.
        inner._keep_alive_thread = None
        task.cancel()
