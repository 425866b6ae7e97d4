"""Translates Airflow connections to the settings that ``core.pair.settings`` reads.

Pure functions: the hook looks connections up, synchronously or not. ``core.pair`` is imported inside the functions,
because parsing a DAG file does not read connections. Three connection types describe namespaces:

==========================  =====================================================================
connection type             what it holds
==========================  =====================================================================
``servicebus_pair``         two namespaces, each in its extra or by reference, and the options
``servicebus_namespace``    one namespace: ``host``, ``login`` and ``password`` are the host, the
                            client id and the client secret, the others are in its extra
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

    from servicebus_pair.core import Endpoint, PairSettings
    from servicebus_pair.core.pair import SettingsReference

__all__ = [
    "NAMESPACE_TYPE",
    "OFFICIAL_TYPE",
    "PAIR_TYPE",
    "check_type",
    "connection_reference",
    "endpoint_from_connection",
    "pair_from_connections",
    "parse_extra",
    "referenced_conn_ids",
    "secret_values",
    "unknown_reference_error",
]

PAIR_TYPE: Final = "servicebus_pair"
NAMESPACE_TYPE: Final = "servicebus_namespace"
OFFICIAL_TYPE: Final = "azure_service_bus"

# The connection field that holds each setting, where the names differ.
_NAMESPACE_FIELDS: Final = {"client_id": "login", "client_secret": "password"}
_OFFICIAL_FIELDS: Final = {
    "connection_string": "schema",
    "host": "fully_qualified_namespace",
    "client_id": "managed_identity_client_id",
    "tenant_id": "workload_identity_tenant_id",
}
_FIELD_NAMES: Final = {NAMESPACE_TYPE: _NAMESPACE_FIELDS, OFFICIAL_TYPE: _OFFICIAL_FIELDS}


def check_type(connection: Connection, expected: str) -> None:
    """Check the type of a connection.

    :raises ConfigurationError: it is of another type.
    """
    if connection.conn_type != expected:
        raise ConfigurationError(
            f"connection {connection.conn_id} is of type {connection.conn_type!r}: it must be {expected!r}"
        )


def parse_extra(connection: Connection) -> dict[str, Any]:
    """Parse the extra field strictly; Airflow's ``extra_dejson`` returns an empty mapping for invalid JSON.

    :raises ConfigurationError: it is not a JSON object; the message does not quote it, because it may hold secrets.
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


def referenced_conn_ids(extra: Mapping[str, Any], *, conn_id: str) -> dict[str, str]:
    """Return the ids of the connections that a pair's connection refers to, by side.

    :param conn_id: the pair's connection, for errors.
    :raises ConfigurationError: an id is not a text.
    """
    from servicebus_pair.core.model import no_secret
    from servicebus_pair.core.pair import REFERENCE, SIDES

    conn_ids: dict[str, str] = {}
    for side in SIDES:
        name = f"{side}_{REFERENCE}"
        value = extra.get(name)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise ConfigurationError(f"connection {conn_id}: setting {name} is {value!r}: it must be a connection id")
        # Airflow would log what it looks up.
        no_secret(f"connection {conn_id}: setting {name}", value, belongs=f"in {side}_connection_string")
        conn_ids[side] = value
    return conn_ids


def unknown_reference_error(conn_id: str, *, side: str, referenced_id: str) -> ConfigurationError:
    """Return the error for a reference to a connection that does not exist."""
    from servicebus_pair.core.pair import REFERENCE

    return ConfigurationError(
        f"connection {conn_id}: setting {side}_{REFERENCE} is {referenced_id!r}: there is no such connection; create "
        f"one of type {NAMESPACE_TYPE} or {OFFICIAL_TYPE}, or name another"
    )


