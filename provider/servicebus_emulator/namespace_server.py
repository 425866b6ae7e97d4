"""Serves one namespace in the running event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from servicebus_emulator.admin.http_server import HttpServer
from servicebus_emulator.amqp.acceptor import make_port_handler
from servicebus_emulator.amqp.broker.broker import Broker
from servicebus_emulator.amqp.broker.fault_injector import FaultInjector
from servicebus_emulator.amqp.codec.property_codec import AmqpPropertyCodec
from servicebus_emulator.amqp.codec.transfer_decoder import encoded_message_id
from servicebus_emulator.amqp.transport.listener import Listener
from servicebus_emulator.amqp.transport.protocol_detection import ConnectionCounts
from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts
from servicebus_emulator.certificates import CertificateSource
from servicebus_emulator.clock import ShiftableClock
from servicebus_emulator.config import NamespaceConfig
from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY, ROOT_POLICY
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.engine.namespace.tiers import Tier
from servicebus_emulator.engine.runtime.journal import JournalError
from servicebus_emulator.faults import Armed, Fault
from servicebus_emulator.initial_entities import create_initial_entities
from servicebus_emulator.logs import event, masked
from servicebus_emulator.security.authorizer import Authorizer
from servicebus_emulator.security.bearer import TokenIssuer
from servicebus_emulator.security.settings import SecuritySettings, is_loopback
from servicebus_emulator.version import version

if TYPE_CHECKING:
    from aiohttp import web

    from servicebus_emulator.admin.page.routes import NamespaceLinks
    from servicebus_emulator.store.sqlite import SqliteJournal

_log = logging.getLogger(__name__)


def connection_string(host: str, *, port: int, key: str = DEFAULT_KEY, tls: bool = False) -> str:
    """Return a connection string of the root policy for the Azure SDKs.

    :param tls: whether the client must use TLS. Messaging clients then ignore the port, and need the option
        ``custom_endpoint_address``; administration clients always use TLS and the port.
    """
    return (
        f"Endpoint=sb://{host}:{port};SharedAccessKeyName={ROOT_POLICY};SharedAccessKey={key};"
        f"{'' if tls else 'UseDevelopmentEmulator=true;'}"
    )


class NamespaceAddress:
    """The addresses of a namespace, for clients with the key of the root policy."""

    __slots__ = ()

    host: str
    amqp_port: int
    admin_port: int
    key: str

    @property
    def connection_string(self) -> str:
        """The connection string for messaging clients."""
        return connection_string(self.host, port=self.amqp_port, key=self.key)

    @property
    def admin_connection_string(self) -> str:
        """The connection string for administration clients."""
        return connection_string(self.host, port=self.admin_port, key=self.key)

    @property
    def tls_connection_string(self) -> str:
        """The connection string for TLS.

        Clients also need the options ``connection_verify`` (:attr:`ca_file`) and, for messaging,
        ``custom_endpoint_address`` (:attr:`endpoint_address`).
        """
        return connection_string(self.host, port=self.amqp_port, key=self.key, tls=True)

    @property
    def endpoint_address(self) -> str:
        """The address of messaging clients over TLS or WebSocket: their option ``custom_endpoint_address``."""
        return f"sb://{self.host}:{self.amqp_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of all namespaces of a process. See :class:`~servicebus_emulator.emulator.Emulator`."""

    host: str
    data: Path | None
    clock: ShiftableClock
    allow_time_shift: bool
    deliver_pings: bool
    fault_seed: int
    security: SecuritySettings
    issuer: TokenIssuer
    certificates: CertificateSource
    timeouts: ClientTimeouts
    message_kilobytes: int
    tier: Tier | None
    throttle: bool
    sparse_answers: bool


