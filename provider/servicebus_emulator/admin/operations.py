"""Dispatches one administration request."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from servicebus_emulator.admin.atom.documents import error_document
from servicebus_emulator.admin.atom.xml import MarkupError
from servicebus_emulator.admin.entity_reader import EntityReader
from servicebus_emulator.admin.entity_writer import EntityWriter
from servicebus_emulator.admin.requests import Request, Response
from servicebus_emulator.admin.resources import Entity, Resource, Rule, Subscription, resource_at, url_path
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import BrokerError, EntityNotFound, OperationNotSupported

if TYPE_CHECKING:
    from servicebus_emulator.engine.model.clock import Clock
    from servicebus_emulator.engine.namespace.namespace import Namespace

# What the service's REST API for messages adds to the path of an entity.
_MESSAGES: Final = re.compile(r"(?i)/messages(?:/|$)")
_WORDS: Final = {404: "Not Found. ", 409: "Conflict. "}


class Administration:
    """Handles the administration requests of one namespace."""

    def __init__(self, namespace: Namespace, *, clock: Clock) -> None:
        self._namespace: Final = namespace
        self._reader: Final = EntityReader(namespace, clock=clock)
        self._writer: Final = EntityWriter(namespace)
        self._methods: Final = {"GET": self._get, "PUT": self._put, "DELETE": self._delete}

    def handle(self, request: Request) -> Response:
        """Carry out one request. A refused request gets a response too: its status and an Atom error document."""
        # Idle entities are deleted first, not in the middle of a list.
        self._namespace.advance()
        if "api-version" not in request.query and _MESSAGES.search(request.raw_path) is not None:
            return error_response(501, reason="messages are not sent or received over HTTP here; allowed: AMQP")
        try:
            _ = request.version
            method = self._methods.get(request.method)
            if method is None:
                return error_response(405, reason=f"method is {request.method!r}; allowed: {', '.join(self._methods)}")
            resource = resource_at(request.raw_path)
            return method(resource, request)
        except BrokerError as error:
            return error_response(error.status, reason=str(error))
        except (DescriptionError, MarkupError) as error:
            return error_response(400, reason=str(error))

    def _get(self, resource: Resource, request: Request) -> Response:
        try:
            return self._reader.read(resource, request=request)
        except EntityNotFound:
            if not isinstance(resource, Entity):
                raise
            return self._reader.nothing()

    def _put(self, resource: Resource, request: Request) -> Response:
        status = 200 if request.update else 201
        if isinstance(resource, Rule):
            self._writer.put_rule(resource, document=request.body, update=request.update)
            return replace(self._reader.read(resource, request=request), status=status)
        put = self._writer.update if request.update else self._writer.create
        description = put(_require_entity(resource), document=request.body, version=request.version)
        entry = self._reader.entry_of(description, request=request, with_counts=False)
        return replace(entry, status=status)

    def _delete(self, resource: Resource, _: Request) -> Response:
        if isinstance(resource, Rule):
            self._writer.delete_rule(resource)
        else:
            try:
                self._writer.delete(_require_entity(resource))
            except EntityNotFound as error:
                if not isinstance(resource, Entity):
                    raise
                detail = f"No service is hosted at the specified address. {error}"
                return Response(error.status, error_document(error.status, detail=detail))
        return Response(200)


def error_response(status: int, *, reason: str) -> Response:
    """Return the response that refuses a request.

    The detail begins like the service's: clients distinguish conflicts by ``SubCode``.
    """
    return Response(status, error_document(status, detail=f"SubCode={status}00. {_WORDS.get(status, '')}{reason}"))


def _require_entity(resource: Resource) -> Entity | Subscription:
    if isinstance(resource, Entity | Subscription):
        return resource
    raise OperationNotSupported(
        f"{url_path(resource)!r} cannot be changed; allowed: queues, topics, subscriptions and rules"
    )
