"""Looks at the two namespaces of one pair, bounded in time, and remembers the last answer to each question."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.core.errors import ServiceError
from servicebus_pair.core.options import Endpoint
from servicebus_pair.ui.greeting import greet
from servicebus_pair.ui.snapshot import DeadLetterView, NamespaceView

if TYPE_CHECKING:
    from servicebus_pair.core.administration import QueueDepth
    from servicebus_pair.core.backlog import BacklogPlan
    from servicebus_pair.core.clients import NamespaceClient

__all__ = ["Look", "Looker", "Peeked"]

_log = logging.getLogger(__name__)
_GREETING_SECONDS: Final = 3.0
_CALL_SECONDS: Final = 4.0
# Shapes of queues change by hand only, and each listing is billed.
_PLAN_SECONDS: Final = 60.0
# A peek into each queue that holds something: ages and destinations need not be newer than that.
_PEEK_SECONDS: Final = 15.0
# Half a minute of looks, by which a drain of somebody else is seen.
_MOST_COUNTS: Final = 7
_MOST_PEEKED_QUEUES: Final = 100
_MOST_DEAD_LETTERS: Final = 20
_MOST_CHARACTERS: Final = 300
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Peeked:
    """What peeking into the queues told; times are seconds since the Unix epoch.

    :param oldest: when the oldest message of each queue arrived, by folded path.
    :param waiting: messages for each entity among those that were seen, by folded path.
    :param waits_since: when the oldest of them arrived.
    :param reasons: of dead letters, how many.
    """

    oldest: Mapping[str, float] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    waits_since: Mapping[str, float] = field(default_factory=dict)
    dead_letters: Sequence[DeadLetterView] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The last answers of both namespaces, however old.

    :param depths: of the backlog queues; ``None`` before the first count.
    :param counted_at: when, seconds since the Unix epoch.
    :param counts: the last of them: when, and how many messages there were in all.
    :param error: why they could not be counted the last time.
    :param operations: that looking has taken.
    """

    primary: NamespaceView
    secondary: NamespaceView
    depths: Sequence[QueueDepth] | None = None
    counted_at: float | None = None
    counts: Sequence[tuple[float, int]] = ()
    error: str | None = None
    plan: BacklogPlan | None = None
    peeked: Peeked = field(default_factory=Peeked)
    operations: int = 0


class Looker:
    """Asks both namespaces of a pair; one call of :meth:`look` at a time.

    Greetings are free. A look takes one management call, and one more each minute; while the backlog holds messages,
    a peek into each of its queues every 15 s.

    :param settings: of the pair.
    :ivar last: the last answers; somebody else's may be put in their place.
    """

    def __init__(self, settings: PairSettings) -> None:
        from servicebus_pair.core.pair import NamespacePair

        self.settings = settings
        # Never opened, for looking must not begin a syphon or a ping: only its administration is used.
        self._pair = NamespacePair(settings.primary, settings.secondary, replace(settings.options, enable_syphon=False))
        self._planned_at = self._peeked_at = -_PLAN_SECONDS
        self._spent = 0
        self.last = Look(
            primary=NamespaceView(name=settings.primary.namespace),
            secondary=NamespaceView(name=settings.secondary.namespace),
        )

    async def look(self) -> Look:
        """Ask both namespaces, and return their answers; ends within 15 s, whatever they do."""
        primary, secondary, counted = await asyncio.gather(
            _greeted(self.settings.primary, self.last.primary),
            _greeted(self.settings.secondary, self.last.secondary),
            _answer(self._pair.backlog_depths(), "count"),
        )
        last = replace(self.last, primary=primary, secondary=secondary)
        if isinstance(counted, str):
            last = replace(last, error=counted)
        else:
            now = time.time()
            counts = [*last.counts, (now, sum(depth.active for depth in counted))][-_MOST_COUNTS:]
            last = replace(last, depths=counted, counted_at=now, counts=counts, error=None)
            last = await self._further(last, counted)
        spent = self._pair.meter.read().total
        self.last = replace(last, operations=last.operations + spent - self._spent)
        self._spent = spent
        return self.last

    async def _further(self, last: Look, depths: Sequence[QueueDepth]) -> Look:
        now = time.monotonic()
        if now - self._planned_at >= _PLAN_SECONDS:
            plan = await _answer(self._pair.plan(), "compare")
            if not isinstance(plan, str):
                last, self._planned_at = replace(last, plan=plan), now
        if not any(depth.active or depth.dead_lettered for depth in depths):
            return replace(last, peeked=Peeked())
        if now - self._peeked_at >= _PEEK_SECONDS:
            peeked = await _answer(self._peek(depths), "peek")
            if not isinstance(peeked, str):
                last, self._peeked_at = replace(last, peeked=peeked), now
        return last

    async def _peek(self, depths: Sequence[QueueDepth]) -> Peeked:
        from servicebus_pair.core.clients import NamespaceClient

        client = NamespaceClient(self.settings.secondary, meter=self._pair.meter)
        try:
            filled = [depth.path for depth in depths if depth.active][:_MOST_PEEKED_QUEUES]
            dead = [depth.path for depth in depths if depth.dead_lettered][:_MOST_PEEKED_QUEUES]
            pages = await asyncio.gather(*(_page(client, path) for path in filled))
            letters = await asyncio.gather(*(_page(client, path, dead_letter=True) for path in dead))
        finally:
            await client.close()
        return _peeked(dict(zip(filled, pages, strict=True)), dict(zip(dead, letters, strict=True)))


