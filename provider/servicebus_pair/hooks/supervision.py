"""The work of a task ends with the process that supervises it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

__all__ = ["while_supervised"]

_log = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 1.0


@asynccontextmanager
async def while_supervised() -> AsyncIterator[None]:
    """Cancel the block when the supervisor of this task's process has died.

    Airflow's supervisor tells the scheduler that a task is alive, and takes its result. When it is
    killed, its child goes on unheard of (measured, Airflow 3.3.2), beside the next try, for as long as
    its work lasts. Outside a supervised task, as in ``dag.test``, nothing is watched.

    :raises asyncio.CancelledError: in the block, within a second or two of the supervisor's end.
    """
    working, supervisor = asyncio.current_task(), _supervisor()
    if working is None or supervisor is None:
        yield
        return

    async def watch() -> None:
        while os.getppid() == supervisor:  # noqa: ASYNC110  the system tells nobody
            await asyncio.sleep(_LOOK_SECONDS)
        _log.warning("the supervisor, process %d, has ended: this try ends too, the next one goes on", supervisor)
        working.cancel()

    watching = asyncio.create_task(watch(), name="supervision")
    try:
        yield
    finally:
        watching.cancel()


def _supervisor() -> int | None:
    """Return the process id of the supervisor; the one of ``dag.test`` is in this process and not asynchronous."""
    from airflow.sdk.execution_time import task_runner

    return os.getppid() if hasattr(getattr(task_runner, "SUPERVISOR_COMMS", None), "asend") else None
