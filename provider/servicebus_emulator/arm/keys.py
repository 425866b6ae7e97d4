"""Shared access policies of a namespace and of its entities, and their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from servicebus_emulator.arm.addresses import entity_path, path_segment
from servicebus_emulator.arm.entities import get_or_none, request_properties
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.namespace_host import ManagedNamespace
from servicebus_emulator.arm.requests import Request, Response
from servicebus_emulator.engine.model.access_policy import SharedAccessPolicy
from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_emulator.engine.namespace.shared_access_policies import PolicyKey

_ALLOWED_RIGHTS: Final = f"at least one of {', '.join(AccessRight)}; all of them where Manage is one"

KeyAction = Callable[[ManagedNamespace, Request], Response]


def _list(hosted: ManagedNamespace, request: Request) -> Response:
    policies = hosted.namespace.access_policies.list(_entity(hosted, request))
    return request.list_response(policies, encode=lambda policy: _resource(hosted, policy, request=request))


def _get(hosted: ManagedNamespace, request: Request) -> Response:
    return Response(200, _resource(hosted, _policy(hosted, request), request=request))


def _put(hosted: ManagedNamespace, request: Request) -> Response:
    properties = request_properties(request)
    rights = None if properties is None else properties.members("rights").get("rights")
    if rights is None:
        raise ArmError(400, f"properties.rights is missing; allowed: {_ALLOWED_RIGHTS}")
    requested = [AccessRight(right.one_of(AccessRight)) for right in rights.items()]
    if len(requested) == 0 or (AccessRight.MANAGE in requested and len(set(requested)) < len(AccessRight)):
        rights.refuse(_ALLOWED_RIGHTS)
    name, entity = request.address.names[-1], _entity(hosted, request)
    policy = hosted.namespace.access_policies.put(name, rights=requested, path=entity)
    return Response(200, _resource(hosted, policy, request=request))


def _delete(hosted: ManagedNamespace, request: Request) -> Response:
    name, entity = request.address.names[-1], _entity(hosted, request)
    if get_or_none(lambda: hosted.namespace.access_policies.get(name, path=entity)) is None:
        return Response(204)
    hosted.namespace.access_policies.delete(name, path=entity)
    return Response(200)


def _list_keys(hosted: ManagedNamespace, request: Request) -> Response:
    return _keys_response(hosted, _policy(hosted, request), request=request)


def _regenerate_keys(hosted: ManagedNamespace, request: Request) -> Response:
    members = request.document.members("keyType", "key")
    if "keyType" not in members:
        raise ArmError(400, f"keyType is missing; allowed: {', '.join(PolicyKey)}")
    policy = hosted.namespace.access_policies.regenerate(
        request.address.names[-1],
        key=PolicyKey(members["keyType"].one_of(PolicyKey)),
        path=_entity(hosted, request),
        value=None if "key" not in members else members["key"].optional_text(),
    )
    return _keys_response(hosted, policy, request=request)


KEY_ACTIONS: Final[Mapping[bool, Mapping[str, KeyAction]]] = {
    True: {"GET": _list},
    False: {"GET": _get, "PUT": _put, "DELETE": _delete},
}
"""Actions by whether the address is a list, and by method."""

KEY_VERBS: Final[Mapping[str, KeyAction]] = {"listkeys": _list_keys, "regeneratekeys": _regenerate_keys}
"""Actions of a POST to a policy."""


def _entity(hosted: ManagedNamespace, request: Request) -> str | None:
    """Return the path of the queue or topic that owns the policies; None = the namespace.

    :raises EntityNotFound: it does not exist.
    """
    match request.address.types[1]:
        case "queues":
            return hosted.namespace.get_queue(entity_path(request.address.names[1])).path
        case "topics":
            return hosted.namespace.get_topic(entity_path(request.address.names[1])).path
        case _:
            return None


def _policy(hosted: ManagedNamespace, request: Request) -> SharedAccessPolicy:
    return hosted.namespace.access_policies.get(request.address.names[-1], path=_entity(hosted, request))


def _resource(hosted: ManagedNamespace, policy: SharedAccessPolicy, *, request: Request) -> dict[str, object]:
    entity = _entity(hosted, request)
    names = (hosted.name, *(() if entity is None else (path_segment(entity),)), policy.name)
    rights = [right.value for right in policy.ordered_rights]
    return request.resource(*names, properties={"rights": rights})


def _keys_response(hosted: ManagedNamespace, policy: SharedAccessPolicy, *, request: Request) -> Response:
    entity = _entity(hosted, request)
    suffix = "" if entity is None else f";EntityPath={entity}"
    document: dict[str, object] = {"keyName": policy.name}
    for which, key in (("primary", policy.primary_key), ("secondary", policy.secondary_key)):
        document[f"{which}Key"] = key
        document[f"{which}ConnectionString"] = (
            f"Endpoint={hosted.endpoint_address};SharedAccessKeyName={policy.name};SharedAccessKey={key};"
            f"UseDevelopmentEmulator=true{suffix}"
        )
    return Response(200, document)
