"""Settings as frozen values: :class:`PairOptions`, :class:`Endpoint` and :class:`ArmCoordinates`.

Durations are :class:`datetime.timedelta` (``pendulum.duration`` is one). Defaults and ranges are
those of SPEC section 2, which restates the documented options of the original feature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final

from servicebus_pair.core.errors import ConfigurationError

__all__ = ["TRANSPORTS", "ArmCoordinates", "Endpoint", "PairOptions", "Secret", "check_distinct"]

_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
TRANSPORTS: Final = ("amqp", "websocket")


class Secret:
    """A text that shows itself only to :meth:`reveal`, never in ``repr``, ``str`` or a format.

    A pickle carries it, so that Spark executors can connect: keep pickles of endpoints out of files.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret text; call it only where it is handed to a client."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, slots=True)
class _Range:
    """Allowed closed range of one option; ``None`` leaves that side open."""

    low: int | timedelta
    high: int | timedelta | None = None

    def __str__(self) -> str:
        return f">= {self.low}" if self.high is None else f"{self.low} .. {self.high}"

    def holds(self, value: Any) -> bool:
        return bool(value >= self.low and (self.high is None or value <= self.high))


_RANGES: Final[Mapping[str, _Range]] = {
    "backlog_queue_count": _Range(1),
    "failover_interval": _Range(timedelta(0), timedelta(minutes=60)),
    "ping_primary_interval": _Range(_SECOND, timedelta(minutes=30)),
    "ping_timeout": _Range(timedelta(milliseconds=1)),
    "syphon_retry_interval": _Range(_SECOND, timedelta(minutes=2)),
    "syphon_batch_size": _Range(1, 4500),
    "syphon_long_poll": _Range(_SECOND),
    "close_grace": _Range(timedelta(0)),
    "server_busy_delay": _Range(timedelta(0)),
}
_RAISE: Final = "raise"
_FAIL_OVER: Final = "fail_over"
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "on_quota_exceeded": (_RAISE, _FAIL_OVER),
    "on_entity_disabled": (_RAISE, _FAIL_OVER),
    "probe": ("ping", "link"),
    "ordering": ("none", "session"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How a pair behaves (SPEC section 2).

    :param backlog_queue_count: backlog queues on the secondary, at least 1.
    :param failover_interval: how long failures of one entity are accepted before its sends go to
        the backlog; 0 to 60 minutes, 0 diverts at the first failure that counts.
    :param ping_primary_interval: pause between two pings of a failed-over entity, 1 s to 30 min.
    :param ping_timeout: longest wait for the answer to one ping.
    :param enable_syphon: run a continuous syphon in this process while the pair is open.
    :param syphon_retry_interval: rest of a destination that refused, 1 s to 2 min; it doubles up to 2 min.
    :param syphon_batch_size: most messages the syphon holds per backlog queue at a time (also its prefetch).
    :param syphon_long_poll: longest wait of one receive of a continuous syphon.
    :param close_grace: how long closing waits for sends in flight and for the partner client.
    :param server_busy_delay: pause before a send is tried again after "server busy".
    :param on_quota_exceeded: a full entity is an error of the send (``raise``), or counts as a failure
        of the entity (``fail_over``).
    :param on_entity_disabled: the same for an entity that is disabled for sending.
    :param probe: how a failed-over entity is asked whether it accepts sends again: ``ping`` sends an empty
        message, as the original did; ``link`` only opens a sender, which costs no message, but says
        nothing of a full entity or a link that takes no message.
    :param ordering: ``session`` keeps the order of each session through divert and drain: its messages keep
        to one backlog queue, which must therefore be usable, and an entity fails back only when its backlog
        is empty; a process that cannot look through the backlog as it begins sends nothing past it. ``none``,
        as the original, keeps no order across a failover.
    :raises ConfigurationError: naming option, value and range.
    """

    backlog_queue_count: int = 10
    failover_interval: timedelta = _MINUTE
    ping_primary_interval: timedelta = _MINUTE
    ping_timeout: timedelta = timedelta(minutes=2)
    enable_syphon: bool = False
    syphon_retry_interval: timedelta = _SECOND
    syphon_batch_size: int = 100
    syphon_long_poll: timedelta = timedelta(minutes=15)
    close_grace: timedelta = timedelta(seconds=5)
    server_busy_delay: timedelta = timedelta(seconds=10)
    on_quota_exceeded: str = _RAISE
    on_entity_disabled: str = _RAISE
    probe: str = "ping"
    ordering: str = "none"

    def __post_init__(self) -> None:
        for option in fields(self):
            _check(option.name, getattr(self, option.name))


def _check(name: str, value: object) -> None:
    if name == "enable_syphon":
        if not isinstance(value, bool):
            raise ConfigurationError(f"{name} is {value!r}: allowed are True and False")
        return
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ConfigurationError(f"{name} is {value!r}: allowed are {', '.join(_CHOICES[name])}")
        return
    allowed = _RANGES[name]
    kind = timedelta if isinstance(allowed.low, timedelta) else int
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ConfigurationError(f"{name} is {value!r}: it must be a {kind.__name__} in {allowed}")
    if not allowed.holds(value):
        raise ConfigurationError(f"{name} is {value}: allowed is {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCoordinates:
    """Where Azure Resource Manager has a namespace, and as whom to manage it there.

    :param subscription_id: of the Azure subscription.
    :param resource_group: name of the resource group.
    :param credential: an identity of ``core.identity``, or an asynchronous credential of ``azure-identity``.
    :param management_endpoint: URL of the Resource Manager where it is not that of the public cloud.
    """

    subscription_id: str
    resource_group: str
    credential: Any = field(repr=False)
    management_endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One Service Bus namespace and how to authenticate to it; its ``repr`` holds no secret.

    Build it with :meth:`from_connection_string` or :meth:`from_credential`. With identities of
    ``core.identity`` it can be pickled; the pickle then carries their secrets.

    :param host: host, with a port for a local embedded namespace (``127.0.0.1:5672``).
    :param namespace: name of the namespace, the first label of the host unless given.
    :param administration: ``host:port`` of the administration endpoint where it differs from ``host``.
    :param emulator: plain TCP and plain HTTP, as ``UseDevelopmentEmulator=true`` asks for.
    :param transport: ``amqp`` (TCP, port 5671) or ``websocket`` (port 443, where nothing else is let out).
    :param ca_file: file of the authorities that the namespace's certificates are checked by; those of
        ``certifi`` when not given.
    :param endpoint_address: address that connections are made to instead of the host, such as that of an
        application gateway: ``sb://gateway.example:443``.
    :param arm: manage the namespace's queues through Azure Resource Manager instead of its own administration.
    :raises ConfigurationError: ``transport`` or ``endpoint_address`` is another.
    """

    host: str
    namespace: str
    administration: str
    emulator: bool = False
    connection_string: Secret | None = field(default=None, repr=False)
    credential: Any = field(default=None, repr=False)
    transport: str = "amqp"
    ca_file: str | None = None
    endpoint_address: str | None = None
    arm: ArmCoordinates | None = None

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            raise ConfigurationError(f"transport is {self.transport!r}: allowed are {', '.join(TRANSPORTS)}")
        if self.endpoint_address is not None and not self.endpoint_address.startswith("sb://"):
            raise ConfigurationError(f"endpoint_address is {self.endpoint_address!r}: it must be sb://host:port")

    @classmethod
    def from_connection_string(
        cls,
        text: str,
        *,
        namespace: str | None = None,
        administration: str | None = None,
        transport: str = TRANSPORTS[0],
        ca_file: str | None = None,
        endpoint_address: str | None = None,
        arm: ArmCoordinates | None = None,
    ) -> Endpoint:
        """Read a Service Bus connection string.

        :param text: ``Endpoint=sb://host/;SharedAccessKeyName=...;SharedAccessKey=...``.
        :param namespace: name of the namespace; needed when the host is an address.
        :param administration: ``host:port`` of the administration endpoint if it is another one.
        :param transport: as in the class.
        :param ca_file: as in the class.
        :param endpoint_address: as in the class.
        :param arm: as in the class.
        :raises ConfigurationError: a part is missing, or the transport is none; the text itself is never quoted.
        """
        parts, understood = _parse_connection_string(text)
        host = _checked_host(parts["endpoint"].removeprefix("sb://").strip("/"))
        return cls(
            host=host,
            namespace=_namespace_of(host) if namespace is None else namespace,
            administration=host if administration is None else administration,
            emulator=parts.get(_EMULATOR, "").lower() == "true",
            connection_string=Secret(understood),
            transport=transport,
            ca_file=ca_file,
            endpoint_address=endpoint_address,
            arm=arm,
        )

    @classmethod
    def from_credential(
        cls,
        host: str,
        credential: Any,
        *,
        namespace: str | None = None,
        administration: str | None = None,
        emulator: bool = False,
        transport: str = TRANSPORTS[0],
        ca_file: str | None = None,
        endpoint_address: str | None = None,
        arm: ArmCoordinates | None = None,
    ) -> Endpoint:
        """Use Microsoft Entra ID.

        :param host: fully qualified host, such as ``contoso.servicebus.windows.net``.
        :param credential: an identity of ``core.identity``, or an asynchronous credential of ``azure-identity``,
            which the caller closes.
        :param namespace: name of the namespace; needed when the host is an address.
        :param administration: ``host:port`` of the administration endpoint if it is another one.
        :param emulator: as in the class.
        :param transport: as in the class.
        :param ca_file: as in the class.
        :param endpoint_address: as in the class.
        :param arm: as in the class.
        :raises ConfigurationError: the host or the credential is missing, the transport is none, or tokens would
            travel in clear to Azure.
        """
        if credential is None:
            raise ConfigurationError("credential is None: it must be a credential of azure-identity")
        if emulator and ".servicebus." in host.casefold():
            raise ConfigurationError(f"emulator is True, which shows tokens on the wire: {host!r} must not get them so")
        return cls(
            host=_checked_host(host),
            namespace=_namespace_of(host) if namespace is None else namespace,
            administration=host if administration is None else administration,
            emulator=emulator,
            credential=credential,
            transport=transport,
            ca_file=ca_file,
            endpoint_address=endpoint_address,
            arm=arm,
        )


_HOST: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def check_distinct(primary: Endpoint, secondary: Endpoint) -> None:
    """Check that a pair has two namespaces. :raises ConfigurationError: naming the host of both."""
    if primary.host.casefold() == secondary.host.casefold():
        raise ConfigurationError(f"primary and secondary are both {primary.host!r}: they must be two namespaces")


def _checked_host(host: str) -> str:
    if not host:
        raise ConfigurationError("host is '': it must be the namespace's fully qualified host name")
    if _HOST.fullmatch(host) is None:
        # Not quoted: somebody may have given a connection string.
        raise ConfigurationError(
            "the host is no host name: it must be one such as contoso.servicebus.windows.net, perhaps with a port, and "
            "no URL, path or connection string"
        )
    return host


def _namespace_of(host: str) -> str:
    name = host.partition(":")[0]
    if name.replace(".", "").isdigit() or "." not in name:
        raise ConfigurationError(
            f"namespace is not given and the host {host!r} does not contain it: pass namespace='name'"
        )
    return name.partition(".")[0]


def _parse_connection_string(text: str) -> tuple[dict[str, str], str]:
    """The parts by their names in lower case, and the text as the SDK takes it; an error quotes none of it."""
    named: dict[str, tuple[str, str]] = {}
    whole = True
    for item in text.strip().strip(";").split(";"):
        name, separator, value = (part.strip() for part in item.partition("="))
        whole = whole and bool(name and separator)
        named[name.lower()] = name, value
    parts = {name: value for name, (_, value) in named.items()}
    _check_parts(parts)
    if not whole:
        raise ConfigurationError("connection string: a part is not of the form Name=value")
    if _EMULATOR in parts:
        # The SDK compares with this very text.
        named[_EMULATOR] = "UseDevelopmentEmulator", parts[_EMULATOR].lower()
    return parts, ";".join(f"{name}={value}" for name, value in named.values())


_EMULATOR: Final = "usedevelopmentemulator"


def _check_parts(parts: Mapping[str, str]) -> None:
    if not parts.get("endpoint", "").startswith("sb://"):
        raise ConfigurationError("connection string: Endpoint is missing or does not start with sb://")
    if "entitypath" in parts:
        raise ConfigurationError("connection string: EntityPath is given: use one of the whole namespace")
    signed = bool(parts.get("sharedaccesssignature"))
    for part in ("SharedAccessKeyName", "SharedAccessKey"):
        if bool(parts.get(part.lower())) is signed:
            raise ConfigurationError(
                f"connection string: {part} is given, and SharedAccessSignature as well"
                if signed
                else f"connection string: {part} is missing"
            )
    if parts.get(_EMULATOR, "false").lower() not in ("true", "false"):
        raise ConfigurationError("connection string: UseDevelopmentEmulator must be true or false")