class HostedNamespace(NamespaceAddress):
    """One namespace, served on its own pair of ports.

    :param amqp_port: TCP port for AMQP; 0 = any.
    :param admin_port: TCP port for the administration API over HTTP; 0 = any.
    :param config: entities that are created if they do not exist.
    :param links: the namespaces that its page leads to.
    :ivar fault_injector: applies the namespace's faults.
    """

    def __init__(
        self,
        name: str,
        *,
        amqp_port: int,
        admin_port: int,
        config: NamespaceConfig | None,
        settings: ServerSettings,
        links: NamespaceLinks,
    ) -> None:
        self.name = name
        self.host = settings.host
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = clock = settings.clock
        self._certificates = certificates = settings.certificates
        self._journal = None if settings.data is None else _open_journal(settings.data / f"{name}.sqlite")
        self.namespace = Namespace(
            name,
            clock=clock,
            journal=self._journal,
            identify=encoded_message_id,
            snapshot=None if self._journal is None else self._journal.snapshot(),
            codec=AmqpPropertyCodec(),
            min_message_kilobytes=settings.message_kilobytes,
            tier=settings.tier if config is None or config.tier is None else config.tier,
            throttle=settings.throttle or (config is not None and config.throttle),
            deliver_pings=settings.deliver_pings or (config is not None and config.deliver_pings),
        )
        authorizer = self._authorize(settings, config=config)
        self.fault_injector = FaultInjector(name, clock=clock, seed=settings.fault_seed)
        self._broker = Broker(
            self.namespace,
            clock=clock,
            fault_injector=self.fault_injector,
            guard=authorizer,
            on_failure=self.fail,
            sparse_answers=settings.sparse_answers,
        )
        self.counts = ConnectionCounts()
        self._started_at = time.monotonic()
        self._admin = HttpServer(
            partial(self._make_application, authorizer, links=links, allow_time_shift=settings.allow_time_shift),
            label=f"the administration API of namespace {name!r}",
            host=self.host,
            port=admin_port,
            tls=certificates.context,
            timeout=settings.timeouts.greeting_seconds,
        )
        handler = make_port_handler(
            self._broker,
            http=self._admin.make_handler,
            tls=certificates.context,
            timeouts=settings.timeouts,
            counts=self.counts,
        )
        self._listener = Listener(self.host, port=amqp_port, handler=handler)

    def _authorize(self, settings: ServerSettings, *, config: NamespaceConfig | None) -> Authorizer:
        """Set the root keys, create the configured entities and policies, and return what checks tokens."""
        security = settings.security
        root_keys = security.root_keys(None if config is None else config.root_rule)
        if not self.namespace.access_policies.set_initial_root_keys(root_keys):
            _log.warning("namespace %s: the keys were regenerated before; the given ones are ignored", self.name)
        if config is not None:
            create_initial_entities(config, namespace=self.namespace)
        if security.open and not is_loopback(self.host):
            _log.warning("namespace %s: open to every client that can reach %s", self.name, self.host)
        return Authorizer(
            self.name,
            policies=self.namespace.access_policies,
            issuer=settings.issuer,
            clock=settings.clock.base,
            is_open=security.open,
            any_audience=security.any_audience,
        )

    @property
    def amqp_port(self) -> int:  # type: ignore[override] # read-only here
        """The TCP port of the AMQP listener.

        :raises RuntimeError: the namespace is not started.
        """
        port = self._listener.port
        if port is None:
            raise RuntimeError(f"namespace {self.name!r} has no AMQP port; call start() first")
        return port

    @property
    def admin_port(self) -> int:  # type: ignore[override] # read-only here
        """The TCP port of the administration API.

        :raises RuntimeError: the namespace is not started.
        """
        return self._admin.port

    @property
    def key(self) -> str:  # type: ignore[override] # read-only here
        """The primary key of the root policy."""
        return self.namespace.access_policies.root.primary_key

    @property
    def ca_file(self) -> Path:
        """The certificate authorities that TLS clients must trust: the SDK's option ``connection_verify``.

        :raises OSError: the file cannot be written.
        """
        return self._certificates.ca_file

    async def start(self) -> None:
        """Start listening.

        :raises OSError: a port is taken, or the host is not an address of this machine.
        """
        await self._admin.start()
        await self._listener.open()
        self.fault_injector.attach_listener(self._listener)
        self._clock.add_listener(self._broker.time_shifted)
        about = event(
            "listening",
            namespace=self.name,
            amqp=f"{self.host}:{self.amqp_port}",
            administration=f"{self.host}:{self.admin_port}",
            connection_string=masked(self.connection_string),
            durable=self._journal is not None,
        )
        _log.info("namespace %s: AMQP on %s:%d", self.name, self.host, self.amqp_port, extra=about)

    @property
    def faults(self) -> tuple[Armed, ...]:
        """The faults in force, in the order in which they were set."""
        return self.fault_injector.armed

    def set_fault(self, fault: Fault) -> Armed:
        """Set a fault; return it with the id by which it is cleared.

        Of several faults that match an operation, the one set first strikes.

        :raises FaultError: it is for another namespace, or this system does not support it.
        """
        return self.fault_injector.add(fault)

    def clear_faults(self, fault_id: str | None = None) -> tuple[Armed, ...]:
        """Clear one fault, or all (None); return those that were in force, with their numbers of strikes."""
        return self.fault_injector.clear(fault_id)

    def shift_time(self, by: timedelta) -> None:
        """Move the clock forward; all timers react at once. All namespaces of an emulator share the clock.

        Timeouts of clients run on their own clocks and are not shortened.

        :raises TimeShiftError: the shift is not positive, or the total would exceed ten years.
        """
        self._clock.shift(by)

    async def stop(self) -> None:
        """Make durable and answer what has arrived, close all connections and stop listening."""
        self._clock.remove_listener(self._broker.time_shifted)
        self._listener.close()
        self._broker.stop()
        await self._admin.stop()
        if self._journal is not None:
            self._journal.close()

    async def destroy(self) -> None:
        """Stop, and delete the content of the namespace."""
        await self.stop()
        if self._journal is not None:
            self._journal.destroy()

    def _make_application(
        self, authorizer: Authorizer, *, links: NamespaceLinks, allow_time_shift: bool
    ) -> web.Application:
        from servicebus_emulator.admin.application import admin_application
        from servicebus_emulator.admin.health import health_route
        from servicebus_emulator.admin.page.routes import page_routes
        from servicebus_emulator.admin.time_shift import time_routes
        from servicebus_emulator.metrics import MetricSources, metrics_route

        sources = MetricSources(
            namespace=self.namespace,
            broker=self._broker,
            fault_injector=self.fault_injector,
            journal=self._journal,
        )
        return admin_application(
            self.namespace,
            authorizer=authorizer,
            clock=self._clock,
            fault_injector=self.fault_injector,
            routes=(
                *page_routes(self.namespace, authorizer=authorizer, links=links),
                health_route(
                    self.namespace,
                    version=version,
                    is_healthy=lambda: not self.failure.done(),
                    started_at=self._started_at,
                ),
                metrics_route(sources),
                *time_routes(self._clock, allowed=allow_time_shift),
            ),
        )

    def fail(self, error: JournalError) -> None:
        """Report that the state can no longer be persisted."""
        if not self.failure.done():
            self.failure.set_exception(error)


def _open_journal(path: Path) -> SqliteJournal:
    from servicebus_emulator.store.sqlite import SqliteJournal

    return SqliteJournal(path)
