"""What connections of Airflow say, in the words of ``core.configuration``.

Pure: who looks connections up, with or without waiting, is the hook. ``core.configuration`` is imported where a
connection is read: parsing a DAG file reads none. Three types tell of a namespace:

==========================  =====================================================================
connection type             what it holds
==========================  =====================================================================
``servicebus_pair``         two namespaces, each in its extra or by reference, and the options
``servicebus_namespace``    one namespace: ``host``, ``login`` and ``password`` are the host, the
                            client id and the client secret, the rest is in its extra
``azure_service_bus``       one namespace, as the official provider (12) reads it: a connection
                            string in ``schema``; without one the default identity, for the host
                            in the extra ``fully_qualified_namespace``
==========================  =====================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from servicebus_pair.core.configuration import PairSettings, Reference
    from servicebus_pair.core.options import Endpoint

__all__ = [
    "NAMESPACE_TYPE",
    "OFFICIAL_TYPE",
    "PAIR_TYPE",
    "check_type",
    "endpoint_of",
    "extra_of",
    "pair_of",
    "reference_to",
    "references_in",
    "secrets_of",
    "unknown_reference",
]

PAIR_TYPE: Final = "servicebus_pair"
NAMESPACE_TYPE: Final = "servicebus_namespace"
OFFICIAL_TYPE: Final = "azure_service_bus"

_OF_NAMESPACE: Final = {"client_id": "login", "client_secret": "password"}
_OF_OFFICIAL: Final = {
    "connection_string": "schema",
    "host": "fully_qualified_namespace",
    "client_id": "managed_identity_client_id",
    "tenant_id": "workload_identity_tenant_id",
}
_WAYS: Final = {NAMESPACE_TYPE: _OF_NAMESPACE, OFFICIAL_TYPE: _OF_OFFICIAL}


def check_type(connection: Connection, expected: str) -> None:
    """Check that a connection is of our type.

    :raises ConfigurationError: naming the connection, its type and the expected one.
    """
    if connection.conn_type != expected:
        raise ConfigurationError(
            f"connection {connection.conn_id} is of type {connection.conn_type!r}: it must be {expected!r}"
        )


def extra_of(connection: Connection) -> dict[str, Any]:
    """Read the extra field; Airflow's own reader answers an empty one for what is not JSON.

    :raises ConfigurationError: it is not a JSON object; it is not quoted.
    """
    extra = _parsed(connection.extra)
    if not isinstance(extra, dict):
        raise ConfigurationError(f"connection {connection.conn_id}: its extra must be a JSON object of settings")
    return extra


def _parsed(extra: str | None) -> Any:
    try:
        return json.loads(extra) if extra else {}
    except ValueError:
        return None


def references_in(extra: Mapping[str, Any], *, conn_id: str) -> dict[str, str]:
    """Answer the ids of the connections that a pair refers to, by side.

    :param conn_id: of the pair.
    :raises ConfigurationError: an id is no text.
    """
    from servicebus_pair.core.configuration import REFERENCE, SIDES

    found: dict[str, str] = {}
    for side in SIDES:
        name = f"{side}_{REFERENCE}"
        value = extra.get(name)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise ConfigurationError(f"connection {conn_id}: setting {name} is {value!r}: it must be a connection id")
        found[side] = value
    return found


def unknown_reference(conn_id: str, *, side: str, named: str) -> ConfigurationError:
    """Answer the error for a reference to a connection that is not there."""
    from servicebus_pair.core.configuration import REFERENCE

    return ConfigurationError(
        f"connection {conn_id}: setting {side}_{REFERENCE} is {named!r}: there is no such connection; create one of "
        f"type {NAMESPACE_TYPE} or {OFFICIAL_TYPE}, or name another"
    )


def reference_to(connection: Connection) -> Reference:
    """Answer the settings of the namespace that a connection describes.

    :raises ConfigurationError: the connection is of another type, or its extra is not valid.
    """
    from servicebus_pair.core.configuration import Reference

    if connection.conn_type not in _WAYS:
        raise ConfigurationError(
            f"connection {connection.conn_id} is of type {connection.conn_type!r}: to be one namespace of a pair it "
            f"must be {' or '.join(map(repr, _WAYS))}"
        )
    where = f"connection {connection.conn_id}"
    extra = extra_of(connection)
    official = connection.conn_type == OFFICIAL_TYPE
    settings = _official(connection, extra) if official else _namespace(connection, extra)
    return Reference(where=where, settings=settings, fields=_WAYS[connection.conn_type])


def pair_of(conn_id: str, extra: Mapping[str, Any], referenced: Mapping[str, Connection]) -> PairSettings:
    """Read a pair.

    :param conn_id: of the pair, for errors.
    :param extra: of the pair's connection.
    :param referenced: the connections that it refers to, by side.
    :raises ConfigurationError: naming connection, field, value (never a secret) and what is allowed.
    """
    from servicebus_pair.core.configuration import read_pair

    try:
        references = {side: reference_to(connection) for side, connection in referenced.items()}
        return read_pair(extra, referenced=references)
    except ConfigurationError as error:
        raise ConfigurationError(f"connection {conn_id}: {error}") from error


def endpoint_of(connection: Connection) -> Endpoint:
    """Read one namespace.

    :raises ConfigurationError: naming connection, field, value (never a secret) and what is allowed.
    """
    from servicebus_pair.core.endpoint_settings import read_endpoint

    reference = reference_to(connection)
    return read_endpoint(reference.settings, called=reference.called)


def secrets_of(connection: Connection) -> list[str]:
    """Answer every secret of a connection of one of the three types, for masks; of an invalid one too."""
    from servicebus_pair.core.endpoint_settings import secrets_in

    parsed = _parsed(connection.extra)
    extra = parsed if isinstance(parsed, dict) else {}
    if connection.conn_type not in _WAYS:
        return secrets_in(extra)
    by_field = {"connection_string": connection.schema, "client_secret": connection.password}
    # What the official provider hands to the SDK as it is.
    official = {"client_secret": _official_extra(extra, "credential")}
    return [*secrets_in(extra), *secrets_in(by_field), *secrets_in(official)]


def _namespace(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    host = connection.host
    if host and connection.port:
        host = f"{host}:{connection.port}"
    named = {"host": host, "client_id": connection.login, "client_secret": connection.password}
    for name, value in named.items():
        if value and extra.get(name):
            field = _OF_NAMESPACE.get(name, name)
            raise ConfigurationError(
                f"connection {connection.conn_id}: {field} is given, and {name} in its extra as well: give one"
            )
    return {**extra, **{name: value for name, value in named.items() if value}}


def _official(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    if connection.schema:
        return {"connection_string": connection.schema}
    if _official_extra(extra, "credential"):
        raise ConfigurationError(
            f"connection {connection.conn_id}: its extra has credential, a text, where the SDK takes an identity: "
            f"leave it out for the default identity, or use a connection of type {NAMESPACE_TYPE}"
        )
    return {
        "authentication": "default",
        "host": _official_extra(extra, "fully_qualified_namespace") or connection.host,
        "client_id": _official_extra(extra, "managed_identity_client_id"),
        "tenant_id": _official_extra(extra, "workload_identity_tenant_id"),
    }


def _official_extra(extra: Mapping[str, Any], name: str) -> Any:
    """A field of the official type, which old connections have with a prefix."""
    return extra.get(name) or extra.get(f"extra__{OFFICIAL_TYPE}__{name}")