async def _page(client: NamespaceClient, path: str, *, dead_letter: bool = False) -> list[Any]:
    link = client.receive_link(path, dead_letter=dead_letter)
    try:
        return await link.peek(most=50, timeout=_CALL_SECONDS)
    finally:
        await link.close()


def _peeked(pages: Mapping[str, Sequence[Any]], letters: Mapping[str, Sequence[Any]]) -> Peeked:
    oldest: dict[str, float] = {}
    waits_since: dict[str, float] = {}
    waiting: Counter[str] = Counter()
    for path, page in pages.items():
        for message in page:
            destination, at = (_destination(message) or "").casefold(), message.enqueued_time_utc
            if at is not None:
                _least(oldest, path.casefold(), at.timestamp())
            if destination:
                waiting[destination] += 1
                if at is not None:
                    _least(waits_since, destination, at.timestamp())
    dead = [_letter(path, message) for path, page in letters.items() for message in page]
    newest = sorted(dead, key=lambda letter: letter.at or 0.0, reverse=True)
    return Peeked(
        oldest=oldest,
        waiting=dict(waiting),
        waits_since=waits_since,
        dead_letters=newest[:_MOST_DEAD_LETTERS],
        reasons=dict(Counter(each.reason for each in dead)),
    )


def _least(values: dict[str, float], name: str, value: float) -> None:
    values[name] = min(values.get(name, value), value)


def _letter(path: str, message: Any) -> DeadLetterView:
    at = message.enqueued_time_utc
    return DeadLetterView(
        queue=path,
        message_id=str(message.message_id or "")[:_MOST_CHARACTERS],
        reason=str(message.dead_letter_reason or "not given")[:_MOST_CHARACTERS],
        description=str(message.dead_letter_error_description or "")[:_MOST_CHARACTERS],
        destination=_destination(message),
        at=None if at is None else at.timestamp(),
    )


def _destination(message: Any) -> str | None:
    from servicebus_pair.core.envelope import unwrap
    from servicebus_pair.core.errors import UndeliverableError

    try:
        return unwrap(message.raw_amqp_message).entity
    except UndeliverableError:
        return None


async def _greeted(endpoint: Endpoint, before: NamespaceView) -> NamespaceView:
    error: str | None = None
    seconds = 0.0
    try:
        seconds = await greet(endpoint, seconds=_GREETING_SECONDS)
    except TimeoutError:
        error = f"no answer within {_GREETING_SECONDS:.0f} s"
    except ssl.SSLError as failure:
        error = f"TLS: {failure.reason}"
    except OSError as failure:
        error = failure.strerror or str(failure) or type(failure).__name__
    now, reachable = time.time(), error is None
    return NamespaceView(
        name=before.name,
        reachable=reachable,
        latency_ms=round(seconds * 1000, 2) if reachable else None,
        error=error,
        checked_at=now,
        since=before.since if before.reachable is reachable else now,
    )


async def _answer(call: Awaitable[AnswerT], doing: str) -> AnswerT | str:
    """The answer to a question, or why there is none."""
    try:
        return await asyncio.wait_for(call, _CALL_SECONDS)
    except TimeoutError:
        return f"no answer within {_CALL_SECONDS:.0f} s"
    except ServiceError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  what an SDK may still come up with must not end the looking
        _log.exception("cannot %s the backlog", doing)
        return type(error).__name__
