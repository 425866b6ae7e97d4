"""Collects the status of both namespaces of a pair, within a time limit.

A query without a response keeps its previous result.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from servicebus_pair.core import Endpoint, PairSettings
from servicebus_pair.core.errors import ConfigurationError, ServiceError
from servicebus_pair.core.model import get_logger, is_folder, scrub
from servicebus_pair.ui.sources.reachability_probe import ProbeError, probe_namespace
from servicebus_pair.ui.views import DeadLetterView, NamespaceView, SpoolView

if TYPE_CHECKING:
    from servicebus_pair.core.protocol import BacklogPlan
    from servicebus_pair.core.sdk import NamespaceClient, QueueDepth, ReceivedMessage
    from servicebus_pair.core.spool import SpooledEntity

_log = get_logger(__name__)
_PROBE_TIMEOUT: Final = 3.0
_CALL_TIMEOUT: Final = 4.0
# Queue descriptions rarely change, and each listing is billed.
_PLAN_INTERVAL: Final = 60.0
# Peeks are billed for each queue with messages.
_PEEK_INTERVAL: Final = 15.0
# Half a minute at the default interval, enough to see the backlog shrink.
_MAX_COUNTS: Final = 7
_MAX_PEEKED_QUEUES: Final = 100
_MAX_DEAD_LETTERS: Final = 20
_MAX_CHARACTERS: Final = 300
# Their library calls the provider of the cloud, or what the environment of this server names, and no host of the URL.
_STORE_WITHOUT_HOST: Final = re.compile(r"(?:s3|s3a|gs|gcs|abfs|abfss|az)://[\w.@-]+(?:/.*)?", re.ASCII)
_NOT_LOOKED_INTO: Final = "not looked into: its URL may name any host, see [servicebus_pair] page_pairs"
_CANNOT_OPEN: Final = "this server cannot open it, and its log says why"
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class PeekResult:
    """Result of peeking into the backlog queues; times are seconds since the Unix epoch.

    :param oldest: enqueued time of the oldest message of each queue, by casefolded path.
    :param waiting: number of peeked messages for each entity, by casefolded path.
    :param waiting_since: enqueued time of the oldest of them.
    :param reasons: number of peeked dead letters by reason.
    """

    oldest: Mapping[str, float] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    waiting_since: Mapping[str, float] = field(default_factory=dict)
    dead_letters: Sequence[DeadLetterView] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """Last known status of both namespaces.

    :param depths: of the backlog queues at ``counted_at``; ``None`` before the first count.
    :param counted_at: seconds since the Unix epoch.
    :param counts: recent times and total numbers of active messages, oldest first.
    :param error: why the last count failed.
    :param operations: billed operations that collecting has taken.
    """

    primary: NamespaceView
    secondary: NamespaceView
    depths: Sequence[QueueDepth] | None = None
    counted_at: float | None = None
    counts: Sequence[tuple[float, int]] = ()
    error: str | None = None
    plan: BacklogPlan | None = None
    spool: SpoolView = field(default_factory=SpoolView)
    peeked: PeekResult = field(default_factory=PeekResult)
    operations: int = 0


def unwatched(settings: PairSettings, reason: str) -> PairStatus:
    """Return the status of a pair whose namespaces are not queried, with the reason."""
    primary, secondary = (
        NamespaceView(name=each.namespace, error=reason) for each in (settings.primary, settings.secondary)
    )
    return PairStatus(primary=primary, secondary=secondary, error=reason)


class Collector:
    """Collects the status of one pair; :meth:`collect` must not run concurrently.

    Each call makes two unbilled probes and one management call, another one each minute, and, while the backlog holds
    messages, one peek into each queue with messages every 15 s, except those that require sessions.

    :param any_store: look also into a spool whose URL may name a host.
    :ivar status: the last status; may be replaced by that of another process.
    """

    def __init__(self, settings: PairSettings, *, any_store: bool = False) -> None:
        from servicebus_pair.core import NamespacePair

        self.settings = settings
        options = replace(settings.options, enable_syphon=False)
        self._spool_problem = None
        if not any_store and not _names_no_host(options.spool):
            # Not even opened, which calls the host of some.
            self._spool_problem, options = _NOT_LOOKED_INTO, replace(options, spool=None)
        # Only its administration is used. The pair is never opened, which would start a syphon and pings.
        make_pair = partial(NamespacePair, settings.primary, settings.secondary)
        try:
            self._pair = make_pair(options)
        except ConfigurationError as error:
            self._pair = make_pair(replace(options, spool=None))
            self._spool_problem = _CANNOT_OPEN
            _log.warning("this server cannot open the spool of primary=%s: %s", settings.primary.namespace, error)
        self._planned_at = self._peeked_at = -_PLAN_INTERVAL
        self._metered = 0
        self.status = PairStatus(
            primary=NamespaceView(name=settings.primary.namespace),
            secondary=NamespaceView(name=settings.secondary.namespace),
        )

    async def collect(self) -> PairStatus:
        """Query both namespaces and return the new status; takes at most 15 s, even if both are dead."""
        primary, secondary, depths, spool = await asyncio.gather(
            _probe(self.settings.primary, self.status.primary),
            _probe(self.settings.secondary, self.status.secondary),
            _result_or_error(self._pair.backlog_depths(), "count"),
            self._spool(),
        )
        status = replace(self.status, primary=primary, secondary=secondary, spool=spool)
        if isinstance(depths, str):
            status = replace(status, error=depths)
        else:
            now = time.time()
            counts = [*status.counts, (now, sum(depth.active for depth in depths))][-_MAX_COUNTS:]
            status = replace(status, depths=depths, counted_at=now, counts=counts, error=None)
            status = await self._with_details(status, depths)
        metered = self._pair.meter.read().total
        self.status = replace(status, operations=status.operations + metered - self._metered)
        self._metered = metered
        return self.status

    async def _spool(self) -> SpoolView:
        options = self.settings.options
        if options.spool is None:
            return SpoolView()
        if self._spool_problem is not None:
            return SpoolView(configured=True, limit_bytes=options.spool_max_bytes, error=self._spool_problem)
        result = await _result_or_error(self._look_into_spool(), "list the spool")
        if isinstance(result, str):
            return replace(self.status.spool, configured=True, limit_bytes=options.spool_max_bytes, error=result)
        name, found = result
        return SpoolView(
            configured=True,
            messages={entity: each.messages for entity, each in found.items()},
            size_bytes=sum(each.size_bytes for each in found.values()),
            limit_bytes=options.spool_max_bytes,
            oldest_at=min((each.oldest_at for each in found.values()), default=None),
            name=name,
        )

    async def _look_into_spool(self) -> tuple[str | None, Mapping[str, SpooledEntity]]:
        return await self._pair.spool_name(), await self._pair.spooled()

    async def _with_details(self, status: PairStatus, depths: Sequence[QueueDepth]) -> PairStatus:
        """Add what is queried less often: the plan and the peeked messages."""
        now = time.monotonic()
        if now - self._planned_at >= _PLAN_INTERVAL:
            plan = await _result_or_error(self._pair.plan(), "compare")
            if not isinstance(plan, str):
                status, self._planned_at = replace(status, plan=plan), now
        if not any(depth.active or depth.dead_lettered for depth in depths):
            return replace(status, peeked=PeekResult())
        if now - self._peeked_at >= _PEEK_INTERVAL:
            peeked = await _result_or_error(self._peek(depths), "peek")
            if not isinstance(peeked, str):
                status, self._peeked_at = replace(status, peeked=peeked), now
        return status

    async def _peek(self, depths: Sequence[QueueDepth]) -> PeekResult:
        from servicebus_pair.core.protocol import is_session_queue
        from servicebus_pair.core.sdk import NamespaceClient

        namespace = self.settings.primary.namespace
        client = NamespaceClient(self.settings.secondary, meter=self._pair.meter)
        try:
            # To peek a session one must lock it, which would hold up a syphon and the failback.
            readable = [depth.path for depth in depths if depth.active and not is_session_queue(namespace, depth.path)]
            active = readable[:_MAX_PEEKED_QUEUES]
            dead = [depth.path for depth in depths if depth.dead_lettered][:_MAX_PEEKED_QUEUES]
            active_pages = await asyncio.gather(*(_peek_page(client, path) for path in active))
            dead_pages = await asyncio.gather(*(_peek_page(client, path, dead_letter=True) for path in dead))
        finally:
            await client.close()
        return _summarize(dict(zip(active, active_pages, strict=True)), dict(zip(dead, dead_pages, strict=True)))


def _names_no_host(spool: str | None) -> bool:
    return spool is None or is_folder(spool) or _STORE_WITHOUT_HOST.fullmatch(spool) is not None


async def _peek_page(client: NamespaceClient, path: str, *, dead_letter: bool = False) -> list[Any]:
    from servicebus_pair.core.sdk import MessageBrowser

    link = client.receive_link(path, dead_letter=dead_letter)
    try:
        browser = MessageBrowser(link, page_size=50, timeout=_CALL_TIMEOUT)
        return await anext(browser.readable_pages(), [])
    finally:
        await link.close()


def _summarize(
    active: Mapping[str, Sequence[ReceivedMessage]], dead: Mapping[str, Sequence[ReceivedMessage]]
) -> PeekResult:
    oldest: dict[str, float] = {}
    waiting_since: dict[str, float] = {}
    waiting: Counter[str] = Counter()
    for path, page in active.items():
        for message in page:
            destination, at = (_destination(message) or "").casefold(), message.enqueued_time
            if at is not None:
                _keep_minimum(oldest, path.casefold(), at.timestamp())
            if destination:
                waiting[destination] += 1
                if at is not None:
                    _keep_minimum(waiting_since, destination, at.timestamp())
    letters = [_dead_letter_view(path, message) for path, page in dead.items() for message in page]
    newest = sorted(letters, key=lambda letter: letter.at or 0.0, reverse=True)
    return PeekResult(
        oldest=oldest,
        waiting=dict(waiting),
        waiting_since=waiting_since,
        dead_letters=newest[:_MAX_DEAD_LETTERS],
        reasons=dict(Counter(letter.reason for letter in letters)),
    )


def _keep_minimum(values: dict[str, float], name: str, value: float) -> None:
    values[name] = min(values.get(name, value), value)


def _dead_letter_view(path: str, message: ReceivedMessage) -> DeadLetterView:
    at = message.enqueued_time
    return DeadLetterView(
        queue=path,
        message_id=str(message.message_id or "")[:_MAX_CHARACTERS],
        reason=scrub(str(message.dead_letter_reason or "no reason given"))[:_MAX_CHARACTERS],
        description=scrub(str(message.dead_letter_error_description or ""))[:_MAX_CHARACTERS],
        destination=_destination(message),
        at=None if at is None else at.timestamp(),
    )


def _destination(message: ReceivedMessage) -> str | None:
    from servicebus_pair.core.protocol import destination_of

    return destination_of(message.amqp)


async def _probe(endpoint: Endpoint, previous: NamespaceView) -> NamespaceView:
    error: str | None = None
    seconds = 0.0
    try:
        seconds = await probe_namespace(endpoint, timeout=_PROBE_TIMEOUT)
    except TimeoutError:
        error = f"no response within {_PROBE_TIMEOUT:.0f} s"
    except ssl.SSLError as failure:
        error = f"TLS: {failure.reason}"
    except OSError as failure:
        error = str(failure) if isinstance(failure, ProbeError) else failure.strerror or type(failure).__name__
    now, reachable = time.time(), error is None
    return NamespaceView(
        name=previous.name,
        reachable=reachable,
        latency_ms=round(seconds * 1000, 2) if reachable else None,
        error=error,
        checked_at=now,
        since=previous.since if previous.reachable is reachable else now,
    )


async def _result_or_error(call: Awaitable[ResultT], verb: str) -> ResultT | str:
    """Return the result of a call, or what kind of error it ended with, for display."""
    try:
        return await asyncio.wait_for(call, _CALL_TIMEOUT)
    except TimeoutError:
        return f"no response within {_CALL_TIMEOUT:.0f} s"
    except Exception as error:  # noqa: BLE001  an unexpected SDK error must not stop the collector
        # Its class only: its text repeats what the host answered, to viewers who may not choose the host.
        _log.log(
            logging.DEBUG if isinstance(error, ServiceError) else logging.WARNING,
            *("cannot %s the backlog: %r", verb, scrub(str(error))),
            exc_info=not isinstance(error, ServiceError),
        )
        return f"{verb}: {type(error).__name__}"
