"""Dispatches one request of Azure Resource Manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, NoReturn, TypeVar

from servicebus_emulator.arm.addresses import PROVIDER, Address, Scope
from servicebus_emulator.arm.entities import ENTITY_ACTIONS
from servicebus_emulator.arm.errors import ArmError, to_arm_error
from servicebus_emulator.arm.fixed_resources import NETWORK_ACTIONS, UNSUPPORTED_ACTIONS, UNSUPPORTED_TYPES
from servicebus_emulator.arm.keys import KEY_ACTIONS, KEY_VERBS, KeyAction
from servicebus_emulator.arm.namespace_host import ManagedNamespace, NamespaceHost
from servicebus_emulator.arm.namespace_register import NamespaceRegister
from servicebus_emulator.arm.namespaces import Namespaces
from servicebus_emulator.arm.requests import Request, Response
from servicebus_emulator.engine.model.clock import Clock
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.engine.runtime.journal import JournalError

_KEY_OWNERS: Final = (("namespaces",), ("namespaces", "queues"), ("namespaces", "topics"))
_READABLE: Final = (
    "",
    "queues/",
    "topics/",
    "topics/subscriptions/",
    "topics/subscriptions/rules/",
    "authorizationRules/",
)

T = TypeVar("T")

Action = Callable[[Request], Response | Awaitable[Response]]


class ResourceManager:
    """Handles requests about the namespaces of a host.

    :param host: starts and stops the namespaces.
    :param register: the properties of the namespaces other than their entities.
    :param scope: the subscription and the resource group of the emulator.
    """

    def __init__(self, host: NamespaceHost, *, register: NamespaceRegister, scope: Scope, clock: Clock) -> None:
        self._scope: Final = scope
        self._namespaces: Final = Namespaces(host, register=register, clock=clock)
        self._namespace_actions: Final[dict[str, Action]] = {
            "GET": self._namespaces.get,
            "PUT": self._namespaces.put,
            "PATCH": self._namespaces.update,
            "DELETE": self._namespaces.delete,
        }

    async def restore(self) -> None:
        """Serve the namespaces that were created before a restart."""
        await self._namespaces.restore()

    def find_namespace(self, address: Address) -> ManagedNamespace | None:
        """Return the namespace of an address; None = it has none, or the namespace does not exist."""
        return None if len(address.names) == 0 else self._namespaces.find(address.names[0])

    async def handle(self, request: Request) -> Response:
        """Carry out one request.

        :raises ArmError: the request is refused.
        """
        request.check_version()
        try:
            action = self._action(request)
            response = action(request)
            return response if isinstance(response, Response) else await response
        except (BrokerError, DescriptionError) as error:
            raise to_arm_error(error) from error
        except JournalError as error:
            self._fail(request.address, error=error)
            raise ArmError(500, f"the change cannot be persisted: {error}") from error

    def _fail(self, address: Address, *, error: JournalError) -> None:
        """Fail the namespace whose change was lost; the register reverts its own changes."""
        hosted = self.find_namespace(address)
        if hosted is not None and address.types != ("namespaces",):
            hosted.fail(error)

    def _action(self, request: Request) -> Action:
        address = request.address
        if address.subscription is None:
            if address.types != ("operations",):
                return _not_found(request)
            return _by_method({"GET": _list_operations}, request)
        self._check_scope(address)
        if address.types == () and address.verb == "checknameavailability" and address.resource_group is None:
            return self._namespaces.check_name
        if address.types == ("namespaces",) and address.is_list:
            return _by_method({"GET": self._namespaces.list}, request)
        if address.resource_group is None or address.types[:1] != ("namespaces",):
            return _not_found(request)
        if address.types == ("namespaces",):
            return _by_method(self._namespace_actions, request)
        if address.types == ("namespaces", "operationresults"):
            return _by_method({"GET": self._namespaces.operation_result}, request)
        return self._child_action(request)

    def _check_scope(self, address: Address) -> None:
        requested, existing = address.subscription or "", self._scope.subscription
        if requested.casefold() != existing.casefold():
            raise ArmError(
                404, f"there is no subscription {requested!r}; allowed: {existing}", code="SubscriptionNotFound"
            )
        group, existing = address.resource_group, self._scope.resource_group
        if group is not None and group.casefold() != existing.casefold():
            raise ArmError(
                404, f"there is no resource group {group!r}; allowed: {existing}", code="ResourceGroupNotFound"
            )

    def _child_action(self, request: Request) -> Action:
        """Return the action on a resource within a namespace."""
        address = request.address
        if address.verb is not None and address.types[-1] != "authorizationRules":
            return _not_found(request)
        hosted = self.find_namespace(address)
        if hosted is None:
            raise ArmError(
                404, f"there is no namespace {address.names[0]!r}; create it first", code="ParentResourceNotFound"
            )
        # Idle entities are deleted first, not in the middle of a list.
        hosted.namespace.advance()
        action = self._action_within(hosted, request)
        located = replace(request, location=self._namespaces.location_of(hosted))
        return lambda _: action(located)

    def _action_within(self, hosted: ManagedNamespace, request: Request) -> Callable[[Request], Response]:
        address = request.address
        if address.types[-1] == "authorizationRules" and address.types[:-1] in _KEY_OWNERS:
            key_action = _key_action(request)
            return lambda request: key_action(hosted, request)
        if address.types == ("namespaces", "networkRuleSets"):
            network_action = _by_method(NETWORK_ACTIONS[address.is_list], request)
            return lambda request: network_action(hosted, request)
        if address.types[1:] in UNSUPPORTED_TYPES:
            return _by_method(UNSUPPORTED_ACTIONS[address.is_list], request)
        actions = ENTITY_ACTIONS.get((address.types[1:], address.is_list))
        if actions is None:
            return _not_found(request)
        entity_action = _by_method(actions, request)
        return lambda request: entity_action(hosted.namespace, request)


def _key_action(request: Request) -> KeyAction:
    if request.address.verb is not None:
        return KEY_VERBS.get(request.address.verb) or _not_found(request)
    return _by_method(KEY_ACTIONS[request.address.is_list], request)


def _list_operations(_: Request) -> Response:
    named = [
        {"name": f"{PROVIDER}/namespaces/{kind}{verb}", "isDataAction": False}
        for kind in _READABLE
        for verb in ("read", "write", "delete")
    ]
    return Response(200, {"value": named})


def _by_method(actions: Mapping[str, T], request: Request) -> T:
    action = actions.get(request.method)
    if action is None:
        raise ArmError(405, f"method is {request.method!r}; allowed: {', '.join(actions)}")
    return action


def _not_found(request: Request) -> NoReturn:
    raise ArmError(
        404, f"nothing is at {request.raw_path!r}; allowed: pairs of a type and a name, with '~' for each '/' of a name"
    )
