"""Closing a link of azure-servicebus (7.15) without a second of waiting for nothing.

An open link has a task that keeps its connection alive. It sleeps for a second at a time, and
closing the link waits for the end of that sleep, last of all, when nothing is left to be kept alive.
Every send whose link breaks would pay that second, since the SDK closes what broke before it says so, and
so would every short-lived process, such as a task of Airflow or of Spark.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from typing import Any, Final

from servicebus_pair.core.sdk_names import absent

__all__ = ["closes_promptly"]

_TASK: Final = "_keep_alive_thread"
_CLOSES: Final = "close_async"
_SLOWER: Final = "closing a link takes up to a second more"


def closes_promptly(inner: Any) -> None:
    """Have the AMQP client inside a sender or receiver end its keep-alive task before it closes, whoever closes it.

    Should a newer SDK lack one of the names, it closes as it likes, and the log says so.
    """
    if absent(inner, (_TASK, _CLOSES), costs=_SLOWER):
        return
    close = inner.close_async

    async def close_soon() -> None:
        task, inner._keep_alive_thread = inner._keep_alive_thread, None
        # It is forgotten as well: the SDK would take its cancellation for one of its own closing.
        if task is not None:
            task.cancel()
        await close()

    inner.close_async = close_soon
