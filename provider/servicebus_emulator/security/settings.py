"""Security settings of the emulator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from servicebus_emulator.engine.model.access_policy import ALL_RIGHTS, DEFAULT_KEY, ROOT_POLICY, check_policy
from servicebus_emulator.engine.model.descriptions import AuthorizationRule
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT, Client

KEY_VARIABLE: Final = "SERVICEBUS_EMULATOR_KEY"
"""The environment variable with the key of every namespace's root policy."""

SECRET_VARIABLE: Final = "SERVICEBUS_EMULATOR_CLIENT_SECRET"  # noqa: S105 - the name of a variable
"""The environment variable with the default secret of clients."""

_LOCALHOST: Final = "localhost"
_PUBLIC_SUFFIX: Final = ".servicebus.windows.net"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Who may access the emulator. Keys and secrets do not appear in ``repr``.

    :param open: whether all clients are allowed everything, without tokens.
    :param key: both keys of every namespace's root policy; None = those of the configuration, else the default key.
    :param any_audience: whether ``$cbs`` accepts tokens for entities that do not exist. The service refuses them;
        otherwise the link is refused.
    :param clients: the clients that may request bearer tokens; None = the development client, on loopback hosts only
        and only while no namespace has a key of its own.
    :raises DescriptionError: when the key is invalid. The message does not contain it.
    """

    open: bool = False
    key: str | None = field(default=None, repr=False)
    clients: tuple[Client, ...] | None = None
    any_audience: bool = False

    def __post_init__(self) -> None:
        if self.key is not None:
            check_policy(ROOT_POLICY, rights=ALL_RIGHTS, primary_key=self.key, secondary_key=None)

    def root_keys(self, configured: AuthorizationRule | None) -> tuple[str, str]:
        """Return the initial keys of a namespace's root policy.

        :param configured: that policy in the configuration.
        """
        primary = self.key
        if primary is None and configured is not None:
            primary = configured.primary_key
        primary = DEFAULT_KEY if primary is None else primary
        secondary = None if configured is None or self.key is not None else configured.secondary_key
        return primary, primary if secondary is None else secondary

    def check_host(self, host: str, *, configured: AuthorizationRule | None) -> None:
        """Check that a namespace is not exposed to the network with the default key.

        :param configured: the root policy in the configuration.
        :raises ValueError: when `host` is not a loopback address, tokens are checked, and a key is the default key.
        """
        if not self.open and DEFAULT_KEY in self.root_keys(configured) and not is_loopback(host):
            raise ValueError(
                f"host is {host!r}, which the network can reach, and the key is the well-known one; allowed:"
                f" a loopback address, or a key of your own ({KEY_VARIABLE} or --key-file), or --open for all clients"
            )

    def clients_at(self, host: str, *, configured: Iterable[AuthorizationRule | None]) -> Sequence[Client]:
        """Return the clients that may request bearer tokens when listening on `host`.

        :param configured: the root policies of all namespaces in the configuration.
        """
        if self.clients is not None:
            return self.clients
        # The secret of the development client is as well known as the default key.
        guarded = any(set(self.root_keys(rule)) != {DEFAULT_KEY} for rule in (None, *configured))
        return (DEVELOPMENT_CLIENT,) if self.open or (is_loopback(host) and not guarded) else ()


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address."""
    if host.casefold() == _LOCALHOST:
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and bool(mapped.is_loopback))


def names_this_machine(host: str) -> bool:
    """Return whether a header ``Host`` is a name of this machine that no page in a browser can lead here.

    It is ``localhost``, a loopback address, or a name of the service, which only this machine's own settings can lead
    here: nobody else decides to which addresses those names resolve.
    """
    name = _host_of(f"//{host}")
    return is_loopback(name) or name.endswith(_PUBLIC_SUFFIX)


def is_foreign_page(origin: str, *, host: str) -> bool:
    """Return whether a header ``Origin`` is neither this machine nor what ``Host`` names it by.

    A page under another name of the service is foreign: Azure Relay serves pages there.
    """
    page = _host_of(origin)
    return not is_loopback(page) and not (page == _host_of(f"//{host}") and names_this_machine(host))


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    # What follows a bracket is no part of ``hostname``, nor is a user, and what follows a percent sign none of
    # an address.
    after = parts.netloc.rpartition("]")[2] if "[" in parts.netloc else ""
    more = {"%", "@"} & {*parts.netloc} or parts.path or parts.query or parts.fragment
    return "" if more or after[:1] not in {"", ":"} else parts.hostname or ""
