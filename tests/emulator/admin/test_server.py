"""The administration API as bytes on the wire."""

from __future__ import annotations

import html
import io
import logging
import re
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import ClientSession

from servicebus_emulator.admin.health import health_route
from servicebus_emulator.admin.http_server import HttpServer
from servicebus_emulator.engine.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.rule_descriptions import RuleDescription, SqlAction, SqlFilter
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.namespace import Namespace
from tests.emulator.support.admin_server import admin_server
from tests.emulator.support.authorizers import authorizer_for
from tests.emulator.support.tracking import tracked_pattern

ATOM = "{http://www.w3.org/2005/Atom}"
BUS = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
ATOM_TYPE = "application/atom+xml"
VERSION = "api-version=2024-05"


@pytest.fixture
def namespace() -> Namespace:
    return Namespace("contoso")


@pytest.fixture
async def server(namespace: Namespace) -> AsyncIterator[HttpServer]:
    health = health_route(namespace, version=lambda: "1.2", is_healthy=lambda: True, started_at=5.0, clock=lambda: 7.5)
    authorizer = authorizer_for(namespace, is_open=True)
    server = admin_server(namespace, authorizer=authorizer, routes=[health])
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def http(server: HttpServer) -> AsyncIterator[ClientSession]:
    async with ClientSession(f"http://127.0.0.1:{server.port}") as session:
        yield session


def entry(properties: str = "", *, kind: str = "QueueDescription") -> bytes:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<{kind} xmlns="{BUS[1:-1]}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{properties}</{kind}>'
        "</content></entry>"
    ).encode()


async def refused(http: ClientSession, body: bytes, *, status: int = 400) -> str:
    async with http.put(f"/q?{VERSION}", data=io.BytesIO(body)) as response:
        error = ET.fromstring(await response.text())  # noqa: S314 - our own server's answer
        assert (response.status, error.findtext("Code")) == (status, str(status))
        return error.findtext("Detail", "")


async def test_an_unbounded_duration_is_exact_to_the_tick(http: ClientSession, namespace: Namespace):
    for_ever = "<AutoDeleteOnIdle>P10675199DT2H48M5.4775807S</AutoDeleteOnIdle>"
    async with http.put(f"/q?{VERSION}", data=entry(for_ever)) as response:
        assert response.status == 201
        assert for_ever in await response.text()

    assert namespace.get_queue("q").auto_delete_on_idle == TimeSpan.MAX


async def test_a_topic_keeps_properties_that_the_python_client_does_not_send(http: ClientSession, namespace: Namespace):
    body = entry(
        "<FilteringMessagesBeforePublishing>true</FilteringMessagesBeforePublishing>"
        "<EnableSubscriptionPartitioning>1</EnableSubscriptionPartitioning>"
        "<IsAnonymousAccessible>true</IsAnonymousAccessible>",
        kind="TopicDescription",
    )
    async with http.put(f"/t?{VERSION}", data=body) as response:
        assert response.status == 201

    assert namespace.get_topic("t") == TopicDescription(
        "t",
        filtering_messages_before_publishing=True,
        enable_subscription_partitioning=True,
        is_anonymous_accessible=True,
    )


async def text_of(http: ClientSession, path: str, *, method: str = "GET", status: int = 200) -> str:
    async with http.request(method, f"{path}{'&' if '?' in path else '?'}{VERSION}") as response:
        assert response.status == status
        return await response.text()


async def test_a_missing_queue_or_topic_is_an_empty_feed_as_at_the_service(http: ClientSession):
    async with http.get(f"/missing?{VERSION}") as response:
        assert (response.status, response.headers["Content-Type"]) == (200, f"{ATOM_TYPE};type=feed;charset=utf-8")
        feed = ET.fromstring(await response.text())  # noqa: S314 - our own server's answer
    assert feed.findtext(f"{ATOM}title") == "Publicly Listed Services"
    assert feed.find(f"{ATOM}entry") is None
    deleted = await text_of(http, "/missing", method="DELETE", status=404)
    assert re.search(
        rf"<Detail>No service is hosted at the specified address\. .* {tracked_pattern()}</Detail>", deleted
    )
    assert "SubCode" not in deleted
    await text_of(http, "/missing/subscriptions/s", status=404)


