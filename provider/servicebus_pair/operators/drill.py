"""``ServiceBusPairDrillOperator``: fails over on purpose and verifies that every message arrives."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta
from typing import Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.observers.asset_events import HealthChangeRecorder
from servicebus_pair.airflow_runtime.observers.task_activity import nonzero_counts
from servicebus_pair.airflow_runtime.task_ledger import StoragePath, open_ledger
from servicebus_pair.airflow_runtime.validators import (
    boolean,
    duration,
    entity_path,
    integer,
    optional,
    storage_path,
)
from servicebus_pair.core.errors import DrillError
from servicebus_pair.core.events import Observer
from servicebus_pair.operators._support.base import AsyncPairOperator

__all__ = ["ServiceBusPairDrillOperator"]

_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_limit = duration(timedelta(seconds=1), timedelta(hours=1))
_life = duration(timedelta(seconds=1), timedelta(days=14))
_messages = integer(1, 10_000)


class ServiceBusPairDrillOperator(AsyncPairOperator):
    """Fails an entity over, sends marked messages, fails back, drains, and verifies the outcome (SPEC section 5).

    The primary stays up. Messages that applications send during the drill go through the backlog and arrive when it
    ends. Consumers recognise the marked messages by ``servicebus_pair.core.drill_id``. However the task ends, the
    entity is not left failed over. A drill drains all backlog queues, so run the drills of one pair one at a time
    (``max_active_tis_per_dagrun=1``): otherwise one drains the messages that another waits for.

    The result is ``{"drill", "entity", "passed", "sent", "arrived", "live", "failed_over_seconds",
    "drain_seconds", "pings_delivered", "findings", "operations"}``: counts, and a sentence per finding.

    :param entity: path of the queue or topic (templated).
    :param messages: number of marked messages to send, 1 to 10,000 (templated).
    :param limit: the longest time of the failover, and again of the drain: a ``timedelta`` or seconds, up to an
        hour (templated).
    :param life: time to live of the marked messages, up to 14 days (templated).
    :param both: drill an outage of both namespaces: the marked messages go to the pair's spool, and home from there
        (templated).
    :param fail_on_findings: fail the task if there is any finding (templated).
    :param announce: emit the asset events of failover and recovery, which start the DAGs scheduled on them, as in a
        real outage (templated).
    :param ledger: folder, or URL of one in an object store, for the record of each message; no ledger
        when not given (templated).
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is invalid; nothing was done.
    :raises DrillError: the entity is already failed over, the marked messages could not be sent, or there are
        findings.
    """

    template_fields = ("entity", "messages", "limit", "life", "both", "fail_on_findings", "announce", "ledger")
    parameter_checks: ClassVar = {
        "entity": entity_path,
        "messages": _messages,
        "limit": _limit,
        "life": _life,
        "both": boolean,
        "fail_on_findings": boolean,
        "announce": boolean,
        "ledger": optional(storage_path),
    }
    portal_side: ClassVar = "primary"

    def __init__(
        self,
        *,
        entity: str,
        messages: int | str = 10,
        limit: timedelta | float | str = 2 * _MINUTE,
        life: timedelta | float | str = _DAY / 24,
        both: bool | str = False,
        fail_on_findings: bool | str = True,
        announce: bool | str = False,
        ledger: StoragePath | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entity = entity
        self.messages = messages
        self.limit = limit
        self.life = life
        self.both = both
        self.fail_on_findings = fail_on_findings
        self.announce = announce
        self.ledger = ledger
        self.check_parameters()

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Run the drill and return its report."""
        entity, messages = entity_path("entity", self.entity), _messages("messages", self.messages)
        limit, life = _limit("limit", self.limit), _life("life", self.life)
        strict, announce = boolean("fail_on_findings", self.fail_on_findings), boolean("announce", self.announce)
        health_changes = HealthChangeRecorder()
        with ExitStack() as stack:
            observers: list[Observer] = [health_changes]
            if self.ledger is not None:
                observers.append(stack.enter_context(open_ledger(self.ledger, run=context["run_id"])))
            async with self.hook.pair(observers=observers) as pair:
                async with pair.sender(entity):
                    pass  # opening it loads the shared health, so that the drill is refused during an outage
                by = f"drill of {context['run_id']}"
                both = boolean("both", self.both)
                report = await pair.drill(entity, messages=messages, by=by, limit=limit, life=life, both=both)
                operations = nonzero_counts(pair.meter.read())
        if announce:
            health_changes.emit(context, self.servicebus_pair_conn_id)
        self.log.info(
            "drill=%s entity=%s sent=%d arrived=%d live=%d failed_over=%.1f s drain=%.1f s pings_delivered=%s",
            *(report.drill, report.entity, report.sent, report.arrived, report.live),
            *(report.failed_over_seconds, report.drain_seconds, report.pings_delivered),
        )
        for finding in report.findings:
            self.log.warning("drill=%s entity=%s finding: %s", report.drill, report.entity, finding)
        if strict and not report.passed:
            raise DrillError(f"{report.drill} of {entity} did not pass: {'; '.join(report.findings)}")
        result = {name: value for name, value in asdict(report).items() if name != "drain"}
        seconds = {name: round(result[name], 3) for name in ("failed_over_seconds", "drain_seconds")}
        findings = list(report.findings)
        return {**result, **seconds, "findings": findings, "passed": report.passed, "operations": operations}
