"""A pair from a plain mapping: the one place that reads settings, whoever brings them.

Airflow connections, Spark options and environment variables all end up here. Durations are numbers
of seconds. How one namespace is given is read by ``endpoint_settings``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from servicebus_pair.core.endpoint_settings import ENDPOINT_SETTINGS, boolean, read_endpoint, stated
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.options import Endpoint, PairOptions, check_distinct

__all__ = ["REFERENCE", "SIDES", "PairSettings", "Reference", "read_pair"]

SIDES: Final = ("primary", "secondary")
REFERENCE: Final = "conn_id"
# What may stand beside a reference: what other kinds of connections have no field for.
_BESIDE_REFERENCE: Final = (
    *("namespace", "administration", "transport", "ca_file", "endpoint_address"),
    *("subscription_id", "resource_group", "management_endpoint"),
)
_NOTHING: Final[Mapping[str, Reference]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Two endpoints and the options: what ``NamespacePair`` is made of.

    :raises ConfigurationError: both endpoints are the same namespace.
    """

    primary: Endpoint
    secondary: Endpoint
    options: PairOptions

    def __post_init__(self) -> None:
        check_distinct(self.primary, self.secondary)


@dataclass(frozen=True, slots=True)
class Reference:
    """The settings of one namespace that are kept elsewhere, as in another connection of Airflow.

    :param where: how errors call that place, such as ``connection contoso``.
    :param settings: those of ``read_endpoint``.
    :param fields: what settings are called there, where that is another name.
    """

    where: str
    settings: Mapping[str, Any] = field(repr=False)
    fields: Mapping[str, str] = field(default_factory=dict)

    def called(self, name: str) -> str:
        """Answer how errors call a setting of this place."""
        return f"{self.fields.get(name, name)} of {self.where}"


def read_pair(settings: Mapping[str, Any], *, referenced: Mapping[str, Reference] = _NOTHING) -> PairSettings:
    """Read ``primary_*``, ``secondary_*`` and option settings; empty values count as absent.

    :param settings: the settings of ``read_endpoint``, each with the prefix ``primary_`` or ``secondary_``, and
        any option of ``PairOptions``, durations in seconds. ``primary_conn_id`` or ``secondary_conn_id`` may
        stand in for those of a namespace.
    :param referenced: what these references name, by side; who cannot look them up gives nothing.
    :raises ConfigurationError: naming the setting, its value (never a secret) and what is allowed.
    """
    given = {name: value for name, value in settings.items() if value is not None and value != ""}
    known = {f"{side}_{name}" for side in SIDES for name in (*ENDPOINT_SETTINGS, REFERENCE)}
    options = {option.name: option for option in fields(PairOptions)}
    unknown = sorted(set(given) - known - set(options))
    if unknown:
        raise ConfigurationError(
            f"setting {unknown[0]!r} is unknown: allowed are {', '.join(sorted([*known, *options]))}"
        )
    read = {name: _option(name, given[name]) for name in options if name in given}
    return PairSettings(
        primary=_endpoint(given, "primary", referenced),
        secondary=_endpoint(given, "secondary", referenced),
        options=PairOptions(**read),
    )


def _endpoint(given: Mapping[str, Any], side: str, referenced: Mapping[str, Reference]) -> Endpoint:
    inline = stated({name: given.get(f"{side}_{name}") for name in ENDPOINT_SETTINGS})
    if f"{side}_{REFERENCE}" not in given:
        return read_endpoint(inline, called=lambda name: f"{side}_{name}")
    if side not in referenced:
        raise ConfigurationError(
            f"setting {side}_{REFERENCE} is {given[f'{side}_{REFERENCE}']!r}: it names another connection, which only "
            f"Airflow can look up: outside of it, as in Spark, give the settings themselves, such as "
            f"{side}_connection_string"
        )
    reference = referenced[side]
    _check_beside(inline, side, reference)

    def called(name: str) -> str:
        return f"{side}_{name}" if name in inline else reference.called(name)

    return read_endpoint({**reference.settings, **inline}, called=called)


def _check_beside(inline: Mapping[str, Any], side: str, reference: Reference) -> None:
    for name in inline:
        if name not in _BESIDE_REFERENCE:
            raise ConfigurationError(
                f"settings {side}_{REFERENCE} and {side}_{name} are both given: give the namespace either by "
                f"reference or here; beside a reference may stand {', '.join(_BESIDE_REFERENCE)}"
            )
        if reference.settings.get(name):
            raise ConfigurationError(
                f"setting {side}_{name} is given, and {reference.called(name)} as well: give it in one place"
            )


def _option(name: str, value: Any) -> Any:
    default = getattr(PairOptions(), name)
    if isinstance(default, bool):
        return boolean(name, value)
    if isinstance(default, str):
        return value
    if isinstance(value, bool):
        raise ConfigurationError(f"setting {name} is {value!r}: it must be a number")
    try:
        number = float(value)
        if isinstance(default, timedelta):
            return timedelta(seconds=number)
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"setting {name} is {value!r}: it must be a number") from None
    if not number.is_integer():
        raise ConfigurationError(f"setting {name} is {value!r}: it must be a whole number")
    return int(number)