async def test_an_entry_has_the_version_of_its_queue_or_topic(http: ClientSession, namespace: Namespace):
    namespace.create_topic(TopicDescription("t"))
    namespace.create_subscription(SubscriptionDescription("t", "s"))
    ticks = (namespace.times("t").updated - datetime.min.replace(tzinfo=UTC)) // timedelta(microseconds=1) * 10
    for path in ("/t", "/t/subscriptions/s", "/t/subscriptions/s/rules/$Default"):
        async with http.get(f"{path}?{VERSION}") as response:
            assert response.headers["Content-Type"] == f"{ATOM_TYPE};type=entry;charset=utf-8"
            assert response.headers["ETag"] == str(ticks)


async def test_the_entries_of_a_list_have_its_address_as_base(http: ClientSession, namespace: Namespace):
    namespace.create_queue(QueueDescription("q"))
    feed = ET.fromstring(await text_of(http, "/$Resources/queues?$skip=0&$top=10"))  # noqa: S314
    found = feed.find(f"{ATOM}entry")
    assert found is not None
    assert found.get("{http://www.w3.org/XML/1998/namespace}base") == feed.findtext(f"{ATOM}id")


async def test_times_are_written_as_the_service_does(http: ClientSession, namespace: Namespace):
    namespace.create_queue(QueueDescription("q"))
    shown = await text_of(http, "/q")
    assert "<AccessedAt>0001-01-01T00:00:00Z</AccessedAt>" in shown
    assert re.search(r"<published>[0-9T:-]{19}Z</published>", shown) is not None


async def test_rules_and_subscriptions_have_the_elements_of_the_service(http: ClientSession, namespace: Namespace):
    namespace.create_topic(TopicDescription("t"))
    late = SqlFilter(expression="delay > @least", parameters=(("@least", TimeSpan.parse("PT1H")),))
    rules = (RuleDescription("late", filter=late, action=SqlAction(expression="SET a=1")), RuleDescription("all"))
    namespace.create_subscription(SubscriptionDescription("t", "s", rules=rules))
    assert "<IsClientAffine>false</IsClientAffine></SubscriptionDescription>" in await text_of(
        http, "/t/subscriptions/s"
    )
    shown = await text_of(http, "/t/subscriptions/s/rules/late")
    assert shown.count("<RequiresPreprocessing>true</RequiresPreprocessing>") == 2
    assert 'xmlns:d6p1="http://schemas.microsoft.com/2003/10/Serialization/">PT1H</Value>' in shown
    assert "RequiresPreprocessing" not in await text_of(http, "/t/subscriptions/s/rules/all")


async def test_a_subscription_of_jms_clients_is_refused(http: ClientSession, namespace: Namespace):
    namespace.create_topic(TopicDescription("t"))
    for affine, status in (("true", 400), ("false", 201)):
        body = entry(f"<IsClientAffine>{affine}</IsClientAffine>", kind="SubscriptionDescription")
        async with http.put(f"/t/subscriptions/s?{VERSION}", data=body) as response:
            assert response.status == status


async def test_names_are_written_without_prefixes(http: ClientSession):
    async with http.put(f"/q?{VERSION}", data=entry()) as response:
        document = await response.text()

    assert response.content_type == "application/atom+xml"
    assert '<entry xmlns="http://www.w3.org/2005/Atom">' in document
    assert "<QueueDescription xmlns=" in document
    assert "ns0:" not in document


