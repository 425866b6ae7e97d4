"""``ServiceBusPairSyphonOperator``: waits for the primary off the worker, then drains the backlog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from airflow.sdk import Context, conf

from servicebus_pair.core.errors import PairError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.results import DrainReport
from servicebus_pair.hooks.entities import entities_in_question
from servicebus_pair.hooks.news import HealthNews, announce_recovery
from servicebus_pair.hooks.sharing import watched_pair
from servicebus_pair.hooks.waiting import PrimaryWait, check_interval, check_names
from servicebus_pair.operators.base import PairOperator
from servicebus_pair.triggers.backlog import rearm
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger, check_event

__all__ = ["BacklogLeftError", "ServiceBusPairSyphonOperator"]


class BacklogLeftError(PairError):
    """A drain ended with messages left in the backlog; the same drain may succeed later."""

    retriable = True


class ServiceBusPairSyphonOperator(PairOperator):
    """Moves what the backlog queues hold to their entities on the primary (SPEC section 6).

    It first pings the entities once. If one does not answer, the task defers until all do, and
    occupies no worker; messages are moved in a worker only. At least once: a message leaves the
    backlog after the primary confirmed it. A killed or retried task goes on where it was; several
    may run at once, one per queue when mapped over ``queues``.

    The result is ``{"moved": {entity: n}, "dead_lettered": {reason: n}, "left": n,
    "duplicates_possible": n}``.

    :param entities: entities to wait for; when not given, those that are known to be failed over and
        those that messages in the backlog are going to (templated).
    :param queues: paths of backlog queues to drain; all of them when not given (templated).
    :param ledger: folder for the record of each moved message; no ledger when not given (templated).
    :param poll_interval: seconds between two pings of an entity that is not known to be failed over.
    :param wait_timeout: the longest deferral; no limit when not given.
    :param deferrable: wait in the triggerer; otherwise in the worker.
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is wrong; nothing was received.
    :raises BacklogLeftError: something is left; a retry may move it.
    :raises ServiceError: the secondary cannot be reached.
    """

    template_fields = ("entities", "queues", "ledger")

    def __init__(
        self,
        *,
        entities: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        ledger: str | None = None,
        poll_interval: float = 10.0,
        wait_timeout: timedelta | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entities = entities
        self.queues = queues
        self.ledger = ledger
        self.poll_interval = check_interval("poll_interval", poll_interval)
        self.wait_timeout = wait_timeout
        self.deferrable = deferrable

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Ping, and drain or defer."""
        if self.queues is not None:
            check_names("queues", self.queues)
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
            self.defer(
                trigger=PrimaryHealthTrigger(conn_id=self.conn_id, entities=entities, interval=self.poll_interval),
                method_name="resume",
                timeout=self.wait_timeout,
            )
        return await self._drain(context)

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Drain, now that the primary answers."""
        check_event(event)
        for entity, health in event["recovered"].items():
            announce_recovery(context, self.conn_id, entity, EntityHealth.from_json(health))
        return self.run_async(self._drain(context))

    async def _entities(self, context: Context) -> Sequence[str]:
        if self.entities is not None:
            return check_names("entities", self.entities)
        return await entities_in_question(self.conn_id, context)

    async def _drain(self, context: Context) -> dict[str, Any]:
        news = HealthNews()
        with ExitStack() as stack:
            observers: list[Observer] = [news]
            if self.ledger is not None:
                observers.append(stack.enter_context(Ledger(self.ledger, run=context["run_id"])))
            async with self.hook.pair(observers=observers) as pair:
                report = await pair.syphon(self.queues).drain(progress=self._tell)
        # Armed again only after the drain, so that what arrived behind it is announced anew.
        await rearm(self.conn_id)
        news.announce(context, self.conn_id)
        self._tell(report)
        if not report.empty:
            raise BacklogLeftError(
                f"{report.left} messages are left in the backlog and {len(report.failures)} places failed "
                f"({dict(report.failures)}): what was moved stays moved, and a retry goes on from here"
            )
        return {
            "moved": dict(report.moved),
            "dead_lettered": dict(report.dead_lettered),
            "left": report.left,
            "duplicates_possible": report.duplicates_possible,
        }

    def _tell(self, report: DrainReport) -> None:
        self.log.info(
            "moved=%d dead_lettered=%d duplicates_possible=%d",
            report.moved_total,
            sum(report.dead_lettered.values()),
            report.duplicates_possible,
        )
