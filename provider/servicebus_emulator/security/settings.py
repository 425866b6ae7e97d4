"""How a namespace is guarded: what whoever starts it decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from servicebus_emulator.engine.access_rules import ALL_RIGHTS, DEFAULT_KEY, ROOT_RULE, check_rule
from servicebus_emulator.engine.descriptions import AuthorizationRule
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT, Client

__all__ = ["KEY_VARIABLE", "SECRET_VARIABLE", "Security", "is_loopback"]

KEY_VARIABLE: Final = "SERVICEBUS_EMULATOR_KEY"
"""The environment variable with the key of each namespace's root rule."""

SECRET_VARIABLE: Final = "SERVICEBUS_EMULATOR_CLIENT_SECRET"  # noqa: S105 - where it is, not what it is
"""The environment variable with the secret of clients that have none of their own name."""

_LOCALHOST: Final = "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Who is let in. Keys and secrets never appear in ``repr``.

    :param open: whether everybody is, unchecked.
    :param key: both keys of each namespace's root rule; None = those of the configuration, else the well-known one.
    :param clients: who may ask for bearer tokens; None = the well-known client, where only this machine can ask.
    :raises DescriptionError: when the key is none; it is not repeated.
    """

    open: bool = False
    key: str | None = field(default=None, repr=False)
    clients: tuple[Client, ...] | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            check_rule(ROOT_RULE, rights=ALL_RIGHTS, primary_key=self.key, secondary_key=None)

    def root_keys(self, configured: AuthorizationRule | None) -> tuple[str, str]:
        """Return the keys with which a namespace's root rule begins.

        :param configured: that rule in the configuration.
        """
        primary = self.key
        if primary is None and configured is not None:
            primary = configured.primary_key
        primary = DEFAULT_KEY if primary is None else primary
        secondary = None if configured is None or self.key is not None else configured.secondary_key
        return primary, primary if secondary is None else secondary

    def check_host(self, host: str, *, configured: AuthorizationRule | None) -> None:
        """Refuse to let the network in by what everybody knows.

        :param configured: the rule of which :meth:`root_keys` makes the keys of a namespace.
        :raises ValueError: when `host` is not this machine's own, checks are on, and a key is the well-known one.
        """
        if not self.open and DEFAULT_KEY in self.root_keys(configured) and not is_loopback(host):
            raise ValueError(
                f"host is {host!r}, where the network reaches it, and the key is the well-known one; allowed:"
                f" a loopback address, or a key of your own ({KEY_VARIABLE} or --key-file), or --open to let all in"
            )

    def clients_at(self, host: str) -> Sequence[Client]:
        """Return who may ask for bearer tokens where `host` is listened on."""
        if self.clients is not None:
            return self.clients
        return (DEVELOPMENT_CLIENT,) if self.open or is_loopback(host) else ()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what listens on, or speaks from, an address."""
    if host.casefold() == _LOCALHOST:
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and bool(mapped.is_loopback))
