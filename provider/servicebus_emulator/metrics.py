"""``GET /metrics``: the figures of a namespace, for Prometheus.

Plain counters are updated per batch or settlement, and read, with the counts and sizes of all entities, on request.
The first :data:`MAX_ENTITY_SERIES` entities by path have their own series; the others are summed up as ``(other)``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web

from servicebus_emulator.admin.access_control import Route
from servicebus_emulator.engine.model.descriptions import MessageCounts
from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.queue.counters import Counters
from servicebus_emulator.version import version

if TYPE_CHECKING:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

    from servicebus_emulator.amqp.broker.broker import Broker
    from servicebus_emulator.amqp.broker.fault_injector import FaultInjector
    from servicebus_emulator.engine.namespace.namespace import Namespace
    from servicebus_emulator.store.sqlite import SqliteJournal

MAX_ENTITY_SERIES: Final = 500
"""The number of entities with their own series."""

_OTHER: Final = "(other)"
_PREFIX: Final = "servicebus_emulator_"
_STATES: Final = ("active", "scheduled", "dead_lettered", "transfer_dead_lettered")
_OUTCOMES: Final = ("completed", "abandoned", "released", "deferred", "rejected", "deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """The objects that hold the figures of a namespace.

    :ivar journal: None = the namespace is kept in memory only.
    """

    namespace: Namespace
    broker: Broker
    fault_injector: FaultInjector
    journal: SqliteJournal | None


@dataclass(slots=True)
class _Figures:
    """The figures of an entity, or the sums of several."""

    active: int = 0
    scheduled: int = 0
    dead_lettered: int = 0
    transfer_dead_lettered: int = 0
    size: int = 0
    accepted: int = 0
    duplicates: int = 0
    has_senders: bool = False

    def count(self, counts: MessageCounts) -> None:
        for state in _STATES:
            setattr(self, state, getattr(self, state) + getattr(counts, state))


def metrics_route(sources: MetricSources) -> Route:
    """Return the route of the metrics. Their names and labels are a public interface."""

    async def get(request: web.Request) -> web.Response:
        # Imported on request, because it delays the start.
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(sources))
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    return Route(method="GET", path="/metrics", handler=get, public=True)


class _Collector:
    """Reads all figures."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._name = sources.namespace.name

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield self._gauge("build_info", "The version of the emulator", {"version": version()}, value=1)
        yield self._gauge("connections", "Open AMQP connections", {}, value=self._broker.connection_count)
        opened: dict[tuple[str, ...], float] = {(): self._broker.connections_opened}
        yield self._counter("connections_opened", "AMQP connections since the start", (), opened)
        yield self._gauge("links", "Open AMQP links to entities", {}, value=self._broker.link_count)
        yield from self._of_entities()
        yield self._counter(
            "refusals",
            "Refused operations, by AMQP condition",
            ("condition",),
            {(condition,): count for condition, count in self._broker.refusals.items()},
        )
        yield self._counter(
            "faults_struck",
            "Operations struck by a fault",
            ("kind",),
            {(str(kind),): count for kind, count in self._sources.fault_injector.strikes.items()},
        )
        journal = self._sources.journal
        if journal is not None:
            yield self._counter("journal_commits", "Committed transactions", (), {(): journal.commits})
            yield self._counter("journal_commit_seconds", "Time spent on commits", (), {(): journal.commit_seconds})

    @property
    def _broker(self) -> Broker:
        return self._sources.broker

    def _of_entities(self) -> Iterator[Metric]:
        figures, tallies = self._figures()
        messages = self._empty_gauge("messages", "Messages in an entity, by state", ("entity", "state"))
        size = self._empty_gauge("entity_size_bytes", "Size of the messages in an entity", ("entity",))
        for path, each in figures.items():
            size.add_metric([self._name, path], each.size)
            for state in _STATES:
                messages.add_metric([self._name, path, state], getattr(each, state))
        yield messages
        yield size
        for name, text, attribute in (
            ("messages_accepted", "Messages accepted from senders", "accepted"),
            ("messages_duplicate", "Accepted messages dropped as duplicates", "duplicates"),
        ):
            sent = {path: getattr(each, attribute) for path, each in figures.items() if each.has_senders}
            yield self._entity_counter(name, text, sent)
        for name, text, attribute in (
            ("messages_delivered", "Deliveries of messages to receivers", "delivered"),
            ("messages_expired", "Messages whose time to live expired", "expired"),
            ("messages_dead_lettered", "Messages moved to a dead-letter queue", "dead_lettered"),
            ("locks_lost", "Expired locks of messages and sessions", "locks_lost"),
        ):
            received = {path: getattr(tally, attribute) for path, tally in tallies.items()}
            yield self._entity_counter(name, text, received)
        yield self._counter(
            "messages_settled",
            "Settlements by outcome; deleted = received and deleted",
            ("entity", "outcome"),
            {(path, outcome): getattr(tally, outcome) for path, tally in tallies.items() for outcome in _OUTCOMES},
        )

    def _figures(self) -> tuple[dict[str, _Figures], dict[str, Counters]]:
        figures: dict[str, _Figures] = defaultdict(_Figures)
        tallies: dict[str, Counters] = defaultdict(Counters)
        self._sources.namespace.advance()
        for position, (path, entity) in enumerate(self._entities()):
            label = path if position < MAX_ENTITY_SERIES else _OTHER
            each = figures[label]
            each.count(entity.counts())
            each.size += entity.size_in_bytes
            if isinstance(entity, TopicEntity):
                # Its subscriptions have their own series.
                each.size -= sum(subscription.size_in_bytes for subscription in entity.subscriptions.values())
            else:
                tallies[label].add(entity.counters())
            if not isinstance(entity, SubscriptionEntity):
                each.has_senders = True
                each.accepted += entity.ingress.accepted
                each.duplicates += entity.ingress.duplicates
        return figures, tallies

    def _entities(self) -> Iterator[tuple[str, QueueEntity | TopicEntity | SubscriptionEntity]]:
        namespace = self._sources.namespace
        for queue in namespace.list_queues():
            yield queue.path, namespace.find(queue.path)
        for topic in namespace.list_topics():
            yield topic.path, namespace.find(topic.path)
            for subscription in namespace.list_subscriptions(topic.path):
                yield subscription.path, namespace.find(subscription.path)

    # Metrics, each with the namespace as its first label

    def _empty_gauge(self, name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
        from prometheus_client.core import GaugeMetricFamily

        return GaugeMetricFamily(_PREFIX + name, text, labels=["namespace", *labels])

    def _gauge(self, name: str, text: str, labels: dict[str, str], *, value: float) -> Metric:
        metric = self._empty_gauge(name, text, tuple(labels))
        metric.add_metric([self._name, *labels.values()], value)
        return metric

    def _entity_counter(self, name: str, text: str, values: Mapping[str, float]) -> Metric:
        return self._counter(name, text, ("entity",), {(path,): value for path, value in values.items()})

    def _counter(
        self, name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
    ) -> CounterMetricFamily:
        from prometheus_client.core import CounterMetricFamily

        metric = CounterMetricFamily(_PREFIX + name, text, labels=["namespace", *labels])
        for named, value in values.items():
            metric.add_metric([self._name, *named], value)
        return metric
