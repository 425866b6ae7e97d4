"""One administration request, answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from servicebus_emulator.admin.atom import error_document
from servicebus_emulator.admin.markup import MarkupError
from servicebus_emulator.admin.reading import Reader
from servicebus_emulator.admin.requests import Answer, Request
from servicebus_emulator.admin.resources import Entity, Resource, Rule, Subscription, Unknown, resource_at, url_path
from servicebus_emulator.admin.writing import Writer
from servicebus_emulator.engine.descriptions import DescriptionError
from servicebus_emulator.engine.errors import BrokerError, EntityNotFound, OperationNotSupported

if TYPE_CHECKING:
    from servicebus_emulator.engine.clock import Clock
    from servicebus_emulator.engine.namespace import Namespace

__all__ = ["Administration", "refusal"]


class Administration:
    """Answers administration requests over one namespace.

    :param namespace: the namespace that is described and changed.
    :param clock: what time it is.
    """

    def __init__(self, namespace: Namespace, *, clock: Clock) -> None:
        self._namespace: Final = namespace
        self._reader: Final = Reader(namespace, clock=clock)
        self._writer: Final = Writer(namespace)
        self._methods: Final = {"GET": self._get, "PUT": self._put, "DELETE": self._delete}

    def answer(self, request: Request) -> Answer:
        """Carry out one request. A refusal is an answer too: its status and an Atom error that says why."""
        # What is idle goes first, rather than halfway through a list.
        self._namespace.advance()
        try:
            _ = request.version
            method = self._methods.get(request.method)
            if method is None:
                return refusal(405, reason=f"method is {request.method!r}; allowed: {', '.join(self._methods)}")
            resource = resource_at(request.raw_path)
            if isinstance(resource, Unknown):
                raise EntityNotFound(f"nothing is at {resource.path!r}; allowed: an entity, a subscription or a list")
            return method(resource, request)
        except BrokerError as error:
            return refusal(error.status, reason=str(error))
        except (DescriptionError, MarkupError) as error:
            return refusal(400, reason=str(error))

    def _get(self, resource: Resource, request: Request) -> Answer:
        return Answer(200, self._reader.read(resource, request=request))

    def _put(self, resource: Resource, request: Request) -> Answer:
        if isinstance(resource, Rule):
            self._writer.put_rule(resource, document=request.body, update=request.update)
            return Answer(200 if request.update else 201, self._reader.read(resource, request=request))
        target = _changeable(resource)
        if request.update:
            description = self._writer.update(target, document=request.body, version=request.version)
        else:
            description = self._writer.create(target, document=request.body, version=request.version)
        return Answer(200 if request.update else 201, self._reader.entry_of(description, request=request))

    def _delete(self, resource: Resource, _: Request) -> Answer:
        if isinstance(resource, Rule):
            self._writer.delete_rule(resource)
        else:
            self._writer.delete(_changeable(resource))
        return Answer(200)


def refusal(status: int, *, reason: str) -> Answer:
    """Return the answer that refuses a request.

    The detail begins as the service's does: clients tell conflicts apart by ``SubCode``.
    """
    return Answer(status, error_document(status, detail=f"SubCode={status}00. {reason}"))


def _changeable(resource: Resource) -> Entity | Subscription:
    if isinstance(resource, Entity | Subscription):
        return resource
    raise OperationNotSupported(
        f"{url_path(resource)!r} cannot be changed; allowed: queues, topics, subscriptions and rules can"
    )
