"""Settings as frozen values: :class:`PairOptions`, :class:`Endpoint` and :class:`ArmCoordinates`.

Durations are :class:`datetime.timedelta` (``pendulum.duration`` is a subclass). Defaults and ranges are those of
SPEC section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final

from servicebus_pair.core.model.checks import (
    boolean,
    choice,
    duration,
    host_address,
    integer,
    no_secret,
    resource_name,
    service_url,
    storage_location,
)
from servicebus_pair.core.model.errors import ConfigurationError

_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_MEGABYTE: Final = 2**20
TRANSPORTS: Final = ("amqp", "websocket")


class Secret:
    """A secret text that ``repr``, ``str`` and formatting do not show; :meth:`reveal` returns it.

    A pickle contains the text, so that Spark executors can connect: do not store pickles of endpoints in files.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret text; call this only to pass it to a client."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def _secret(name: str, value: Any) -> Secret:
    """Check a secret, or the text of one, which is never quoted."""
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} is a {type(value).__name__}: it must be a text that is not empty")
    return Secret(value)


_RAISE: Final = "raise"
_FAIL_OVER: Final = "fail_over"
OPTION_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "backlog_queue_count": integer(1),
    "failover_interval": duration(timedelta(0), timedelta(minutes=60)),
    "ping_primary_interval": duration(_SECOND, timedelta(minutes=30)),
    "ping_timeout": duration(timedelta(milliseconds=1)),
    "enable_syphon": boolean,
    "syphon_retry_interval": duration(_SECOND, timedelta(minutes=2)),
    "syphon_batch_size": integer(1, 4500),
    "syphon_max_bytes": integer(_MEGABYTE),
    "syphon_long_poll": duration(_SECOND),
    "close_grace": duration(timedelta(0)),
    "server_busy_delay": duration(timedelta(0)),
    "attempt_timeout": duration(timedelta(milliseconds=1)),
    "health_refresh": duration(timedelta(milliseconds=1)),
    "max_idle_connections": integer(1),
    "on_quota_exceeded": choice(_RAISE, _FAIL_OVER),
    "on_entity_disabled": choice(_RAISE, _FAIL_OVER),
    "probe": choice("ping", "link"),
    "ordering": choice("none", "session"),
    "spool": storage_location,
    "spool_max_bytes": integer(1),
    "spool_max_age": duration(_SECOND),
    "spool_secret_key": _secret,
}
# The types of options that are none by default.
_OPTIONAL: Final[Mapping[str, type[Any]]] = {"spool": str, "spool_secret_key": Secret}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How a pair behaves (SPEC section 2).

    :param backlog_queue_count: number of backlog queues on the secondary, at least 1.
    :param failover_interval: duration of failures of an entity before its sends go to the backlog; 0 to 60 minutes,
        0 diverts at the first failure that triggers failover.
    :param ping_primary_interval: pause between two pings of a failed-over entity, 1 s to 30 min.
    :param ping_timeout: timeout of one ping.
    :param enable_syphon: run a continuous syphon in this process while the pair is open.
    :param syphon_retry_interval: initial backoff of a failing destination, 1 s to 2 min; doubles up to 2 min.
    :param syphon_batch_size: maximum number of messages that the syphon holds per link to a backlog queue.
    :param syphon_max_bytes: maximum bytes of messages that a syphon holds over all links, at least 1 MiB; each has an
        equal share, by the size of the messages that it received last.
    :param syphon_long_poll: maximum wait of one receive of a continuous syphon.
    :param close_grace: how long closing waits for sends in flight and for the client of the other namespace.
    :param server_busy_delay: pause before retrying a send after "server busy".
    :param attempt_timeout: maximum duration of one attempt on a namespace. The syphon lengthens its own while
        confirmations come late.
    :param health_refresh: maximum age of the shared health that a sender acts on.
    :param max_idle_connections: connections of senders to each namespace that are kept while no send uses them, at
        least 1. Beyond that, the one used longest ago is closed, and opened again by the next send to its entity.
    :param on_quota_exceeded: ``raise`` the error of a full entity, or count it as a failure of the entity
        (``fail_over``).
    :param on_entity_disabled: the same for an entity that is disabled for sending.
    :param probe: how a failed-over entity is tested: ``ping`` sends an empty message; ``link`` only opens a sender
        link, which costs no message but does not detect a full entity or a link without credit.
    :param ordering: ``session`` keeps the order of each session through divert and drain: its messages use one backlog
        queue that requires sessions, which must therefore be usable, and an entity fails back only when these queues
        are empty. Sends wait for about ``health_refresh`` at a failover and at a failback, and raise while shared
        health cannot be read. Without a shared store, each process keeps the order of its own sends. ``none`` keeps no
        order across a failover.
    :param spool: where messages are kept that neither namespace takes (SPEC section 10): the absolute path of a folder
        on a mount, or the URL of one in an object store that ``fsspec`` knows. Without it, such a send raises. With
        ``ordering="session"`` it needs a shared store of health, and all processes must see the same spool.
    :param spool_max_bytes: the spool takes nothing beyond this size.
    :param spool_max_age: the spool takes nothing while it holds a message that is older, so that none is forgotten.
    :param spool_secret_key: encrypts the spool: 32 bytes in URL-safe base64, such as ``Fernet.generate_key()`` returns.
    :raises ConfigurationError: an option is out of range; the text names option, value and range.
    """

    backlog_queue_count: int = 10
    failover_interval: timedelta = _MINUTE
    ping_primary_interval: timedelta = _MINUTE
    ping_timeout: timedelta = timedelta(minutes=2)
    enable_syphon: bool = False
    syphon_retry_interval: timedelta = _SECOND
    syphon_batch_size: int = 500
    syphon_max_bytes: int = 64 * _MEGABYTE
    syphon_long_poll: timedelta = timedelta(minutes=15)
    close_grace: timedelta = timedelta(seconds=5)
    server_busy_delay: timedelta = timedelta(seconds=10)
    attempt_timeout: timedelta = timedelta(seconds=10)
    health_refresh: timedelta = timedelta(seconds=5)
    max_idle_connections: int = 100
    on_quota_exceeded: str = _RAISE
    on_entity_disabled: str = _RAISE
    probe: str = "ping"
    ordering: str = "none"
    spool: str | None = None
    spool_max_bytes: int = 10 * 1024**3
    spool_max_age: timedelta = timedelta(days=14)
    spool_secret_key: Secret | None = None

    def __post_init__(self) -> None:
        for option in fields(self):
            name, value = option.name, getattr(self, option.name)
            if value is None and name in _OPTIONAL:
                continue
            kind = _OPTIONAL.get(name, type(option.default))
            # The checks also parse text and numbers, which only settings may be; and a bool is an int.
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise ConfigurationError(f"{name} is {value!r}: it must be of type {kind.__name__}")
            OPTION_CHECKS[name](name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCoordinates:
    """Location of a namespace in Azure Resource Manager, and the credential to manage it there.

    :param subscription_id: id of the Azure subscription.
    :param resource_group: name of the resource group.
    :param credential: an identity of ``servicebus_pair.core``, or an asynchronous credential of ``azure-identity``.
    :param management_endpoint: URL of the Resource Manager outside the public cloud.
    :raises ConfigurationError: a field is not what it must be.
    """

    subscription_id: str
    resource_group: str
    credential: Any = field(repr=False)
    management_endpoint: str | None = None

    def __post_init__(self) -> None:
        resource_name("subscription_id", self.subscription_id)
        resource_name("resource_group", self.resource_group)
        if self.management_endpoint is not None:
            service_url("https://", "http://")("management_endpoint", self.management_endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A Service Bus namespace and how to authenticate to it; ``repr`` shows no secret.

    Create it with :meth:`from_connection_string` or :meth:`from_credential`. With the identities of
    ``servicebus_pair.core`` it can be pickled; the pickle then contains their secrets.

    :param host: host name, with a port for a local emulator (``127.0.0.1:5672``).
    :param namespace: name of the namespace; by default the first label of the host.
    :param administration: ``host:port`` of the administration endpoint, if it differs from ``host``.
    :param emulator: use TCP and HTTP without TLS, as ``UseDevelopmentEmulator=true`` does.
    :param transport: ``amqp`` (TCP, port 5671) or ``websocket`` (port 443, for networks that block other ports).
    :param ca_file: CA bundle to verify the namespace's certificates; by default that of ``certifi``.
    :param endpoint_address: address to connect to instead of the host, such as an application gateway:
        ``sb://gateway.example:443``.
    :param arm: manage the namespace's queues through Azure Resource Manager instead of its administration endpoint.
    :raises ConfigurationError: a field is not what it must be, such as a connection string in place of a name, or
        ``emulator`` would send tokens to Azure without TLS.
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
        for each in fields(self):
            if each.repr:
                no_secret(each.name, getattr(self, each.name))
        choice(*TRANSPORTS)("transport", self.transport)
        host_address("host", self.host)
        resource_name("namespace", self.namespace)
        host_address("administration", self.administration)
        if self.endpoint_address is not None:
            service_url("sb://")("endpoint_address", self.endpoint_address)
        for address in (self.host, self.administration, self.endpoint_address or ""):
            if self.emulator and ".servicebus." in address.casefold():
                raise ConfigurationError(
                    f"emulator is True, which sends tokens without TLS: not allowed for {address!r}"
                )

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
        """Create an endpoint from a Service Bus connection string.

        The other parameters are those of the class; ``namespace`` is required when the host is an IP address.

        :param text: ``Endpoint=sb://host/;SharedAccessKeyName=...;SharedAccessKey=...``.
        :raises ConfigurationError: a part or an argument is missing or not allowed; the text is never quoted.
        """
        parts, normalized = _parse_connection_string(text)
        host = _checked_host(parts["endpoint"].removeprefix("sb://").strip("/"))
        return cls(
            host=host,
            namespace=_namespace_of(host) if namespace is None else namespace,
            administration=host if administration is None else administration,
            emulator=boolean(_EMULATOR, parts.get(_EMULATOR, False)),
            connection_string=Secret(normalized),
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
        """Create an endpoint that authenticates with Microsoft Entra ID.

        The other parameters are those of the class; ``namespace`` is required when the host is an IP address.

        :param host: fully qualified host name, such as ``contoso.servicebus.windows.net``.
        :param credential: an identity of ``servicebus_pair.core``, or an asynchronous credential of
            ``azure-identity``, which the caller closes.
        :raises ConfigurationError: an argument is missing or not allowed.
        """
        if credential is None:
            raise ConfigurationError("credential is None: it must be a credential of azure-identity")
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


def check_distinct(primary: Endpoint, secondary: Endpoint) -> None:
    """Check that a pair has two different namespaces. :raises ConfigurationError: both have the same host."""
    if primary.host.casefold() == secondary.host.casefold():
        raise ConfigurationError(f"primary and secondary are both {primary.host!r}: they must be two namespaces")


def _checked_host(host: str) -> str:
    if not host:
        raise ConfigurationError("host is '': it must be the namespace's fully qualified host name")
    return host_address("the host", host)


def _namespace_of(host: str) -> str:
    name = host.partition(":")[0]
    if name.replace(".", "").isdigit() or "." not in name:
        raise ConfigurationError(
            f"namespace is not given and the host {host!r} does not contain it: pass namespace='name'"
        )
    return name.partition(".")[0]


def _parse_connection_string(text: str) -> tuple[dict[str, str], str]:
    """Return the parts by lower-case name, and the text in the form that the SDK accepts; errors quote nothing."""
    named: dict[str, tuple[str, str]] = {}
    well_formed = True
    for item in text.strip().strip(";").split(";"):
        name, separator, value = (part.strip() for part in item.partition("="))
        well_formed = well_formed and bool(name and separator)
        named[name.lower()] = name, value
    parts = {name: value for name, (_, value) in named.items()}
    _check_parts(parts)
    if not well_formed:
        raise ConfigurationError("connection string: a part is not of the form Name=value")
    if _EMULATOR in parts:
        # The SDK compares this part literally, case included.
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
