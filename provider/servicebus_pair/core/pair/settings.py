"""Read the settings of a pair from a mapping, for Airflow connections, Spark options and programs.

Durations are numbers of seconds. ``endpoint_settings`` reads the settings of one namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import OPTION_CHECKS, Endpoint, PairOptions, check_distinct
from servicebus_pair.core.pair.endpoint_settings import (
    ENDPOINT_SETTINGS,
    check_added_hosts,
    non_empty,
    read_endpoint,
    refuse_misplaced_secrets,
)

SIDES: Final = ("primary", "secondary")
REFERENCE: Final = "conn_id"
# Allowed in addition to a reference, because other connection types have no field for them.
_ALLOWED_WITH_REFERENCE: Final = (
    *("namespace", "administration", "transport", "ca_file", "endpoint_address"),
    *("subscription_id", "resource_group", "management_endpoint"),
)
_NO_REFERENCES: Final[Mapping[str, SettingsReference]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PairSettings:
    """The two endpoints and the options of a ``NamespacePair``.

    :raises ConfigurationError: both endpoints are the same namespace.
    """

    primary: Endpoint
    secondary: Endpoint
    options: PairOptions

    def __post_init__(self) -> None:
        check_distinct(self.primary, self.secondary)


@dataclass(frozen=True, slots=True)
class SettingsReference:
    """Settings of one namespace that are stored elsewhere, such as in another Airflow connection.

    :param where: name of that place in errors, such as ``connection contoso``.
    :param settings: input of ``read_endpoint``.
    :param fields: names of settings at that place, where they differ.
    """

    where: str
    settings: Mapping[str, Any] = field(repr=False)
    fields: Mapping[str, str] = field(default_factory=dict)

    def label(self, name: str) -> str:
        """Return the name of a setting at this place, for errors."""
        return f"{self.fields.get(name, name)} of {self.where}"


def read_pair_settings(
    settings: Mapping[str, Any], *, referenced: Mapping[str, SettingsReference] = _NO_REFERENCES
) -> PairSettings:
    """Read ``primary_*``, ``secondary_*`` and option settings; empty values count as absent.

    :param settings: settings of ``read_endpoint`` with the prefix ``primary_`` or ``secondary_``, and options of
        ``PairOptions``, durations in seconds. ``primary_conn_id`` or ``secondary_conn_id`` may replace the settings of
        a namespace.
    :param referenced: the settings that these references name, by side.
    :raises ConfigurationError: a setting is wrong; the text names it, its value (never a secret) and what is allowed.
    """
    given = {name: value for name, value in settings.items() if value not in (None, "")}
    refuse_misplaced_secrets(given)
    known = {f"{side}_{name}" for side in SIDES for name in (*ENDPOINT_SETTINGS, REFERENCE)}
    unknown = sorted(set(given) - known - set(OPTION_CHECKS))
    if unknown:
        raise ConfigurationError(
            f"setting {unknown[0]!r} is unknown: allowed are {', '.join(sorted([*known, *OPTION_CHECKS]))}"
        )
    read = {name: OPTION_CHECKS[name](f"setting {name}", given[name]) for name in OPTION_CHECKS if name in given}
    return PairSettings(
        primary=_endpoint(given, "primary", referenced),
        secondary=_endpoint(given, "secondary", referenced),
        options=PairOptions(**read),
    )


def _endpoint(given: Mapping[str, Any], side: str, referenced: Mapping[str, SettingsReference]) -> Endpoint:
    inline = non_empty({name: given.get(f"{side}_{name}") for name in ENDPOINT_SETTINGS})
    if f"{side}_{REFERENCE}" not in given:
        return read_endpoint(inline, label=lambda name: f"{side}_{name}")
    if side not in referenced:
        raise ConfigurationError(
            f"setting {side}_{REFERENCE} is {given[f'{side}_{REFERENCE}']!r}: it names another connection, which only "
            f"Airflow can look up: outside of Airflow, as in Spark, give the settings themselves, such as "
            f"{side}_connection_string"
        )
    reference = referenced[side]
    _check_combination(inline, side, reference)

    def label(name: str) -> str:
        return f"{side}_{name}" if name in inline else reference.label(name)

    # Whoever may edit the pair need not be whoever has the credential, and it decides where its tokens go.
    check_added_hosts(inline, owner=reference.settings, label=label, lifted_by=reference.label("allow_other_hosts"))
    return read_endpoint({**reference.settings, **inline}, label=label)


def _check_combination(inline: Mapping[str, Any], side: str, reference: SettingsReference) -> None:
    for name in inline:
        if name not in _ALLOWED_WITH_REFERENCE:
            raise ConfigurationError(
                f"settings {side}_{REFERENCE} and {side}_{name} are both given: give the namespace either by "
                f"reference or here; allowed together with a reference are {', '.join(_ALLOWED_WITH_REFERENCE)}"
            )
        if reference.settings.get(name):
            raise ConfigurationError(
                f"setting {side}_{name} is given, and {reference.label(name)} as well: give it in one place"
            )
