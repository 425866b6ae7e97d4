"""Shared access rules of a namespace and of its entities, with their keys: listed, put, deleted, handed out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from servicebus_emulator.arm.addresses import entity_of, segment_of
from servicebus_emulator.arm.calls import Answer, Call
from servicebus_emulator.arm.entities import found, properties_in
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.host import Hosted
from servicebus_emulator.engine.access import Key
from servicebus_emulator.engine.access_rules import AccessRule
from servicebus_emulator.engine.descriptions import AccessRight

__all__ = ["KEY_ACTIONS", "KEY_VERBS", "KeyAction"]


KeyAction = Callable[[Hosted, Call], Answer]


def _list(hosted: Hosted, call: Call) -> Answer:
    return call.list(
        hosted.namespace.access_rules.list(_entity(hosted, call)), show=lambda rule: _shown(hosted, rule, call=call)
    )


def _get(hosted: Hosted, call: Call) -> Answer:
    return Answer(200, _shown(hosted, _rule(hosted, call), call=call))


def _put(hosted: Hosted, call: Call) -> Answer:
    properties = properties_in(call)
    rights = None if properties is None else properties.members("rights").get("rights")
    if rights is None:
        raise ArmError(400, code="BadRequest", message=f"properties.rights is missing; allowed: {_allowed_rights()}")
    wanted = frozenset(AccessRight(right.one_of(AccessRight)) for right in rights.items())
    if len(wanted) == 0 or (AccessRight.MANAGE in wanted and len(wanted) < len(AccessRight)):
        rights.refuse(_allowed_rights())
    put = hosted.namespace.access_rules.put(call.address.names[-1], rights=wanted, path=_entity(hosted, call))
    return Answer(200, _shown(hosted, put, call=call))


def _delete(hosted: Hosted, call: Call) -> Answer:
    name, entity = call.address.names[-1], _entity(hosted, call)
    if found(lambda: hosted.namespace.access_rules.get(name, path=entity)) is None:
        return Answer(204)
    hosted.namespace.access_rules.delete(name, path=entity)
    return Answer(200)


def _list_keys(hosted: Hosted, call: Call) -> Answer:
    return _handed_out(hosted, _rule(hosted, call), call=call)


def _regenerate_keys(hosted: Hosted, call: Call) -> Answer:
    members = call.document.members("keyType", "key")
    if "keyType" not in members:
        raise ArmError(400, code="BadRequest", message=f"keyType is missing; allowed: {', '.join(Key)}")
    which = Key(members["keyType"].one_of(Key))
    value = None if "key" not in members else members["key"].optional_text()
    renewed = hosted.namespace.access_rules.regenerate(
        call.address.names[-1], key=which, path=_entity(hosted, call), value=value
    )
    return _handed_out(hosted, renewed, call=call)


KEY_ACTIONS: Final[Mapping[bool, Mapping[str, KeyAction]]] = {
    True: {"GET": _list},
    False: {"GET": _get, "PUT": _put, "DELETE": _delete},
}
"""What can be done, by whether all rules are meant, and by method."""

KEY_VERBS: Final[Mapping[str, KeyAction]] = {"listkeys": _list_keys, "regeneratekeys": _regenerate_keys}
"""What can be asked of a rule by POST."""


def _entity(hosted: Hosted, call: Call) -> str | None:
    """Return the path of the queue or topic whose rules are meant; None = those of the namespace.

    :raises EntityNotFound: when there is no such entity.
    """
    match call.address.types[1]:
        case "queues":
            return hosted.namespace.get_queue(entity_of(call.address.names[1])).path
        case "topics":
            return hosted.namespace.get_topic(entity_of(call.address.names[1])).path
        case _:
            return None


def _rule(hosted: Hosted, call: Call) -> AccessRule:
    return hosted.namespace.access_rules.get(call.address.names[-1], path=_entity(hosted, call))


def _shown(hosted: Hosted, rule: AccessRule, *, call: Call) -> dict[str, object]:
    entity = _entity(hosted, call)
    names = (hosted.name, *(() if entity is None else (segment_of(entity),)), rule.name)
    rights = [right.value for right in AccessRight if right in rule.rights]
    return {**call.identify(*names), "properties": {"rights": rights}}


def _handed_out(hosted: Hosted, rule: AccessRule, *, call: Call) -> Answer:
    entity = _entity(hosted, call)
    suffix = "" if entity is None else f";EntityPath={entity}"
    document: dict[str, object] = {"keyName": rule.name}
    for which, key in (("primary", rule.primary_key), ("secondary", rule.secondary_key)):
        document[f"{which}Key"] = key
        document[f"{which}ConnectionString"] = (
            f"Endpoint={hosted.endpoint_address};SharedAccessKeyName={rule.name};SharedAccessKey={key};"
            f"UseDevelopmentEmulator=true{suffix}"
        )
    return Answer(200, document)


def _allowed_rights() -> str:
    return f"at least one of {', '.join(AccessRight)}; all of them where Manage is one"
