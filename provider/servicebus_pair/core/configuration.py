"""A pair from a plain mapping: the one place that reads settings, whoever brings them.

Airflow connections, Spark options and environment variables all end up here. Durations are numbers
of seconds. Credentials are connection strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.options import TRANSPORTS, Endpoint, PairOptions

__all__ = ["ENDPOINT_SETTINGS", "PairSettings", "read_pair"]

ENDPOINT_SETTINGS: Final = ("connection_string", "namespace", "administration", "transport", "address", "ca_file")


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Two endpoints and the options: what ``NamespacePair`` is made of."""

    primary: Endpoint
    secondary: Endpoint
    options: PairOptions


def read_pair(settings: Mapping[str, Any]) -> PairSettings:
    """Read ``primary_*``, ``secondary_*`` and option settings; empty values count as absent.

    :param settings: ``primary_connection_string``, ``primary_namespace``, ``primary_administration``,
        ``primary_transport``, ``primary_address`` and ``primary_ca_file`` as ``Endpoint.from_connection_string``
        takes them, the same for ``secondary``, and any option of ``PairOptions``, durations in seconds.
    :raises ConfigurationError: naming the setting, its value (never a secret) and what is allowed.
    """
    given = {name: value for name, value in settings.items() if value is not None and value != ""}
    known = {f"{side}_{name}" for side in ("primary", "secondary") for name in ENDPOINT_SETTINGS}
    options = {option.name: option for option in fields(PairOptions)}
    unknown = sorted(set(given) - known - set(options))
    if unknown:
        raise ConfigurationError(
            f"setting {unknown[0]!r} is unknown: allowed are {', '.join(sorted([*known, *options]))}"
        )
    read = {name: _option(name, given[name]) for name in options if name in given}
    return PairSettings(
        primary=_endpoint(given, "primary"),
        secondary=_endpoint(given, "secondary"),
        options=PairOptions(**read),
    )


def _endpoint(given: Mapping[str, Any], side: str) -> Endpoint:
    text = given.get(f"{side}_connection_string")
    if not isinstance(text, str):
        raise ConfigurationError(f"setting {side}_connection_string is missing: it must be a connection string")
    try:
        return Endpoint.from_connection_string(
            text,
            namespace=given.get(f"{side}_namespace"),
            administration=given.get(f"{side}_administration"),
            transport=given.get(f"{side}_transport", TRANSPORTS[0]),
            address=given.get(f"{side}_address"),
            ca_file=given.get(f"{side}_ca_file"),
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"{side}: {error}") from error


def _option(name: str, value: Any) -> Any:
    default = getattr(PairOptions(), name)
    if isinstance(default, bool):
        return _boolean(name, value)
    if isinstance(default, str):
        return value
    if isinstance(value, bool):
        raise ConfigurationError(f"setting {name} is {value!r}: it must be a number")
    try:
        number = float(value)
        if isinstance(default, timedelta):
            return timedelta(seconds=number)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"setting {name} is {value!r}: it must be a number") from error
    if not number.is_integer():
        raise ConfigurationError(f"setting {name} is {value!r}: it must be a whole number")
    return int(number)


def _boolean(name: str, value: Any) -> bool:
    match value:
        case bool():
            return value
        case str() if value.lower() in ("true", "false"):
            return value.lower() == "true"
    raise ConfigurationError(f"setting {name} is {value!r}: allowed are true and false")
