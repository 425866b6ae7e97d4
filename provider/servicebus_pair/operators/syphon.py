"""``ServiceBusPairSyphonOperator``: waits for the primary in the triggerer, then drains the backlog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.airflow_version import conf
from servicebus_pair.airflow_runtime.observers.asset_events import HealthChangeRecorder, emit_recovery
from servicebus_pair.airflow_runtime.observers.lineage import TaskLineage
from servicebus_pair.airflow_runtime.pair_task import failing_at_once
from servicebus_pair.airflow_runtime.syphon_control import apply_control, syphon_control, wait_until_resumed
from servicebus_pair.airflow_runtime.task_ledger import StoragePath, open_ledger
from servicebus_pair.airflow_runtime.validators import (
    boolean,
    choice,
    duration,
    flag,
    optional,
    optional_message_rate,
    optional_path_list,
    optional_spool,
    poll_interval_seconds,
    storage_path,
)
from servicebus_pair.airflow_runtime.waiting.backlog import Until
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.airflow_runtime.waiting.primary import PrimaryWait, entities_to_wait_for
from servicebus_pair.core import DrainReport, EntityHealth
from servicebus_pair.core.errors import ConfigurationError, PairError
from servicebus_pair.core.events import Observer
from servicebus_pair.operators._support.base import AsyncPairOperator, LineageMixin, SpoolTask
from servicebus_pair.triggers.backlog import rearm
from servicebus_pair.triggers.backlog_level import BacklogLevelTrigger
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger, check_event
from servicebus_pair.triggers.syphon_control import SyphonControlTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from servicebus_pair.core import Syphon
    from servicebus_pair.core.syphon import DestinationSurvey

__all__ = ["BacklogLeftError", "ServiceBusPairSyphonOperator"]

_PROGRESS_LOG_SECONDS: Final = 10.0
_MIN_BURST: Final = timedelta(seconds=1)
_MAX_BURST: Final = timedelta(days=1)
_time_to_live = choice("restart", "elapse")
_burst = duration(_MIN_BURST, _MAX_BURST)


def _plan_without_end() -> ConfigurationError:
    return ConfigurationError("plan_only and continuous are true: a dry run ends, so only one of them is allowed")


class BacklogLeftError(PairError):
    """A drain ended with messages left in the backlog; a retry may move them."""

    retriable = True


class ServiceBusPairSyphonOperator(LineageMixin, SpoolTask, AsyncPairOperator):
    """Moves the messages of the backlog queues to their entities on the primary (SPEC section 6).

    It pings the entities. If one does not answer, the task defers until all do, and occupies no worker. Messages are
    moved in a worker only, in bursts, with progress in the log. If the primary fails again during the drain, the task
    waits again without using a retry. At least once: a message leaves the backlog after the primary confirmed it. A
    killed or retried task continues where it was. Several may run at once, such as one per queue when mapped over
    ``queues``.

    The result is ``{"moved": {entity: n}, "dead_lettered": {reason: n}, "left": n, "duplicates_possible": n,
    "unspooled": {entity: n}}``, over all bursts of one try; ``unspooled`` left the spool. A dry run returns
    ``{"waiting": {entity: {"messages": n, "bytes": n, "oldest_seconds": x, "newest_seconds": x}}, "spooled": {entity:
    n}, "undeliverable": {reason: n}, "unreadable": n, "locked": n}``: what would be moved, what is in the spool, what
    would be dead-lettered, and what other syphons are moving in sessions.

    :param entities: move messages of these entities only, and wait for these. When not given, all messages are moved,
        and the task waits for the entities that are failed over or have messages in the backlog. A list, or a text
        with commas; an empty text counts as not given (templated).
    :param queues: paths of backlog queues to drain, as a list or a text with commas, and ``spool`` for the spool; all
        of them when not given or an empty text (templated).
    :param plan_only: a dry run: peek into the queues; wait for nothing and move nothing (templated).
    :param rate: limit in messages per second, which the instances of a mapped task share; no limit when not given or
        empty (templated).
    :param continuous: run forever: when the backlog is empty, wait in the triggerer for messages.
    :param time_to_live: ``restart``: a message's time to live starts again on the primary; ``elapse``: its time in the
        backlog counts, and expired messages are dead-lettered.
    :param redrive: move the dead letters of the backlog queues instead.
    :param ledger: folder, or URL of one in an object store, for the record of each moved message;
        no ledger when not given (templated).
    :param spool: the spool to empty, as the send operator has it; that of the connection when not given or an empty
        text (templated).
    :param poll_interval: seconds between two pings of an entity that is not known to be failed over, and between two
        readings of an empty backlog.
    :param burst: the longest time of moving messages before the task gives up its worker slot, 1 s to a day. It starts
        with the first moved message or failure, so each burst makes progress. Deferrable tasks only.
    :param wait_timeout: the longest deferral; no limit when not given.
    :param deferrable: wait in the triggerer; otherwise in the worker.
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is invalid; nothing was received.
    :raises BacklogLeftError: messages are left although the primary answers; a retry may move them.
    :raises AirflowFailException: a right is missing, or the backlog is not provisioned; the task is not retried.
    :raises ServiceError: the secondary cannot be reached.
    """

    template_fields = (
        *SpoolTask.template_fields,
        "entities",
        "queues",
        "plan_only",
        "rate",
        "continuous",
        "time_to_live",
        "redrive",
        "ledger",
    )
    parameter_checks: ClassVar = {
        "entities": optional_path_list,
        "queues": optional_path_list,
        "plan_only": boolean,
        "rate": optional_message_rate,
        "continuous": boolean,
        "time_to_live": _time_to_live,
        "redrive": boolean,
        "ledger": optional(storage_path),
        "poll_interval": poll_interval_seconds,
        "burst": _burst,
        "wait_timeout": optional(duration(_MIN_BURST)),
        "deferrable": flag,
    }

    def __init__(
        self,
        *,
        entities: Sequence[str] | str | None = None,
        queues: Sequence[str] | str | None = None,
        plan_only: bool | str = False,
        rate: float | str | None = None,
        continuous: bool | str = False,
        time_to_live: str = "restart",
        redrive: bool | str = False,
        ledger: StoragePath | None = None,
        poll_interval: timedelta | float = 10.0,
        burst: timedelta | float = timedelta(minutes=15),
        wait_timeout: timedelta | float | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entities = entities
        self.queues = queues
        self.plan_only = plan_only
        self.rate = rate
        self.continuous = continuous
        self.time_to_live = time_to_live
        self.redrive = redrive
        self.ledger = ledger
        self.poll_interval = poll_interval_seconds("poll_interval", poll_interval)
        self.burst = burst
        self.wait_timeout = wait_timeout
        self.deferrable = deferrable
        self.lineage = TaskLineage()
        self.check_parameters()
        if plan_only is True and continuous is True:
            raise _plan_without_end()

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Wait for the primary and drain, until nothing is left; or survey the backlog."""
        plan_only, continuous = boolean("plan_only", self.plan_only), boolean("continuous", self.continuous)
        if plan_only and continuous:
            raise _plan_without_end()
        if plan_only:
            return await self._survey()
        self.lineage = TaskLineage()
        return await self._wait_and_drain(context, DrainReport())

    @failing_at_once()
    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after a deferral."""
        check_event(event, carry=dict)
        carry = dict(event["carry"])
        self.lineage = TaskLineage(carry.pop("lineage", ()))
        done = DrainReport(**carry)
        for entity, health in event.get("recovered", {}).items():
            emit_recovery(context, self.servicebus_pair_conn_id, entity, EntityHealth.from_json(health))
        return self.run_async(self._wait_and_drain(context, done))

    async def _wait_and_drain(self, context: Context, done: DrainReport) -> dict[str, Any]:
        optional_path_list("queues", self.queues)
        rate = optional_message_rate("rate", self.rate)
        while True:
            await self._wait_while_paused(done)
            await self._wait_for_primary(context, done)
            report, completed = await self._drain(context, rate)
            done += replace(report, left=0, failures={})
            if completed and report.empty:
                if not boolean("continuous", self.continuous):
                    return _result(done)
                await self._wait_for_messages(done)
            elif completed and not (report.moved or report.dead_lettered or report.unspooled):
                raise BacklogLeftError(
                    f"{report.left} messages are left in the backlog and {len(report.failures)} queues or entities "
                    f"failed ({dict(report.failures)}): a retry continues with what is left"
                )
            elif not completed:
                self._defer_if_deferrable(
                    self._primary_trigger(await entities_to_wait_for(self.hook, context, named=self.entities), done)
                )

    async def _wait_while_paused(self, done: DrainReport) -> None:
        """Wait while the pair's syphon is paused, in the triggerer if the task is deferrable."""
        control = await syphon_control(self.servicebus_pair_conn_id)
        if control.paused:
            self.log.info("paused by %s: %s; moved=%d so far", control.by, control.reason, done.moved_total)
            self._defer_if_deferrable(
                SyphonControlTrigger(servicebus_pair_conn_id=self.servicebus_pair_conn_id, carry=asdict(done))
            )
            await wait_until_resumed(self.servicebus_pair_conn_id)

    async def _wait_for_primary(self, context: Context, done: DrainReport) -> None:
        entities = await entities_to_wait_for(self.hook, context, named=self.entities)
        waiting, health_changes = PrimaryWait(entities), HealthChangeRecorder()
        async with shared_pair(self.hook) as shared:
            with shared.observed_by(waiting), shared.observed_by(health_changes):
                if self.deferrable:
                    await waiting.ping_once(shared, interval=self.poll_interval)
                else:
                    await waiting.wait(shared, interval=self.poll_interval)
        health_changes.emit(context, self.servicebus_pair_conn_id)
        if not waiting.done:
            # A deferral loses the events emitted so far; the trigger reports recoveries from here on.
            self.log.info("waiting until the primary answers for %s", ", ".join(entities))
            self._defer_if_deferrable(self._primary_trigger(entities, done))

    async def _wait_for_messages(self, done: DrainReport) -> None:
        trigger = BacklogLevelTrigger(
            servicebus_pair_conn_id=self.servicebus_pair_conn_id,
            until=Until.FILLED.value,
            messages=1,
            age=None,
            interval=self.poll_interval,
            spool=optional_spool("spool", self.spool),
            carry=self._carry(done),
        )
        self.log.info("moved=%d so far; waiting for messages in the backlog", done.moved_total)
        self._defer_if_deferrable(trigger)
        await trigger.wait()

    def _primary_trigger(self, entities: Sequence[str], done: DrainReport) -> PrimaryHealthTrigger:
        return PrimaryHealthTrigger(
            servicebus_pair_conn_id=self.servicebus_pair_conn_id,
            entities=entities,
            interval=self.poll_interval,
            carry=self._carry(done),
        )

    def _carry(self, done: DrainReport) -> dict[str, Any]:
        return {**asdict(done), "lineage": self.lineage.to_json()}

    def _defer_if_deferrable(self, trigger: BaseTrigger) -> None:
        if self.deferrable:
            self.defer(trigger=trigger, method_name="resume", timeout=self.wait_timeout)

    async def _survey(self) -> dict[str, Any]:
        queues, entities = optional_path_list("queues", self.queues), optional_path_list("entities", self.entities)
        async with self.hook.pair() as pair:
            found = await pair.syphon(queues, entities=entities, redrive=boolean("redrive", self.redrive)).survey()
            spooled = await pair.spooled()
        now = time.time()
        for entity, each in found.destinations.items():
            newest, oldest = each.ages(now)
            self.log.info(
                "entity=%s messages=%d bytes=%d ages=%.0f..%.0fs", entity, each.messages, each.bytes, newest, oldest
            )
        return {
            "waiting": {entity: _destination_summary(each, now) for entity, each in found.destinations.items()},
            "spooled": {entity: each.messages for entity, each in spooled.items()},
            "undeliverable": dict(found.undeliverable),
            "unreadable": found.unreadable,
            "locked": found.locked,
        }

    async def _drain(self, context: Context, rate: float | None) -> tuple[DrainReport, bool]:
        """Drain for one burst; return the report, and whether the drain ended by itself."""
        # Imported here, so that parsing a DAG file does not load them.
        from servicebus_pair.core import TimeToLive
        from servicebus_pair.core.protocol import queues_in_use
        from servicebus_pair.core.syphon import SPOOL

        health_changes = HealthChangeRecorder()
        with ExitStack() as stack:
            observers: list[Observer] = [health_changes, self.lineage]
            if self.ledger is not None:
                observers.append(stack.enter_context(open_ledger(self.ledger, run=context["run_id"])))
            async with self.hook.pair(observers=observers) as pair:
                chosen = optional_path_list("queues", self.queues)
                queues = queues_in_use(pair.primary.namespace, pair.options)
                self.lineage.set_endpoints(
                    pair, reads=queues if chosen is None else [queue for queue in chosen if queue != SPOOL]
                )
                syphon = pair.syphon(
                    chosen,
                    entities=optional_path_list("entities", self.entities),
                    rate=rate,
                    time_to_live=TimeToLive(_time_to_live("time_to_live", self.time_to_live)),
                    redrive=boolean("redrive", self.redrive),
                )
                burst = _burst("burst", self.burst).total_seconds() if self.deferrable else None
                async with (
                    self._logging_progress(syphon),
                    _stop_after(syphon, seconds=burst) as (stopped, start_timer),
                    apply_control(self.servicebus_pair_conn_id, syphon, rate=rate, stopped=stopped),
                ):
                    report = await syphon.drain(progress=start_timer)
        # After the drain, so that messages that arrived behind it get an event of their own.
        await rearm(self.servicebus_pair_conn_id)
        health_changes.emit(context, self.servicebus_pair_conn_id)
        return report, not stopped.is_set()

    @asynccontextmanager
    async def _logging_progress(self, syphon: Syphon) -> AsyncIterator[None]:
        """Log the progress of the drain every ten seconds."""

        async def log() -> None:
            while True:
                await asyncio.sleep(_PROGRESS_LOG_SECONDS)
                progress = await syphon.progress()
                self.log.info(
                    "moved=%d dead_lettered=%d remaining=%s rate=%.0f/s eta=%s",
                    progress.moved,
                    progress.dead_lettered,
                    "unknown" if progress.remaining is None else progress.remaining,
                    progress.per_second,
                    "unknown" if progress.eta_seconds is None else f"{progress.eta_seconds:.0f}s",
                )

        logger = asyncio.create_task(log(), name="log progress")
        try:
            yield
        finally:
            logger.cancel()
            await asyncio.wait({logger})


