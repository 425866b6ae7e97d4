"""``ServiceBusPairDrillOperator``: fails over on purpose and sees that everything comes back."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.core.errors import DrillError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.hooks.news import HealthNews
from servicebus_pair.operators.base import PairOperator
from servicebus_pair.operators.counting import counted
from servicebus_pair.operators.parameters import check_early, duration, flag, path_of_entity, whole_number

__all__ = ["ServiceBusPairDrillOperator"]

_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_limit = duration(timedelta(seconds=1), timedelta(hours=1))
_life = duration(timedelta(seconds=1), timedelta(days=14))
_messages = whole_number(1, 10_000)


class ServiceBusPairDrillOperator(PairOperator):
    """Fails an entity over, sends marked messages, fails back, drains, and judges what happened (SPEC section 5).

    The primary stays up. What applications send meanwhile takes the way through the backlog and arrives
    when the drill ends. Consumers tell the marked messages by ``servicebus_pair.core.drill_of``. However
    the task ends, the entity is not left failed over. The drain is of all backlog queues: let drills of
    one pair follow each other (``max_active_tis_per_dagrun=1``), or one moves what the other waits for.

    The result is ``{"drill", "entity", "passed", "sent", "arrived", "live", "failed_over_seconds",
    "drain_seconds", "pings_delivered", "findings", "operations"}``: counts, and a sentence per finding.

    :param entity: path of the queue or topic (templated).
    :param messages: marked messages to send, 1 to 10,000 (templated).
    :param limit: the longest time of the failover, and again of the drain: a ``timedelta`` or seconds, up to an
        hour (templated).
    :param life: time to live of the marked messages, up to 14 days (templated).
    :param fail_on_findings: fail the task when anything was not as it should be (templated).
    :param announce: send the failover and recovery as asset events too, as a real outage would: DAGs on them
        then start, the recovery among them (templated).
    :param ledger: folder for the record of each message; no ledger when not given (templated).
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is wrong; nothing was done.
    :raises DrillError: the entity is failed over already, the marked messages could not be sent, or there are
        findings.
    """

    template_fields = ("entity", "messages", "limit", "life", "fail_on_findings", "announce", "ledger")
    portal_side: ClassVar = "primary"

    def __init__(
        self,
        *,
        entity: str,
        messages: int | str = 10,
        limit: timedelta | float | str = 2 * _MINUTE,
        life: timedelta | float | str = _DAY / 24,
        fail_on_findings: bool | str = True,
        announce: bool | str = False,
        ledger: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entity = entity
        self.messages = messages
        self.limit = limit
        self.life = life
        self.fail_on_findings = fail_on_findings
        self.announce = announce
        self.ledger = ledger
        check_early("entity", entity, path_of_entity)
        check_early("messages", messages, _messages)
        check_early("limit", limit, _limit)
        check_early("life", life, _life)
        check_early("fail_on_findings", fail_on_findings, flag)
        check_early("announce", announce, flag)

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Drill."""
        entity, messages = path_of_entity("entity", self.entity), _messages("messages", self.messages)
        limit, life = _limit("limit", self.limit), _life("life", self.life)
        strict, announce = flag("fail_on_findings", self.fail_on_findings), flag("announce", self.announce)
        news = HealthNews()
        with ExitStack() as stack:
            observers: list[Observer] = [news]
            if self.ledger is not None:
                observers.append(stack.enter_context(Ledger(self.ledger, run=context["run_id"])))
            async with self.hook.pair(observers=observers) as pair:
                async with pair.sender(entity):
                    pass  # entering it takes over the shared health: an outage is no time for a drill
                report = await pair.drill(
                    entity, messages=messages, by=f"drill of {context['run_id']}", limit=limit, life=life
                )
                operations = counted(pair.meter.read())
        if announce:
            news.announce(context, self.conn_id)
        self.log.info(
            "drill=%s entity=%s sent=%d arrived=%d live=%d failed_over=%.1f s drain=%.1f s pings_delivered=%s",
            *(report.drill, report.entity, report.sent, report.arrived, report.live),
            *(report.failed_over_seconds, report.drain_seconds, report.pings_delivered),
        )
        for finding in report.findings:
            self.log.warning("drill=%s entity=%s finding: %s", report.drill, report.entity, finding)
        if strict and not report.passed:
            raise DrillError(f"{report.drill} of {entity} did not pass: {'; '.join(report.findings)}")
        return {
            "drill": report.drill,
            "entity": report.entity,
            "passed": report.passed,
            "sent": report.sent,
            "arrived": report.arrived,
            "live": report.live,
            "failed_over_seconds": round(report.failed_over_seconds, 3),
            "drain_seconds": round(report.drain_seconds, 3),
            "pings_delivered": report.pings_delivered,
            "findings": list(report.findings),
            "operations": operations,
        }
