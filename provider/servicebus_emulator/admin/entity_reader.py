"""Reads the entities of a namespace as Atom documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from servicebus_emulator.admin.atom.documents import (
    Entry,
    entry_document,
    feed_document,
    namespace_content,
    nothing_document,
)
from servicebus_emulator.admin.atom.fields import RuntimeProperties, encode
from servicebus_emulator.admin.atom.rules import encode_rule
from servicebus_emulator.admin.requests import Page, Request, Response, parse_page
from servicebus_emulator.admin.resources import (
    Entity,
    EntityList,
    NamespaceInfo,
    Resource,
    Rule,
    RuleList,
    Subscription,
    SubscriptionList,
    url_path,
)
from servicebus_emulator.engine.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import EntityNotFound
from servicebus_emulator.engine.model.rule_descriptions import CorrelationFilter
from servicebus_emulator.engine.namespace.tiers import Tier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servicebus_emulator.engine.model.clock import Clock
    from servicebus_emulator.engine.namespace.namespace import Namespace

_PREMIUM_KILOBYTES: Final = 1024
_TICKS_FROM: Final = datetime.min.replace(tzinfo=UTC)


def read_runtime(namespace: Namespace, description: Description) -> RuntimeProperties:
    """Return the counts, sizes and times of an entity.

    :raises EntityNotFound: the entity does not exist.
    """
    path = description.path
    subscriptions = namespace.list_subscriptions(path) if isinstance(description, TopicDescription) else ()
    filters = [rule.filter for subscription in subscriptions for rule in subscription.rules]
    correlations = sum(isinstance(each, CorrelationFilter) for each in filters)
    return RuntimeProperties(
        counts=namespace.counts(path),
        times=namespace.times(path),
        size_in_bytes=namespace.size_in_bytes(path),
        subscription_count=len(subscriptions),
        sql_filter_count=len(filters) - correlations,
        correlation_filter_count=correlations,
    )


class EntityReader:
    """Describes the entities of a namespace as Atom documents."""

    def __init__(self, namespace: Namespace, *, clock: Clock) -> None:
        self._namespace: Final = namespace
        self._clock: Final = clock
        self._started: Final = self._now()

    def nothing(self) -> Response:
        """Return the answer for a queue or topic that does not exist."""
        return Response(200, nothing_document(self._now()), kind="feed")

    def read(self, resource: Resource, *, request: Request) -> Response:
        """Return the document of a resource: an entry, or one page of a list.

        :raises EntityNotFound: the resource does not exist.
        :raises InvalidArgument: the page is out of range.
        """
        match resource:
            case NamespaceInfo():
                entry = self._namespace_entry(request)
            case Entity(path):
                return self.entry_of(self._queue_or_topic(path), request=request)
            case Subscription(topic, name):
                return self.entry_of(self._namespace.get_subscription(topic, name), request=request)
            case Rule():
                entry = self._rule_entry(resource, request=request)
            case _:
                return Response(200, self._list(resource, request=request), kind="feed")
        owner = entry.updated if isinstance(resource, NamespaceInfo) else self._namespace.times(resource.topic).updated
        return self._response(entry, version_of=owner)

    def entry_of(self, description: Description, *, request: Request, with_counts: bool = True) -> Response:
        """Return the document of one entity with its runtime properties.

        As at the service, the version of a subscription or rule is that of its topic.
        """
        owner = description.topic_path if isinstance(description, SubscriptionDescription) else description.path
        entry = self._entity_entry(description, request=request, with_counts=with_counts)
        return self._response(entry, version_of=self._namespace.times(owner).updated)

    def _response(self, entry: Entry, *, version_of: datetime) -> Response:
        ticks = (version_of - _TICKS_FROM) // timedelta(microseconds=1) * 10
        return Response(200, entry_document(entry, author=self._namespace.name), kind="entry", etag=str(ticks))

    def _queue_or_topic(self, path: str) -> QueueDescription | TopicDescription:
        description = self._namespace.get_entity(path)
        if isinstance(description, SubscriptionDescription):
            raise EntityNotFound(f"no queue or topic is named {path!r}")
        return description

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now() / 1000, tz=UTC)

    def _list(self, resource: Resource, *, request: Request) -> bytes:
        listed: Sequence[Description | Rule]
        match resource:
            case EntityList("queues"):
                title, listed = "Queues", self._namespace.list_queues()
            case EntityList("topics"):
                title, listed = "Topics", self._namespace.list_topics()
            case SubscriptionList(topic):
                title, listed = "Subscriptions", self._namespace.list_subscriptions(topic)
            case RuleList(topic, name):
                rules = self._namespace.get_subscription(topic, name).rules
                title, listed = "Rules", [Rule(topic, name, rule.name) for rule in rules]
            case _:
                raise EntityNotFound(f"nothing to list is at {url_path(resource)!r}")
        page = parse_page(request.query)
        end = page.skip + page.top
        next_page = Page(skip=end, top=page.top) if end < len(listed) else None
        return feed_document(
            [self._entry(item, request=request) for item in listed[page.skip : end]],
            title=title,
            address=request.address(resource, page=page),
            next_address=None if next_page is None else request.address(resource, page=next_page),
            updated=self._now(),
            author=self._namespace.name,
        )

    def _entry(self, listed: Description | Rule, *, request: Request) -> Entry:
        if isinstance(listed, Rule):
            return self._rule_entry(listed, request=request)
        return self._entity_entry(listed, request=request)

    def _entity_entry(self, description: Description, *, request: Request, with_counts: bool = True) -> Entry:
        runtime = read_runtime(self._namespace, description)
        resource: Entity | Subscription
        if isinstance(description, SubscriptionDescription):
            title, resource = description.name, Subscription(description.topic_path, description.name)
        else:
            title, resource = description.path, Entity(description.path)
        return Entry(
            title=title,
            address=request.address(resource),
            published=runtime.times.created,
            updated=runtime.times.updated,
            content=encode(description, runtime=runtime, version=request.version, with_counts=with_counts),
        )

    def _rule_entry(self, resource: Rule, *, request: Request) -> Entry:
        subscription = self._namespace.get_subscription(resource.topic, resource.subscription)
        rule = subscription.find_rule(resource.name)
        if rule is None:
            raise EntityNotFound(f"subscription {subscription.path!r} has no rule {resource.name!r}")
        created = self._namespace.times(subscription.path).created
        return Entry(
            title=rule.name,
            address=request.address(resource),
            published=created,
            updated=created,
            content=encode_rule(rule, created=created),
        )

    def _tier(self) -> Tier:
        is_premium = self._namespace.min_message_kilobytes >= _PREMIUM_KILOBYTES
        return self._namespace.tier or (Tier.PREMIUM if is_premium else Tier.STANDARD)

    def _namespace_entry(self, request: Request) -> Entry:
        return Entry(
            title=self._namespace.name,
            address=request.address(NamespaceInfo()),
            published=self._started,
            updated=self._started,
            content=namespace_content(
                self._namespace.name,
                created=self._started,
                tier=self._tier(),
            ),
        )