@asynccontextmanager
async def _stop_after(
    syphon: Syphon, *, seconds: float | None
) -> AsyncIterator[tuple[asyncio.Event, Callable[[DrainReport], None]]]:
    """Stop ``syphon`` when its burst is over; a burst starts with the first progress of the drain.

    Opening links takes seconds, in which a short burst would already be over. A drain without progress ends by itself.

    :param seconds: length of the burst; ``None`` for no limit.
    :returns: an event that is set when the syphon was stopped, and the progress callback that starts the burst.
    """
    stopped = asyncio.Event()
    timer: asyncio.TimerHandle | None = None

    def stop() -> None:
        stopped.set()
        syphon.stop()

    def start_timer(report: DrainReport) -> None:
        nonlocal timer
        progressed = report.moved or report.dead_lettered or report.unspooled or report.failures
        if timer is None and seconds is not None and progressed:
            timer = asyncio.get_running_loop().call_later(seconds, stop)

    try:
        yield stopped, start_timer
    finally:
        if timer is not None:
            timer.cancel()


def _result(done: DrainReport) -> dict[str, Any]:
    return {
        "moved": dict(done.moved),
        "dead_lettered": dict(done.dead_lettered),
        "left": done.left,
        "duplicates_possible": done.duplicates_possible,
        "unspooled": dict(done.unspooled),
    }


def _destination_summary(survey: DestinationSurvey, now: float) -> dict[str, Any]:
    newest, oldest = (round(age, 1) for age in survey.ages(now))
    return {"messages": survey.messages, "bytes": survey.bytes, "oldest_seconds": oldest, "newest_seconds": newest}
