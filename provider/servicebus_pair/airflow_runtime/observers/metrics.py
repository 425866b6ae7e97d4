"""Publishes a pair's activity through Airflow's metrics: StatsD, DogStatsD or OpenTelemetry, as configured there.

===========================================  =======  =========================================
name                                         kind     tags, besides ``conn_id``
===========================================  =======  =========================================
``servicebus_pair.messages_sent``            counter  ``entity``, ``route`` (primary, backlog, spooled)
``servicebus_pair.bytes_sent``               counter  ``entity``, ``route``
``servicebus_pair.messages_syphoned``        counter  ``entity``, ``queue``
``servicebus_pair.messages_unspooled``       counter  ``entity``, ``route``; out of the spool
``servicebus_pair.messages_dead_lettered``   counter  ``queue``, ``reason``
``servicebus_pair.health_changes``           counter  ``entity``, ``state`` (the new one)
``servicebus_pair.pings``                    counter  ``entity``, ``outcome`` (answered, or an error)
``servicebus_pair.ping_duration``            timer    ``entity``, ``outcome``; milliseconds
``servicebus_pair.queues_pulled``            counter  ``queue``
``servicebus_pair.oversized_for_backlog``    counter  ``entity``
``servicebus_pair.syphon_failures``          counter  ``error``; of the syphon that an open pair runs
``servicebus_pair.spool_filling``            counter  none; the spool reached 80 % of its limit
``servicebus_pair.backlog_messages``         gauge    none
``servicebus_pair.spool_messages``           gauge    none; only of a pair with a spool
``servicebus_pair.failovers``                counter  none; counted by the plugin's listener
``servicebus_pair.recoveries``               counter  none; counted by the plugin's listener
===========================================  =======  =========================================

Characters that are not allowed in metric names, such as the ``/`` of a path, become ``_`` in tag values.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from servicebus_pair.airflow_runtime.airflow_version import metric_tag, stats
from servicebus_pair.core.events import (
    BacklogCopyTooLarge,
    DeadLettered,
    Event,
    HealthChanged,
    MessagesAccepted,
    MessagesSyphoned,
    MessagesUnspooled,
    Pinged,
    QueuePulled,
    SpoolFilling,
    SyphonFailed,
)

_PREFIX: Final = "servicebus_pair."


class MetricsObserver:
    """Observer that turns events of a pair into Airflow metrics.

    :param conn_id: the connection; every metric has it as a tag.
    """

    def __init__(self, conn_id: str) -> None:
        self._conn_id = conn_id

    def observe(self, event: Event) -> None:
        """Publish the metrics of one event."""
        match event:
            case MessagesAccepted() | MessagesSyphoned() | MessagesUnspooled():
                self._count_messages(event)
            case DeadLettered(queue, _, reason):
                self._count("messages_dead_lettered", 1, queue=queue, reason=reason)
            case HealthChanged(entity, _, after):
                self._count("health_changes", 1, entity=entity, state=after.state.value)
            case Pinged(entity, _, seconds, error):
                outcome = "answered" if error is None else error
                self._count("pings", 1, entity=entity, outcome=outcome)
                tags = _tags(conn_id=self._conn_id, entity=entity, outcome=outcome)
                stats.timing(f"{_PREFIX}ping_duration", timedelta(seconds=seconds), tags=tags)
            case QueuePulled(queue):
                self._count("queues_pulled", 1, queue=queue)
            case BacklogCopyTooLarge(entity):
                self._count("oversized_for_backlog", 1, entity=entity)
            case SyphonFailed(error):
                self._count("syphon_failures", 1, error=error)
            case SpoolFilling():
                self._count("spool_filling", 1)

    def _count_messages(self, event: MessagesAccepted | MessagesSyphoned | MessagesUnspooled) -> None:
        match event:
            case MessagesAccepted(entity, route, _, messages):
                self._count("messages_sent", len(messages), entity=entity, route=route.value)
                self._count("bytes_sent", sum(each.size_bytes for each in messages), entity=entity, route=route.value)
            case MessagesSyphoned(entity, queue, messages):
                self._count("messages_syphoned", len(messages), entity=entity, queue=queue)
            case MessagesUnspooled(entity, route, _, messages):
                self._count("messages_unspooled", len(messages), entity=entity, route=route.value)

    def _count(self, name: str, count: int, **tags: str) -> None:
        stats.incr(f"{_PREFIX}{name}", count, tags=_tags(conn_id=self._conn_id, **tags))


def set_backlog_gauge(conn_id: str, messages: int) -> None:
    """Set the gauge ``backlog_messages``."""
    stats.gauge(f"{_PREFIX}backlog_messages", messages, tags=_tags(conn_id=conn_id))


def set_spool_gauge(conn_id: str, messages: int) -> None:
    """Set the gauge ``spool_messages``."""
    stats.gauge(f"{_PREFIX}spool_messages", messages, tags=_tags(conn_id=conn_id))


def _tags(**tags: str) -> dict[str, str]:
    return {name: metric_tag(value) for name, value in tags.items()}