@pytest.mark.parametrize("path", ["a/b/0", "a%2Fb%2F0", "A%2fB/0"])
async def test_a_slash_in_a_path_may_come_encoded_or_not(http: ClientSession, namespace: Namespace, path: str):
    namespace.create_queue(QueueDescription("a/b/0"))

    async with http.get(f"/{path}?{VERSION}") as response:
        document = ET.fromstring(await response.text())  # noqa: S314 - our own server's answer

    assert document.findtext(f"{ATOM}title") == "a/b/0"
    assert document.findtext(f"{ATOM}id") == f"{response.url.origin()!s}/a/b/0?{VERSION}"


async def test_a_list_may_end_with_a_slash_as_the_javascript_client_writes_it(
    http: ClientSession, namespace: Namespace
):
    namespace.create_topic(TopicDescription("t"))
    namespace.create_subscription(SubscriptionDescription("t", "s"))

    async with http.get(f"/t/Subscriptions/s/Rules/?{VERSION}") as response:
        document = ET.fromstring(await response.text())  # noqa: S314 - our own server's answer

    assert [entry.findtext(f"{ATOM}title") for entry in document.iter(f"{ATOM}entry")] == ["$Default"]


@pytest.mark.parametrize("path", ["", "/rules/$Default"])
async def test_the_id_of_a_subscription_is_written_as_the_javascript_client_reads_it(
    http: ClientSession, namespace: Namespace, path: str
):
    namespace.create_topic(TopicDescription("air/delays"))
    namespace.create_subscription(SubscriptionDescription("air/delays", "late"))

    async with http.get(f"/air%2Fdelays/subscriptions/late{path}?{VERSION}") as response:
        document = ET.fromstring(await response.text())  # noqa: S314 - our own server's answer

    expected = f"{response.url.origin()!s}/air/delays/Subscriptions/late{path.replace('rules', 'Rules')}?{VERSION}"
    assert document.findtext(f"{ATOM}id") == expected


@pytest.mark.parametrize(("skip", "top", "links"), [(0, 2, 2), (1, 2, 1), (0, 3, 1), (3, 1, 1), (9, 1, 1)])
async def test_a_feed_has_two_links_exactly_when_a_page_follows(
    http: ClientSession, namespace: Namespace, skip: int, top: int, links: int
):
    for name in "abc":
        namespace.create_queue(QueueDescription(name))

    async with http.get(f"/$Resources/queues?$skip={skip}&$top={top}&{VERSION}") as response:
        feed = ET.fromstring(await response.text())  # noqa: S314 - our own server's answer

    found = feed.findall(f"{ATOM}link")
    assert [link.get("rel") for link in found] == ["self", "next"][:links]
    assert len(feed.findall(f"{ATOM}entry")) == len("abc"[skip : skip + top])
    if links == 2:
        assert f"$skip={skip + top}&$top={top}" in found[1].get("href", "")


@pytest.mark.parametrize("page", ["$skip=-1", "$skip=x", "$top=0", "$top=1001", "$top="])
async def test_a_page_out_of_range_is_refused(http: ClientSession, page: str):
    async with http.get(f"/$Resources/queues?{page}&{VERSION}") as response:
        assert response.status == 400
        assert f"{page.partition('=')[0]} is" in await response.text()


async def test_an_update_resets_what_is_left_out_but_not_what_is_fixed(http: ClientSession, namespace: Namespace):
    namespace.create_queue(
        QueueDescription("q", requires_session=True, max_delivery_count=3, status=EntityStatus.DISABLED)
    )

    async with http.put(f"/Q?{VERSION}", data=entry(), headers={"If-Match": "*"}) as response:
        assert response.status == 200

    assert namespace.list_queues() == (QueueDescription("q", requires_session=True),)


async def test_a_document_type_with_entities_is_refused(http: ClientSession, namespace: Namespace):
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE x [<!ENTITY a0 "ha">{laughs}]><x>&a9;</x>'.encode()
    theft = b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&f;</x>'

    for document in (bomb, theft, b'<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd"><x/>'):
        assert "document type" in await refused(http, document)
    assert namespace.list_queues() == ()


