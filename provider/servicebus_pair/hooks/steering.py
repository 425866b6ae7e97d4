"""How people steer the syphon of a pair while it runs: pause it, let it go on, or make it slower.

One value, ``syphon_control``, in the state of ``servicebus-pair://CONN_ID``. The page of the pairs writes it; every
``ServiceBusPairSyphonOperator`` of the pair reads it every few seconds and obeys. The last writer wins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.assets import pair_asset
from servicebus_pair.hooks.state import AssetState, tasks_at_work

if TYPE_CHECKING:
    from servicebus_pair.core.syphon import Syphon

__all__ = ["SYPHON_CONTROL_KEY", "SyphonControl", "obeying", "syphon_control", "wait_until_resumed"]

_log = logging.getLogger(__name__)
SYPHON_CONTROL_KEY: Final = "syphon_control"
_LOOK_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonControl:
    """What somebody wants of the syphon.

    :param paused: take no messages; what is in hand is settled.
    :param rate: most messages a second of all tasks of a drain together, beside the limit of each; ``None`` for none.
    :param by: who said last whether to pause.
    :param reason: why.
    :param at: since when, seconds since the Unix epoch.
    :param rate_by: who said last how fast.
    :param rate_reason: why.
    :raises ConfigurationError: the rate is not above 0.
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

    def slowed(self, rate: float | None, *, among: int = 1) -> float | None:
        """Return the smaller of both limits.

        :param rate: of the task itself.
        :param among: how many tasks share the limit that is wanted.
        """
        share = None if self.rate is None else self.rate / among
        return min((each for each in (rate, share) if each is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """The form in which it is kept, which has no null."""
        return {
            "paused": self.paused,
            "rate": 0.0 if self.rate is None else self.rate,
            "by": self.by,
            "reason": self.reason,
            "at": self.at,
            "rate_by": self.rate_by,
            "rate_reason": self.rate_reason,
        }

    @classmethod
    def from_json(cls, value: Any) -> SyphonControl:
        """Read what :meth:`to_json` wrote. :raises ValueError: it is not such a value."""
        try:
            rate = float(value["rate"])
            return cls(
                paused=value["paused"] is True,
                rate=rate if rate > 0 else None,
                by=str(value["by"]),
                reason=str(value["reason"]),
                at=float(value["at"]),
                rate_by=str(value.get("rate_by", "")),
                rate_reason=str(value.get("rate_reason", "")),
            )
        except (AttributeError, KeyError, TypeError, ConfigurationError) as error:
            raise ValueError(f"not a syphon control, {type(error).__name__}: {error}") from error


async def syphon_control(conn_id: str) -> SyphonControl:
    """Return what is wanted of the syphon; what cannot be read counts as nothing."""
    value = await AssetState(pair_asset(conn_id)).get(SYPHON_CONTROL_KEY)
    if value is None:
        return SyphonControl()
    try:
        return SyphonControl.from_json(value)
    except ValueError as error:
        _log.warning("conn_id=%s: the control of its syphon is ignored: %s", conn_id, error)
        return SyphonControl()


async def wait_until_resumed(conn_id: str) -> SyphonControl:
    """Return what is wanted of the syphon as soon as it is not paused."""
    while (wanted := await syphon_control(conn_id)).paused:  # noqa: ASYNC110  another process decides
        await asyncio.sleep(_LOOK_SECONDS)
    return wanted


@asynccontextmanager
async def obeying(conn_id: str, syphon: Syphon, *, rate: float | None, stopped: asyncio.Event) -> AsyncIterator[None]:
    """Have ``syphon`` do what is wanted of it, within a few seconds, for as long as the context lasts.

    :param rate: the limit of the task itself, messages a second.
    :param stopped: set when the syphon is stopped because it is to pause: a worker is not for waiting.
    """
    known = SyphonControl()  # as the syphon was made

    async def slow(wanted: SyphonControl) -> None:
        nonlocal known
        among = 1 if wanted.rate is None else await tasks_at_work()
        if wanted.rate != known.rate:
            _log.info(
                "at most %s messages a second, by %s: %s", wanted.rate or "any", wanted.rate_by, wanted.rate_reason
            )
        known = wanted
        limit = wanted.slowed(rate, among=among)
        if limit != syphon.rate:
            syphon.rate = limit

    async def obey() -> None:
        while True:
            wanted = await syphon_control(conn_id)
            await slow(wanted)
            if wanted.paused:
                # Again and again: a stop before the drain has begun is none.
                _log.info("the syphon is paused by %s: %s", wanted.by, wanted.reason)
                stopped.set()
                syphon.stop()
            await asyncio.sleep(_LOOK_SECONDS)

    # The limit holds from the first message on.
    await slow(await syphon_control(conn_id))
    task = asyncio.create_task(obey(), name="steering")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
