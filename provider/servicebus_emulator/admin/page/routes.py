"""The page at ``/``, and what it asks for below ``/$page``.

The page itself contains nothing and is public. What it asks for is answered like faults: without a token to this
machine, if the request names it. But messages are the secrets of whoever set a key of their own, so then a token with
Manage is needed here, too; the page asks for the key and signs with it in the browser.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from servicebus_emulator.admin.access_control import Handler, Route
from servicebus_emulator.admin.http_requests import read_body
from servicebus_emulator.admin.page.messages import content_of, message_document
from servicebus_emulator.amqp.codec.message_checks import check_messages
from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY
from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_emulator.engine.model.errors import BrokerError, InvalidArgument, OperationNotAllowed
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.queue.limits import check_encoded_size
from servicebus_emulator.faults import FaultKind

if TYPE_CHECKING:
    from servicebus_emulator.engine.namespace.namespace import Namespace
    from servicebus_emulator.engine.queue.queue import MessageQueue
    from servicebus_emulator.security.authorizer import Authorizer

NamespaceLinks = Callable[[], Sequence[tuple[str, int]]]
"""Returns the name and the administration port of each namespace of the process."""

_FILES: Final = {"/": ("page.html", "text/html"), "/$page.js": ("page.js", "text/javascript")}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_SUB_QUEUES: Final = {
    "main": SubQueue.MAIN,
    "dead-letter": SubQueue.DEAD_LETTER,
    "transfer-dead-letter": SubQueue.TRANSFER_DEAD_LETTER,
}
_MESSAGES_PER_PAGE: Final = 50


def page_routes(namespace: Namespace, *, authorizer: Authorizer, links: NamespaceLinks) -> tuple[Route, ...]:
    """Return the routes of the page.

    :param links: the namespaces that the page leads to.
    """

    async def show(request: web.Request) -> web.Response:
        return _messages_document(
            _queue(namespace, request.query.get("entity", ""), request.query.get("queue", "main")),
            after=request.query.get("after", "0"),
        )

    async def overview(_: web.Request) -> web.Response:
        return web.json_response(_overview(namespace, links=links), headers={"Cache-Control": "no-store"})

    async def send(request: web.Request) -> web.Response:
        document = await _json(request)
        entity = namespace.find(_member(document, "entity"))
        if isinstance(entity, SubscriptionEntity):
            raise OperationNotAllowed("messages are sent to queues and topics; send to the topic")
        content, size = content_of(document)
        check_encoded_size(size, messages=1, description=entity.description)
        check_messages([content])
        entity.send([content])
        namespace.commit()
        return web.json_response({}, status=201)

    async def dead_letter(request: web.Request) -> web.Response:
        document = await _json(request)
        queue = _queue(namespace, _member(document, "entity"), "main")
        number = document.get("sequence_number")
        if not isinstance(number, int):
            raise InvalidArgument(f"sequence_number is {number!r}; allowed: a whole number")
        queue.dead_letter_at(number, reason="DeadLetteredByPage", description="Moved by a user of the emulator's page.")
        namespace.commit()
        return web.json_response({})

    def guarded(method: str, path: str, answer: Callable[[web.Request], Awaitable[web.Response]]) -> Route:
        return Route(method=method, path=path, handler=_guarded(answer, namespace=namespace, authorizer=authorizer))

    return (
        *(Route(method="GET", path=path, handler=_static(*file), public=True) for path, file in _FILES.items()),
        guarded("GET", "/$page/overview", overview),
        guarded("GET", "/$page/messages", show),
        guarded("POST", "/$page/messages", send),
        guarded("POST", "/$page/dead-letters", dead_letter),
    )


def _static(name: str, kind: str) -> Handler:
    async def get(_: web.Request) -> web.Response:
        text = files("servicebus_emulator.admin.page").joinpath(name).read_text(encoding="utf-8")
        return web.Response(text=text, content_type=kind, headers=_HEADERS)

    return get


def _guarded(
    answer: Callable[[web.Request], Awaitable[web.Response]], *, namespace: Namespace, authorizer: Authorizer
) -> Handler:
    """Return a handler that requires the key, if it is not the default one, and answers errors of the broker."""

    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            if namespace.access_policies.root.keys != (DEFAULT_KEY, DEFAULT_KEY):
                authorizer.authorize(request.headers.get("Authorization"), path="", rights=[AccessRight.MANAGE])
            return await answer(request)
        except BrokerError as error:
            return web.json_response({"error": str(error)}, status=error.status)

    return handler


async def _json(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        # No form of a foreign page can send it.
        raise InvalidArgument(f"Content-Type is {request.content_type!r}; allowed: application/json")
    try:
        document = json.loads(await read_body(request))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidArgument("the body is no JSON object")
    return document


def _member(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}; allowed: a text")
    return value


def _queue(namespace: Namespace, path: str, name: str) -> MessageQueue:
    namespace.advance()
    entity = namespace.find(path)
    if isinstance(entity, TopicEntity):
        raise OperationNotAllowed(f"{path!r} is a topic; its messages are in its subscriptions")
    if name not in _SUB_QUEUES:
        raise InvalidArgument(f"queue is {name!r}; allowed: {', '.join(_SUB_QUEUES)}")
    return entity.sub_queue(_SUB_QUEUES[name])


def _messages_document(queue: MessageQueue, *, after: str) -> web.Response:
    if not after.isascii() or not after.isdigit():
        raise InvalidArgument(f"after is {after!r}; allowed: a sequence number")
    found = queue.peek(int(after) + 1, limit=_MESSAGES_PER_PAGE + 1)
    document = {
        "messages": [message_document(each) for each in found[:_MESSAGES_PER_PAGE]],
        "more": len(found) > _MESSAGES_PER_PAGE,
    }
    return web.json_response(document, headers={"Cache-Control": "no-store"})


def _overview(namespace: Namespace, *, links: NamespaceLinks) -> dict[str, Any]:
    namespace.advance()
    entities = [(each.path, "queue", each.requires_session) for each in namespace.list_queues()]
    for topic in namespace.list_topics():
        entities.append((topic.path, "topic", False))
        entities += [
            (each.path, "subscription", each.requires_session) for each in namespace.list_subscriptions(topic.path)
        ]
    return {
        "namespace": namespace.name,
        "namespaces": [{"name": name, "port": port} for name, port in links()],
        "entities": [
            _entity_document(namespace, path, kind=kind, sessions=sessions) for path, kind, sessions in entities
        ],
        "fault_kinds": list(FaultKind),
    }


def _entity_document(namespace: Namespace, path: str, *, kind: str, sessions: bool) -> dict[str, Any]:
    entity, counts = namespace.find(path), namespace.counts(path)
    return {
        "path": path,
        "kind": kind,
        "status": entity.description.status.value,
        "sessions": sessions,
        "active": counts.active,
        "scheduled": counts.scheduled,
        "dead_lettered": counts.dead_lettered,
        "transfer_dead_lettered": counts.transfer_dead_lettered,
    }