async def test_a_document_too_deep_or_too_long_is_refused(http: ClientSession):
    assert "nested deeper than" in await refused(http, b"<a>" * 5_000 + b"</a>" * 5_000)
    assert "too large; allowed: 1048576 bytes" in await refused(http, b" " * (1024 * 1024 + 1), status=413)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not well-formed"),
        (b"<entry", "not well-formed"),
        (b"<?xml version='1.0' encoding='unheard-of'?><entry/>", "unknown encoding"),
        (b"<?xml version='1.0' encoding='utf-7'?><entry/>", "encodings are not supported"),
        (b"<entry xmlns='http://www.w3.org/2005/Atom'/>", "an Atom entry"),
        (b"<QueueDescription/>", "an Atom entry"),
        (entry(kind="EventHubDescription"), "EventHubDescription"),
        (entry("<MaxDeliverCount>3</MaxDeliverCount>"), "MaxDeliverCount.*allowed: .*MaxDeliveryCount"),
        (entry("<MaxDeliveryCount>3</MaxDeliveryCount>" * 2), "given twice"),
        (entry("<MaxDeliveryCount>three</MaxDeliveryCount>"), "MaxDeliveryCount is 'three'; allowed: a whole number"),
        (entry("<LockDuration>60</LockDuration>"), "LockDuration is '60'; allowed: an ISO 8601 duration"),
        (entry("<RequiresSession>yes</RequiresSession>"), "RequiresSession is 'yes'; allowed: true, false"),
    ],
)
async def test_a_document_that_describes_no_queue_is_refused_with_the_reason(
    http: ClientSession, namespace: Namespace, body: bytes, reason: str
):
    assert re.search(reason, await refused(http, body)) is not None
    assert namespace.list_queues() == ()


@pytest.mark.parametrize(
    "rule",
    [
        (
            "<Filter i:type='TrueFilter'><SqlExpression>1=1</SqlExpression></Filter>"
            "<Action i:type='EmptyRuleAction'/><Name>first</Name>"
        ),
        "<Name>first</Name>",
    ],
)
async def test_a_subscription_may_name_its_default_rule(http: ClientSession, namespace: Namespace, rule: str):
    namespace.create_topic(TopicDescription("t"))
    body = entry(f"<DefaultRuleDescription>{rule}</DefaultRuleDescription>", kind="SubscriptionDescription")

    async with http.put(f"/t/Subscriptions/s?{VERSION}", data=body) as response:
        assert response.status == 201

    assert namespace.get_subscription("t", "s").rules == (RuleDescription("first"),)


RULE_FAULTS = {
    "<Filter i:type='SqlFilter'/>": "sql_expression is None; allowed: an expression",
    "<Filter i:type='SqlFilter'><SqlExpression>a = </SqlExpression></Filter>": "found the end at character 5",
    "<Filter i:type='CorrelationFilter'/>": "correlation_filter is 'empty'; allowed: at least one property",
    "<Filter i:type='PrefixFilter'/>": "filter is 'PrefixFilter'; allowed: TrueFilter, FalseFilter",
    "<Action i:type='SqlRuleAction'><SqlExpression>a = 1</SqlExpression></Action>": "allowed: SET or REMOVE",
    "<Action i:type='Forward'/>": "action is 'Forward'; allowed: EmptyRuleAction, SqlRuleAction",
    "<Filter i:type='CorrelationFilter'><Properties><KeyValueOfstringanyType><Key>n</Key>"
    "<Value i:type='d:int'>one</Value></KeyValueOfstringanyType></Properties></Filter>": "n is 'one'; allowed: a",
    "<Filter i:type='CorrelationFilter'><Properties><KeyValueOfstringanyType><Key>n</Key>"
    "<Value i:type='d:decimal'>1</Value></KeyValueOfstringanyType></Properties></Filter>": "n is 'decimal'; allowed: a",
}


