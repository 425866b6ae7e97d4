"""Namespaces served in the running event loop, and the ARM endpoint that manages them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from servicebus_emulator.admin.http_server import HttpServer
from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.arm.namespace_register import NamespaceRegister
from servicebus_emulator.certificates import CertificateSource, IssuedCertificate
from servicebus_emulator.clock import ShiftableClock
from servicebus_emulator.config import NamespaceConfig
from servicebus_emulator.engine.model.clock import Clock
from servicebus_emulator.engine.model.entity_names import NAMESPACE_NAMES, is_namespace_name
from servicebus_emulator.engine.namespace.tiers import Tier
from servicebus_emulator.faults import Fault, FaultError
from servicebus_emulator.namespace_server import HostedNamespace, ServerSettings
from servicebus_emulator.security.bearer import MANAGEMENT, Client, TokenIssuer
from servicebus_emulator.security.settings import SecuritySettings

if TYPE_CHECKING:
    from aiohttp import web

    from servicebus_emulator.arm.operations import ResourceManager

_MAX_PORT: Final = 65_535
_MIN_KILOBYTES: Final = 1
_MAX_KILOBYTES: Final = 102_400
_DEFAULT_TIMEOUTS: Final = ClientTimeouts()
_DEFAULT_SCOPE: Final = Scope()


class Emulator:
    """Several namespaces, served in the running event loop while the context is open.

    :param names: the namespaces: each 1 to 50 letters, digits and hyphens, beginning with a letter.
    :param host: the address to listen on; one that the network can reach requires `key` or `open`.
    :param amqp_port: AMQP port of the first namespace; the next ones follow; 0 = any.
    :param admin_port: administration port of the first namespace; the next ones follow; 0 = any.
    :param data: folder with a file per namespace; None = in memory only.
    :param configs: entities to create, per namespace; those that exist on disk are not changed.
    :param clock: the clock; None = the machine's.
    :param allow_time_shift: whether HTTP clients may move the clock forward; Python code always may.
    :param deliver_pings: whether messages of content type ``application/vnd.ms-servicebus-ping`` are delivered
        like others; a namespace's configuration may set it for that namespace.
    :param faults: faults to set at the start, in the namespace that each names or in all.
    :param fault_seed: seed of faults with a probability.
    :param open: disables all checks: tokens are neither needed nor read.
    :param key: both keys of each namespace's root rule ``RootManageSharedAccessKey``, until they are regenerated;
        None = ``SAS_KEY_VALUE``, the well-known key of Microsoft's emulator.
    :param clients: clients of the token endpoint; None = on loopback addresses the well-known client
        ``servicebus-emulator`` with the secret ``CLIENT_SECRET_VALUE``, otherwise none.
    :param any_audience: whether ``$cbs`` accepts tokens for entities that do not exist. The service refuses them, which
        the Python client cannot tell from a wrong key; otherwise the link is refused.
    :param sparse_answers: whether errors have no info, and links no maximum sizes, as the service answers at times.
    :param certificates: source of the TLS certificate; None = issued on first use and kept in the folder ``tls``
        of `data`.
    :param timeouts: time limits for clients.
    :param message_kilobytes: smallest message limit of new queues and topics: 1,024 as in the service's
        Premium tier, at most 102,400 (100 MB). The default limit of an entity is 256.
    :param tier: limits sizes and features to those of a tier of the service, where a namespace's configuration sets
        none; None = everything is accepted, and `message_kilobytes` counts.
    :param throttle: whether a namespace answers that it is busy where the service does.
    :param arm_port: port of the ARM endpoint, which serves all namespaces; 0 = any.
    :param arm_scope: the subscription and the resource group of the ARM endpoint.
    :raises FaultError: a fault names a namespace that is not served.
    :raises ValueError: a name is invalid or repeated, a port is out of range, a key is invalid, two clients share an
        id, or the well-known key would be used on an address that the network can reach.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        host: str = "127.0.0.1",
        amqp_port: int = 0,
        admin_port: int = 0,
        data: Path | None = None,
        configs: Sequence[NamespaceConfig] = (),
        clock: Clock | None = None,
        allow_time_shift: bool = False,
        deliver_pings: bool = False,
        faults: Sequence[Fault] = (),
        fault_seed: int = 0,
        open: bool = False,  # noqa: A002 - the word for it everywhere else
        key: str | None = None,
        clients: Sequence[Client] | None = None,
        any_audience: bool = False,
        sparse_answers: bool = False,
        certificates: CertificateSource | None = None,
        timeouts: ClientTimeouts = _DEFAULT_TIMEOUTS,
        message_kilobytes: int = _MIN_KILOBYTES,
        tier: Tier | None = None,
        throttle: bool = False,
        arm_port: int = 0,
        arm_scope: Scope = _DEFAULT_SCOPE,
    ) -> None:
        given = None if clients is None else tuple(clients)
        security = SecuritySettings(open=open, key=key, clients=given, any_audience=any_audience)
        _check_names(names)
        _check_ports(amqp=amqp_port, admin=admin_port, arm=arm_port, count=len(names))
        _check_faults(faults, names=names)
        if not _MIN_KILOBYTES <= message_kilobytes <= _MAX_KILOBYTES:
            raise ValueError(f"message_kilobytes is {message_kilobytes}; allowed: {_MIN_KILOBYTES} .. {_MAX_KILOBYTES}")
        self._names = tuple(names)
        self._faults = tuple(faults)
        self._amqp_port = amqp_port
        self._admin_port = admin_port
        self._configs: Mapping[str, NamespaceConfig] = {config.name.casefold(): config for config in configs}
        for name in names:
            config = self._configs.get(name.casefold())
            security.check_host(host, configured=None if config is None else config.root_rule)
        shiftable = clock if isinstance(clock, ShiftableClock) else ShiftableClock(clock)
        if certificates is None:
            certificates = IssuedCertificate(None if data is None else data / "tls", names=[host])
        self._settings = ServerSettings(
            host=host,
            data=data,
            clock=shiftable,
            allow_time_shift=allow_time_shift,
            deliver_pings=deliver_pings,
            fault_seed=fault_seed,
            security=security,
            issuer=TokenIssuer(
                security.clients_at(host, configured=[config.root_rule for config in configs]), clock=shiftable.base
            ),
            certificates=certificates,
            timeouts=timeouts,
            message_kilobytes=message_kilobytes,
            tier=tier,
            throttle=throttle,
            sparse_answers=sparse_answers,
        )
        self._arm_port = arm_port
        self._arm_scope = arm_scope
        self._arm: HttpServer | None = None
        self._failed: asyncio.Future[None] | None = None
        self._hosted: dict[str, HostedNamespace] = {}

    def __getitem__(self, name: str) -> HostedNamespace:
        """Return a namespace by its name."""
        return self._hosted[name]

    @property
    def namespaces(self) -> tuple[HostedNamespace, ...]:
        """The namespaces, in the order in which they were given."""
        return tuple(self._hosted.values())

    @property
    def arm_url(self) -> str:
        """The base URL for clients of Azure Resource Manager, which must trust :attr:`ca_file`.

        :raises RuntimeError: the emulator is not started.
        """
        if self._arm is None:
            raise RuntimeError("the ARM endpoint has no port; call start() first")
        host = self._settings.host
        return f"https://{f'[{host}]' if ':' in host else host}:{self._arm.port}"

    @property
    def ca_file(self) -> Path:
        """The certificate authorities that TLS clients must trust: the SDK's option ``connection_verify``.

        :raises OSError: the file cannot be written.
        """
        return self._settings.certificates.ca_file

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Serve all namespaces, or none.

        :raises OSError: a port is taken, or the host is not an address of this machine.
        :raises JournalError: a file cannot be opened or is in use.
        :raises InvalidArgument: the forwarding target of a configured entity does not exist.
        """
        self._failed = asyncio.get_running_loop().create_future()
        settings = self._settings
        try:
            for position, name in enumerate(self._names):
                amqp_port = _port_at(self._amqp_port, position=position)
                await self._serve(name, amqp_port=amqp_port, admin_port=_port_at(self._admin_port, position=position))
            if len(self._register.records) > 0:
                await self._manager.restore()
            self._arm = HttpServer(
                self._make_arm_application,
                label="the ARM endpoint",
                host=settings.host,
                port=self._arm_port,
                tls=settings.certificates.context,
                timeout=settings.timeouts.greeting_seconds,
            )
            await self._arm.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop serving. Everything acknowledged is kept."""
        if self._arm is not None:
            await self._arm.stop()
        hosted, self._hosted = self._hosted, {}
        await asyncio.gather(*(each.stop() for each in hosted.values()))
        self._settings.certificates.close()

    async def add(self, name: str) -> HostedNamespace:
        """Serve another namespace, on free ports.

        :raises ValueError: the name is invalid or in use.
        :raises OSError: no port is free.
        :raises JournalError: its file cannot be opened or is in use.
        """
        _check_names([*self._hosted, name])
        return await self._serve(name, amqp_port=0, admin_port=0)

    async def remove(self, name: str) -> None:
        """Stop serving a namespace and delete its content.

        :raises KeyError: it is not served.
        """
        await self._hosted.pop(name).destroy()

    async def wait_for_failure(self) -> None:
        """Wait until a namespace can no longer persist its state.

        :raises JournalError: that has happened.
        :raises RuntimeError: the emulator is not started.
        """
        if self._failed is None:
            raise RuntimeError("the emulator serves nothing; call start() first")
        await asyncio.shield(self._failed)

    @cached_property
    def _register(self) -> NamespaceRegister:
        # One file per process, named after its first namespace.
        data = self._settings.data
        return NamespaceRegister(None if data is None else data / f"{self._names[0].casefold()}.namespaces.json")

    @cached_property
    def _manager(self) -> ResourceManager:
        from servicebus_emulator.arm.operations import ResourceManager

        return ResourceManager(self, register=self._register, scope=self._arm_scope, clock=self._settings.clock)

    def _make_arm_application(self) -> web.Application:
        from servicebus_emulator.arm.application import arm_application

        security, issuer = self._settings.security, self._settings.issuer
        check = None if security.open else partial(issuer.check, audience=MANAGEMENT)
        known = security.open or issuer.well_known
        return arm_application(self._manager, scope=self._arm_scope, check=check, well_known=known)

    async def _serve(self, name: str, *, amqp_port: int, admin_port: int) -> HostedNamespace:
        config = self._configs.get(name.casefold())
        hosted = HostedNamespace(
            name,
            amqp_port=amqp_port,
            admin_port=admin_port,
            config=config,
            settings=self._settings,
            links=lambda: [(each.name, each.admin_port) for each in self._hosted.values()],
        )
        hosted.failure.add_done_callback(self._note_failure)
        try:
            for fault in self._faults:
                if fault.is_of(name):
                    hosted.set_fault(fault)
            await hosted.start()
        except BaseException:
            await hosted.stop()
            raise
        self._hosted[name] = hosted
        return hosted

    def _note_failure(self, failure: asyncio.Future[None]) -> None:
        error = failure.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not is_namespace_name(name):
            raise ValueError(f"namespace is {name!r}; allowed: {NAMESPACE_NAMES}")
    folded = {name.casefold() for name in names}
    if len(names) == 0 or len(folded) != len(names):
        raise ValueError(f"namespaces are {list(names)}; allowed: at least one, each once")


def _check_faults(faults: Sequence[Fault], *, names: Sequence[str]) -> None:
    for fault in faults:
        if not any(fault.is_of(name) for name in names):
            raise FaultError("namespace", value=fault.namespace, allowed=f"{', '.join(names)}, or none for all")


def _check_ports(*, amqp: int, admin: int, arm: int, count: int) -> None:
    for option, port in (("amqp_port", amqp), ("admin_port", admin)):
        if port < 0 or port + count - 1 > _MAX_PORT:
            raise ValueError(f"{option} is {port} for {count} namespaces; allowed: 0 .. {_MAX_PORT - count + 1}")
    if not 0 <= arm <= _MAX_PORT:
        raise ValueError(f"arm_port is {arm}; allowed: 0 .. {_MAX_PORT}")
    if amqp != 0 and admin != 0 and abs(amqp - admin) < count:
        raise ValueError(
            f"amqp_port {amqp} and admin_port {admin} overlap when counted up for {count} namespaces;"
            f" allowed: at least {count} apart"
        )


def _port_at(port: int, *, position: int) -> int:
    return 0 if port == 0 else port + position
