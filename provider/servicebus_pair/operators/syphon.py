"""``ServiceBusPairSyphonOperator``: waits for the primary off the worker, then drains the backlog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow.sdk import Context, conf
from airflow.sdk.exceptions import AirflowFailException

from servicebus_pair.core.errors import AuthorizationError, EntityNotFoundError, PairError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.results import DrainReport
from servicebus_pair.hooks.backlog import Until
from servicebus_pair.hooks.entities import entities_in_question
from servicebus_pair.hooks.lineage import TaskLineage
from servicebus_pair.hooks.news import HealthNews, announce_recovery
from servicebus_pair.hooks.sharing import watched_pair
from servicebus_pair.hooks.steering import obeying, syphon_control, wait_until_resumed
from servicebus_pair.hooks.waiting import PrimaryWait, check_interval, check_names
from servicebus_pair.operators.base import PairOperator
from servicebus_pair.operators.lineage import TellsLineage
from servicebus_pair.operators.parameters import check_early, choice, duration, flag, positive_rate
from servicebus_pair.triggers.backlog import rearm
from servicebus_pair.triggers.backlog_level import BacklogLevelTrigger
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger, check_event
from servicebus_pair.triggers.syphon_control import SyphonControlTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from servicebus_pair.core.survey import DestinationSurvey
    from servicebus_pair.core.syphon import Syphon

__all__ = ["BacklogLeftError", "ServiceBusPairSyphonOperator"]

_TELL_SECONDS: Final = 10.0
_SHORTEST_BURST: Final = timedelta(seconds=1)
_LONGEST_BURST: Final = timedelta(days=1)
# Somebody must give a right or provision first: no retry does.
_NOT_RETRIED: Final = (AuthorizationError, EntityNotFoundError)

ResultT = TypeVar("ResultT")


class BacklogLeftError(PairError):
    """A drain ended with messages left in the backlog; the same drain may succeed later."""

    retriable = True


class ServiceBusPairSyphonOperator(TellsLineage, PairOperator):
    """Moves what the backlog queues hold to their entities on the primary (SPEC section 6).

    It pings the entities. If one does not answer, the task defers until all do, and occupies no
    worker; messages are moved in a worker only, in bursts, with progress in the log. A primary that
    fails again while it drains is waited for again, without a retry of the task. At least once: a
    message leaves the backlog after the primary confirmed it. A killed or retried task goes on where
    it was; several may run at once, one per queue when mapped over ``queues``.

    The result is ``{"moved": {entity: n}, "dead_lettered": {reason: n}, "left": n,
    "duplicates_possible": n}``, over all bursts of one try. That of a dry run is ``{"waiting": {entity:
    {"messages": n, "bytes": n, "oldest_seconds": x, "newest_seconds": x}}, "undeliverable": {reason: n},
    "unreadable": n}``: what would be moved, and what would be dead-lettered.

    :param entities: move messages for these entities only, and wait for these; when not given, all
        messages are moved, and those entities are waited for that are known to be failed over or that
        messages in the backlog are going to. A list, or a text with commas; an empty text is none given (templated).
    :param queues: paths of backlog queues to drain, as a list or a text with commas; all of them when not
        given, or an empty text (templated).
    :param plan_only: a dry run: peek at what is there, wait for nothing and move nothing (templated).
    :param rate: most messages a second of this task; no limit when not given or empty (templated).
    :param continuous: go on for ever: when the backlog is empty, wait in the triggerer until it is not.
    :param time_to_live: ``restart``: a message lives as long as it was given, from its arrival on the
        primary; ``elapse``: its time in the backlog counts, and what has expired is dead-lettered.
    :param redrive: move the dead letters of the backlog queues instead.
    :param ledger: folder for the record of each moved message; no ledger when not given (templated).
    :param poll_interval: seconds between two pings of an entity that is not known to be failed over, and
        between two looks at an empty backlog.
    :param burst: longest time of moving messages before another task may have the worker's slot, 1 s to a day. It
        begins with the first message that leaves the backlog, or a failure: each burst gets on. Deferrable only.
    :param wait_timeout: the longest deferral; no limit when not given.
    :param deferrable: wait in the triggerer; otherwise in the worker.
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is wrong; nothing was received.
    :raises BacklogLeftError: something is left that could not be moved although the primary answers;
        a retry may move it.
    :raises AirflowFailException: a right is missing, or the backlog is not provisioned: the task is not tried again.
    :raises ServiceError: the secondary cannot be reached.
    """

    template_fields = ("entities", "queues", "plan_only", "rate", "ledger")

    def __init__(
        self,
        *,
        entities: Sequence[str] | str | None = None,
        queues: Sequence[str] | str | None = None,
        plan_only: bool | str = False,
        rate: float | str | None = None,
        continuous: bool = False,
        time_to_live: str = "restart",
        redrive: bool = False,
        ledger: str | None = None,
        poll_interval: float = 10.0,
        burst: timedelta = timedelta(minutes=15),
        wait_timeout: timedelta | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entities = entities
        self.queues = queues
        self.plan_only = plan_only
        check_early("plan_only", plan_only, flag)
        self.rate = rate
        check_early("rate", rate, positive_rate)
        self.continuous = continuous
        self.time_to_live = choice("restart", "elapse")("time_to_live", time_to_live)
        self.redrive = redrive
        self.ledger = ledger
        self.poll_interval = check_interval("poll_interval", poll_interval)
        self.burst = duration(_SHORTEST_BURST, _LONGEST_BURST)("burst", burst)
        self.wait_timeout = wait_timeout
        self.deferrable = deferrable
        self.lineage = TaskLineage()

    def run_async(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``call`` to its end, as any task here; what no retry mends is not tried again."""
        try:
            return super().run_async(call)
        except _NOT_RETRIED as error:
            raise AirflowFailException(f"{type(error).__name__}: {error}") from error

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Wait for the primary, drain, and again, until nothing is left; or tell what is there."""
        if flag("plan_only", self.plan_only):
            return await self._survey()
        self.lineage = TaskLineage()
        return await self._work(context, DrainReport())

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on after a wait in the triggerer."""
        check_event(event)
        for entity, health in event.get("recovered", {}).items():
            announce_recovery(context, self.conn_id, entity, EntityHealth.from_json(health))
        carried = dict(event["carry"])
        self.lineage = TaskLineage(carried.pop("lineage", ()))
        return self.run_async(self._work(context, DrainReport(**carried)))

    async def _work(self, context: Context, done: DrainReport) -> dict[str, Any]:
        _names("queues", self.queues)
        rate = positive_rate("rate", self.rate)
        while True:
            await self._wait_while_paused(done)
            await self._wait_for_primary(context, done)
            report, whole = await self._drain(context, rate)
            done += DrainReport(report.moved, report.dead_lettered, duplicates_possible=report.duplicates_possible)
            if whole and report.empty:
                if not self.continuous:
                    return _result(done)
                await self._wait_for_messages(done)
            elif whole and not report.moved_total and not report.dead_lettered:
                raise BacklogLeftError(
                    f"{report.left} messages are left in the backlog and {len(report.failures)} places failed "
                    f"({dict(report.failures)}): what was moved stays moved, and a retry goes on from here"
                )
            elif not whole:
                self._defer_if_wanted(self._primary_trigger(await self._entities(context), done))

    async def _wait_while_paused(self, done: DrainReport) -> None:
        """Wait as long as somebody wants the syphon of this pair to pause, off the worker if possible."""
        wanted = await syphon_control(self.conn_id)
        if wanted.paused:
            self.log.info("paused by %s: %s; moved=%d so far", wanted.by, wanted.reason, done.moved_total)
            self._defer_if_wanted(SyphonControlTrigger(conn_id=self.conn_id, carry=asdict(done)))
            await wait_until_resumed(self.conn_id)

    async def _wait_for_primary(self, context: Context, done: DrainReport) -> None:
        entities = await self._entities(context)
        waiting, news = PrimaryWait(entities), HealthNews()
        async with watched_pair(self.hook) as watched:
            with watched.listening(waiting), watched.listening(news):
                if self.deferrable:
                    await waiting.begin(watched, interval=self.poll_interval)
                else:
                    await waiting.wait(watched, interval=self.poll_interval)
        news.announce(context, self.conn_id)
        if not waiting.done:
            # What was announced so far is lost with this process; the trigger tells the rest.
            self.log.info("waiting until the primary answers for %s", ", ".join(entities))
            self._defer_if_wanted(self._primary_trigger(entities, done))

    async def _wait_for_messages(self, done: DrainReport) -> None:
        trigger = BacklogLevelTrigger(
            conn_id=self.conn_id,
            until=Until.FILLED.value,
            messages=1,
            age=None,
            interval=self.poll_interval,
            carry=self._carry(done),
        )
        self.log.info("moved=%d so far; waiting for messages in the backlog", done.moved_total)
        self._defer_if_wanted(trigger)
        await trigger.wait()

    def _primary_trigger(self, entities: Sequence[str], done: DrainReport) -> PrimaryHealthTrigger:
        return PrimaryHealthTrigger(
            conn_id=self.conn_id, entities=entities, interval=self.poll_interval, carry=self._carry(done)
        )

    def _carry(self, done: DrainReport) -> dict[str, Any]:
        return {**asdict(done), "lineage": self.lineage.carry()}

    def _defer_if_wanted(self, trigger: BaseTrigger) -> None:
        if self.deferrable:
            self.defer(trigger=trigger, method_name="resume", timeout=self.wait_timeout)

    async def _entities(self, context: Context) -> Sequence[str]:
        named = _names("entities", self.entities)
        return await entities_in_question(self.conn_id, context) if named is None else named

    async def _survey(self) -> dict[str, Any]:
        queues, entities = _names("queues", self.queues), _names("entities", self.entities)
        async with self.hook.pair() as pair:
            found = await pair.syphon(queues, entities=entities, redrive=self.redrive).survey()
        now = time.time()
        for entity, each in found.destinations.items():
            newest, oldest = each.ages(now)
            self.log.info(
                "entity=%s messages=%d bytes=%d ages=%.0f..%.0fs", entity, each.messages, each.bytes, newest, oldest
            )
        return {
            "waiting": {entity: _told(each, now) for entity, each in found.destinations.items()},
            "undeliverable": dict(found.undeliverable),
            "unreadable": found.unreadable,
        }

    async def _drain(self, context: Context, rate: float | None) -> tuple[DrainReport, bool]:
        """Drain for one burst; answer what was moved, and whether it came to its own end."""
        from servicebus_pair.core.parcels import TimeToLive

        news = HealthNews()
        with ExitStack() as stack:
            observers: list[Observer] = [news, self.lineage]
            if self.ledger is not None:
                observers.append(stack.enter_context(Ledger(self.ledger, run=context["run_id"])))
            async with self.hook.pair(observers=observers) as pair:
                # Here only: a DAG file is to load nothing of it.
                from servicebus_pair.core.backlog import backlog_queues

                chosen = _names("queues", self.queues)
                queues = backlog_queues(pair.primary.namespace, pair.options.backlog_queue_count)
                self.lineage.opened(pair, reads=queues if chosen is None else chosen)
                syphon = pair.syphon(
                    chosen,
                    entities=_names("entities", self.entities),
                    rate=rate,
                    time_to_live=TimeToLive(self.time_to_live),
                    redrive=self.redrive,
                )
                burst = self.burst.total_seconds() if self.deferrable else None
                async with (
                    self._telling(syphon),
                    _stopping(syphon, after=burst) as (stopped, begin),
                    obeying(self.conn_id, syphon, rate=rate, stopped=stopped),
                ):
                    report = await syphon.drain(progress=begin)
        # Armed again only after the drain, so that what arrived behind it is announced anew.
        await rearm(self.conn_id)
        news.announce(context, self.conn_id)
        return report, not stopped.is_set()

    @asynccontextmanager
    async def _telling(self, syphon: Syphon) -> AsyncIterator[None]:
        """Log how far the drain is, every ten seconds."""

        async def tell() -> None:
            while True:
                await asyncio.sleep(_TELL_SECONDS)
                seen = await syphon.progress()
                self.log.info(
                    "moved=%d dead_lettered=%d remaining=%s rate=%.0f/s eta=%s",
                    seen.moved,
                    seen.dead_lettered,
                    "unknown" if seen.remaining is None else seen.remaining,
                    seen.per_second,
                    "unknown" if seen.eta_seconds is None else f"{seen.eta_seconds:.0f}s",
                )

        telling = asyncio.create_task(tell(), name="progress")
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.wait({telling})