@pytest.mark.parametrize(("rule", "reason"), RULE_FAULTS.items())
async def test_an_invalid_rule_is_refused_with_the_reason(
    http: ClientSession, namespace: Namespace, rule: str, reason: str
):
    namespace.create_topic(TopicDescription("t"))
    namespace.create_subscription(SubscriptionDescription("t", "kept"))
    default = entry(f"<DefaultRuleDescription>{rule}</DefaultRuleDescription>", kind="SubscriptionDescription")
    added = entry(rule, kind="RuleDescription")

    for url, document in (("/t/Subscriptions/s", default), ("/t/Subscriptions/kept/rules/r", added)):
        async with http.put(f"{url}?{VERSION}", data=document) as response:
            assert response.status == 400
            assert reason in html.unescape(await response.text())

    assert namespace.list_subscriptions("t") == (SubscriptionDescription("t", "kept"),)


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [
        ("GET", "/q", 400),
        ("GET", "/q?api-version=1999-01", 400),
        ("GET", f"/$Resources/relays?{VERSION}", 404),
        ("GET", f"/t/subscriptions/s/rules/r/x?{VERSION}", 404),
        ("POST", f"/q?{VERSION}", 405),
        ("DELETE", f"/$Resources/queues?{VERSION}", 501),
        ("POST", "/q/messages", 501),
        ("DELETE", "/q/messages/head?timeout=5", 501),
    ],
)
async def test_a_request_the_api_does_not_know_gets_an_atom_error(
    http: ClientSession, method: str, url: str, status: int
):
    async with http.request(method, url) as response:
        assert response.status == status
        assert (await response.text()).count(f"<Code>{status}</Code>") == 1


async def test_health_answers_json_and_a_queue_may_still_be_named_health(http: ClientSession, namespace: Namespace):
    async with http.put(f"/health?{VERSION}", data=entry()) as response:
        assert namespace.get_queue("health").path == "health"

    async with http.get("/health") as response:
        assert await response.json() == {
            "status": "ok",
            "namespace": "contoso",
            "version": "1.2",
            "uptime_seconds": 2.5,
            "queues": 1,
            "topics": 0,
            "subscriptions": 0,
        }
    async with http.get(f"/health?{VERSION}") as response:
        assert "<QueueDescription" in await response.text()


async def test_a_namespace_that_cannot_persist_its_state_is_not_healthy(namespace: Namespace):
    health = health_route(namespace, version=lambda: "1.2", is_healthy=lambda: False, started_at=0.0)
    authorizer = authorizer_for(namespace, is_open=True)
    server = admin_server(namespace, authorizer=authorizer, routes=[health])
    await server.start()
    async with ClientSession(f"http://127.0.0.1:{server.port}") as session, session.get("/health") as response:
        assert (response.status, (await response.json())["status"]) == (503, "failed")
    await server.stop()


async def test_changes_are_logged_but_tokens_are_not(http: ClientSession, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    token = "SharedAccessSignature sr=x&sig=c2VjcmV0&se=1&skn=root"

    async with http.put(f"/q?{VERSION}", data=entry(), headers={"Authorization": token}) as response:
        assert response.status == 201

    assert "namespace contoso: created queue q" in caplog.messages
    assert "c2VjcmV0" not in caplog.text


async def test_a_taken_port_is_an_error_but_stopping_twice_is_not(server: HttpServer, namespace: Namespace):
    authorizer = authorizer_for(namespace, is_open=True)
    second = admin_server(namespace, port=server.port, authorizer=authorizer)

    with pytest.raises(OSError, match="address already in use"):
        await second.start()
    with pytest.raises(RuntimeError, match="start\\(\\) first"):
        _ = second.port
    await second.stop()
    await second.stop()