def connection_reference(connection: Connection) -> SettingsReference:
    """Return the settings of the namespace that a connection describes.

    :raises ConfigurationError: the connection is of another type, or its extra is invalid.
    """
    from servicebus_pair.core.pair import SettingsReference

    if connection.conn_type not in _FIELD_NAMES:
        raise ConfigurationError(
            f"connection {connection.conn_id} is of type {connection.conn_type!r}: to be one namespace of a pair it "
            f"must be {' or '.join(map(repr, _FIELD_NAMES))}"
        )
    where = f"connection {connection.conn_id}"
    extra = parse_extra(connection)
    official = connection.conn_type == OFFICIAL_TYPE
    settings = _official(connection, extra) if official else _namespace(connection, extra)
    return SettingsReference(where=where, settings=settings, fields=_FIELD_NAMES[connection.conn_type])


def pair_from_connections(conn_id: str, extra: Mapping[str, Any], referenced: Mapping[str, Connection]) -> PairSettings:
    """Read the settings of a pair.

    :param conn_id: the pair's connection, for errors.
    :param extra: the parsed extra of that connection.
    :param referenced: the connections that it refers to, by side.
    :raises ConfigurationError: naming the connection, field, value (never a secret) and what is allowed.
    """
    from servicebus_pair.core import read_pair_settings

    try:
        references = {side: connection_reference(connection) for side, connection in referenced.items()}
        return read_pair_settings(extra, referenced=references)
    except ConfigurationError as error:
        raise ConfigurationError(f"connection {conn_id}: {error}") from error


def endpoint_from_connection(connection: Connection) -> Endpoint:
    """Read the endpoint of one namespace.

    :raises ConfigurationError: naming the connection, field, value (never a secret) and what is allowed.
    """
    from servicebus_pair.core.pair import read_endpoint

    reference = connection_reference(connection)
    return read_endpoint(reference.settings, label=reference.label)


def secret_values(connection: Connection) -> list[str]:
    """Return every secret of a connection of any of the three types, to mask them in logs; our errors mask them too.

    Works for invalid connections too, because errors about them are logged, and finds secrets in the wrong fields.
    """
    from servicebus_pair.core.model import learn_secrets, secret_kind
    from servicebus_pair.core.pair import find_secrets

    parsed = _parsed(connection.extra)
    extra = parsed if isinstance(parsed, dict) else {}
    found = find_secrets(extra)
    if connection.conn_type in _FIELD_NAMES:
        found += find_secrets({"connection_string": connection.schema, "client_secret": connection.password})
        # The official provider passes this one to the SDK unchanged.
        found += find_secrets({"client_secret": _official_extra(extra, "credential")})
    values = (connection.host, connection.login, connection.schema, connection.password, *extra, *extra.values())
    for value in values:
        text = value if isinstance(value, str) else json.dumps(value)
        if secret_kind(text) is not None:
            found += find_secrets({"connection_string": text})
    learn_secrets(found)
    return list(dict.fromkeys(found))


def _namespace(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    host = connection.host
    if host and connection.port:
        host = f"{host}:{connection.port}"
    standard_fields = {"host": host, "client_id": connection.login, "client_secret": connection.password}
    for name, value in standard_fields.items():
        if value and extra.get(name):
            field = _NAMESPACE_FIELDS.get(name, name)
            raise ConfigurationError(
                f"connection {connection.conn_id}: both {field} and {name} in its extra are set: set only one"
            )
    return {**extra, **{name: value for name, value in standard_fields.items() if value}}


def _official(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    # The official provider ignores it; ours allows it to add other hosts beside the reference.
    shared = {"allow_other_hosts": extra.get("allow_other_hosts")}
    if connection.schema:
        return {"connection_string": connection.schema, **shared}
    if _official_extra(extra, "credential"):
        raise ConfigurationError(
            f"connection {connection.conn_id}: its extra has credential, a text, but the SDK expects an identity "
            f"object: remove it to use the default identity, or use a connection of type {NAMESPACE_TYPE}"
        )
    return {
        "authentication": "default",
        "host": _official_extra(extra, "fully_qualified_namespace") or connection.host,
        "client_id": _official_extra(extra, "managed_identity_client_id"),
        "tenant_id": _official_extra(extra, "workload_identity_tenant_id"),
        **shared,
    }


def _official_extra(extra: Mapping[str, Any], name: str) -> Any:
    """Return an extra field of the official type; old connections store it with a prefix."""
    return extra.get(name) or extra.get(f"extra__{OFFICIAL_TYPE}__{name}")
