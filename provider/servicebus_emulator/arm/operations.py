"""One request, answered: to whom it goes, and what it is refused for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NoReturn, TypeVar

from servicebus_emulator.arm.absent import ABSENT, ABSENT_ACTIONS
from servicebus_emulator.arm.addresses import PROVIDER, Address, Scope
from servicebus_emulator.arm.calls import Answer, Call
from servicebus_emulator.arm.entities import ENTITY_ACTIONS
from servicebus_emulator.arm.errors import ArmError, arm_error_of
from servicebus_emulator.arm.host import Host, Hosted
from servicebus_emulator.arm.keys import KEY_ACTIONS, KEY_VERBS, KeyAction
from servicebus_emulator.arm.namespaces import Namespaces
from servicebus_emulator.arm.network import NETWORK_ACTIONS
from servicebus_emulator.arm.register import Register
from servicebus_emulator.engine.clock import Clock
from servicebus_emulator.engine.descriptions import DescriptionError
from servicebus_emulator.engine.errors import BrokerError
from servicebus_emulator.engine.journal import JournalError

__all__ = ["ResourceManager"]

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

Action = Callable[[Call], Answer | Awaitable[Answer]]


class ResourceManager:
    """Answers requests over the namespaces of a host.

    :param host: serves the namespaces.
    :param register: what is known of them beside their entities.
    :param scope: the subscription and the resource group that there are.
    :param clock: what time it is.
    """

    def __init__(self, host: Host, *, register: Register, scope: Scope, clock: Clock) -> None:
        self._scope: Final = scope
        self._namespaces: Final = Namespaces(host, register=register, clock=clock)
        spaces = self._namespaces
        self._of_namespace: Final[dict[str, Action]] = {
            "GET": spaces.get,
            "PUT": spaces.put,
            "PATCH": spaces.update,
            "DELETE": spaces.delete,
        }

    async def restore(self) -> None:
        """Have the namespaces served that were made before a restart."""
        await self._namespaces.restore()

    def owner(self, address: Address) -> Hosted | None:
        """Return the namespace that an address lies in; None = in none, or in none that there is."""
        return None if len(address.names) == 0 else self._namespaces.find(address.names[0])

    async def answer(self, call: Call) -> Answer:
        """Carry out one request.

        :raises ArmError: when it is refused.
        """
        call.check_version()
        try:
            action = self._action(call)
            answer = action(call)
            return answer if isinstance(answer, Answer) else await answer
        except (BrokerError, DescriptionError) as error:
            raise arm_error_of(error) from error
        except JournalError as error:
            self._fail(call.address, error=error)
            raise ArmError(500, code="InternalError", message=f"this cannot be kept: {error}") from error

    def _fail(self, address: Address, *, error: JournalError) -> None:
        """Give up the namespace whose change was lost; the list of namespaces takes back what it cannot keep."""
        hosted = self.owner(address)
        if hosted is not None and address.types != ("namespaces",):
            hosted.fail(error)

    def _action(self, call: Call) -> Action:
        address = call.address
        if address.subscription is None:
            return _one_of({"GET": _list_operations}, call) if address.types == ("operations",) else _nothing(call)
        self._check_scope(address)
        if address.types == () and address.verb == "checknameavailability" and address.resource_group is None:
            return self._namespaces.check_name
        if address.types == ("namespaces",) and address.is_list:
            return _one_of({"GET": self._namespaces.list}, call)
        if address.resource_group is None or address.types[:1] != ("namespaces",):
            return _nothing(call)
        return _one_of(self._of_namespace, call) if address.types == ("namespaces",) else self._inside(call)

    def _check_scope(self, address: Address) -> None:
        wanted, there_is = address.subscription or "", self._scope.subscription
        if wanted.casefold() != there_is.casefold():
            raise ArmError(
                404, code="SubscriptionNotFound", message=f"there is no subscription {wanted!r}; allowed: {there_is}"
            )
        group, there_is = address.resource_group, self._scope.resource_group
        if group is not None and group.casefold() != there_is.casefold():
            raise ArmError(
                404, code="ResourceGroupNotFound", message=f"there is no resource group {group!r}; allowed: {there_is}"
            )

    def _inside(self, call: Call) -> Action:
        """Return what to do with something that a namespace holds."""
        address = call.address
        if address.verb is not None and address.types[-1] != "authorizationRules":
            return _nothing(call)
        hosted = self.owner(address)
        if hosted is None:
            raise ArmError(
                404,
                code="ParentResourceNotFound",
                message=f"there is no namespace {address.names[0]!r}; create it first",
            )
        # What is idle goes first, rather than halfway through a list.
        hosted.namespace.advance()
        if address.types[-1] == "authorizationRules" and address.types[:-1] in _KEY_OWNERS:
            act_on_keys = _of_keys(call)
            return lambda asked: act_on_keys(hosted, asked)
        if address.types == ("namespaces", "networkRuleSets"):
            act_on_network = _one_of(NETWORK_ACTIONS[address.is_list], call)
            return lambda asked: act_on_network(hosted, asked)
        if address.types[1:] in ABSENT:
            return _one_of(ABSENT_ACTIONS[address.is_list], call)
        actions = ENTITY_ACTIONS.get((address.types[1:], address.is_list))
        if actions is None:
            return _nothing(call)
        act = _one_of(actions, call)
        return lambda asked: act(hosted.namespace, asked)


def _of_keys(call: Call) -> KeyAction:
    if call.address.verb is not None:
        return KEY_VERBS.get(call.address.verb) or _nothing(call)
    return _one_of(KEY_ACTIONS[call.address.is_list], call)


def _list_operations(_: Call) -> Answer:
    named = [
        {"name": f"{PROVIDER}/namespaces/{kind}{verb}", "isDataAction": False}
        for kind in _READABLE
        for verb in ("read", "write", "delete")
    ]
    return Answer(200, {"value": named})


def _one_of(actions: Mapping[str, T], call: Call) -> T:
    action = actions.get(call.method)
    if action is None:
        raise ArmError(
            405, code="MethodNotAllowed", message=f"method is {call.method!r}; allowed: {', '.join(actions)}"
        )
    return action


def _nothing(call: Call) -> NoReturn:
    raise ArmError(
        404,
        code="NotFound",
        message=f"nothing is at {call.raw_path!r}; allowed: types and names in turn, with '~' for each '/' of a name",
    )