@asynccontextmanager
async def _stopping(
    syphon: Syphon, *, after: float | None
) -> AsyncIterator[tuple[asyncio.Event, Callable[[DrainReport], None]]]:
    """Stop ``syphon`` so many seconds after something came of it; the event tells whether that was necessary.

    Opening links takes seconds of its own, in which a short burst would be over. A drain to which nothing comes
    ends by itself.

    :returns: the event, and what is to be told the progress.
    """
    stopped = asyncio.Event()
    timer: asyncio.TimerHandle | None = None

    def stop() -> None:
        stopped.set()
        syphon.stop()

    def begin(report: DrainReport) -> None:
        nonlocal timer
        if timer is None and after is not None and (report.moved or report.dead_lettered or report.failures):
            timer = asyncio.get_running_loop().call_later(after, stop)

    try:
        yield stopped, begin
    finally:
        if timer is not None:
            timer.cancel()


def _result(done: DrainReport) -> dict[str, Any]:
    return {
        "moved": dict(done.moved),
        "dead_lettered": dict(done.dead_lettered),
        "left": done.left,
        "duplicates_possible": done.duplicates_possible,
    }


def _told(found: DestinationSurvey, now: float) -> dict[str, Any]:
    newest, oldest = (round(age, 1) for age in found.ages(now))
    return {"messages": found.messages, "bytes": found.bytes, "oldest_seconds": oldest, "newest_seconds": newest}


def _names(name: str, value: Any) -> Sequence[str] | None:
    """Read paths, which a template renders to a text with commas. :raises ConfigurationError: it is neither."""
    if value in (None, ""):
        return None
    return check_names(name, [each.strip() for each in value.split(",")] if isinstance(value, str) else value)
