"""Pauses, resumes and throttles a pair's syphon while it runs.

The control is one value, ``syphon_control``, in the state of the asset ``servicebus-pair://CONN_ID``. The page of the
pairs writes it; every ``ServiceBusPairSyphonOperator`` of the pair polls it. The last writer wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.airflow_runtime.state.accessor import AssetState, count_running_tasks, count_unfinished_tasks
from servicebus_pair.assets import pair_asset
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import get_logger

if TYPE_CHECKING:
    from servicebus_pair.core import Syphon

_log = get_logger(__name__)
SYPHON_CONTROL_KEY: Final = "syphon_control"
_POLL_SECONDS: Final = 3.0
_MAX_TEXT: Final = 1000
# The end of the year 9999.
_LATEST: Final = 253_402_300_799


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonControl:
    """The requested state of a pair's syphon.

    :param paused: receive no further messages; those already received are settled.
    :param rate: limit in messages per second for all tasks of a drain together, in addition to each task's own limit;
        ``None`` for no limit.
    :param by: who last paused or resumed.
    :param reason: why.
    :param at: when, in seconds since the Unix epoch.
    :param rate_by: who last changed the rate.
    :param rate_reason: why.
    :raises ConfigurationError: the rate is not above 0, or the time is none.
    """

    paused: bool = False
    rate: float | None = None
    by: str = ""
    reason: str = ""
    at: float = 0.0
    rate_by: str = ""
    rate_reason: str = ""

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise ConfigurationError(f"rate is {self.rate!r}: it must be above 0 messages a second, or None")
        if not 0 <= self.at <= _LATEST:
            raise ConfigurationError(f"at is {self.at!r}: it must be a time")

    def effective_rate(self, task_rate: float | None, *, tasks: int = 1) -> float | None:
        """Return the lower of the task's own limit and its share of the requested one.

        :param tasks: how many tasks share the requested limit.
        """
        share = None if self.rate is None else self.rate / tasks
        return min((each for each in (task_rate, share) if each is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form; the state store rejects null, so no limit is written as a rate of 0."""
        return {**asdict(self), "rate": 0.0 if self.rate is None else self.rate}

    @classmethod
    def from_json(cls, value: Any) -> SyphonControl:
        """Parse the stored form.

        :raises ValueError: it is not one.
        """
        try:
            rate = float(value["rate"])
            return cls(
                paused=value["paused"] is True,
                rate=rate if rate > 0 else None,
                by=str(value["by"])[:_MAX_TEXT],
                reason=str(value["reason"])[:_MAX_TEXT],
                at=float(value["at"]),
                rate_by=str(value.get("rate_by", ""))[:_MAX_TEXT],
                rate_reason=str(value.get("rate_reason", ""))[:_MAX_TEXT],
            )
        except (AttributeError, KeyError, TypeError, OverflowError, RecursionError, ConfigurationError) as error:
            raise ValueError(f"not a syphon control, {type(error).__name__}: {error}") from error


async def syphon_control(conn_id: str) -> SyphonControl:
    """Return the requested state of the syphon: the default one when none is stored or it cannot be parsed."""
    value = await AssetState(pair_asset(conn_id)).get(SYPHON_CONTROL_KEY)
    if value is None:
        return SyphonControl()
    try:
        return SyphonControl.from_json(value)
    except ValueError as error:
        _log.warning("conn_id=%s: ignoring the control of its syphon: %s", conn_id, error)
        return SyphonControl()


async def wait_until_resumed(conn_id: str) -> SyphonControl:
    """Wait while the syphon is paused, then return the control that resumed it."""
    while (control := await syphon_control(conn_id)).paused:  # noqa: ASYNC110  another process decides
        await asyncio.sleep(_POLL_SECONDS)
    return control


@asynccontextmanager
async def apply_control(
    conn_id: str, syphon: Syphon, *, rate: float | None, stopped: asyncio.Event
) -> AsyncIterator[None]:
    """Apply the requested state to ``syphon`` every few seconds, for the length of the block.

    :param rate: the task's own limit, in messages per second, which the instances of a mapped task share.
    :param stopped: set when a pause stopped the syphon; the task then waits outside the worker.
    """
    requested: float | None = None  # the syphon was created without a requested limit

    async def apply() -> None:
        nonlocal requested
        control = await syphon_control(conn_id)
        if control.rate != requested:
            _log.info("rate limited to %s/s by %s: %s", control.rate or "any", control.rate_by, control.rate_reason)
            requested = control.rate
        tasks = 1 if control.rate is None else await count_running_tasks()
        share = None if rate is None else rate / await count_unfinished_tasks()
        limit = control.effective_rate(share, tasks=tasks)
        if limit != syphon.rate:
            _log.info("this task moves at most %s messages/s", "any number of" if limit is None else f"{limit:g}")
            syphon.rate = limit
        if control.paused:
            # Repeated at each poll, because a stop before the drain has started has no effect.
            _log.info("the syphon is paused by %s: %s", control.by, control.reason)
            stopped.set()
            syphon.stop()

    async def poll() -> None:
        while True:
            await apply()
            await asyncio.sleep(_POLL_SECONDS)

    # Once before the block, so that the limit holds from the first message.
    await apply()
    poller = asyncio.create_task(poll(), name="poll syphon control")
    try:
        yield
    finally:
        poller.cancel()
        await asyncio.wait({poller})
