"""One namespace in the running event loop, on its own pair of ports."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

from servicebus_emulator.admin.health import health_route
from servicebus_emulator.admin.routes import Route
from servicebus_emulator.admin.server import AdminServer
from servicebus_emulator.admin.time_shift import time_routes
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
from servicebus_emulator.engine.runtime.journal import JournalError
from servicebus_emulator.faults import Armed, Fault
from servicebus_emulator.initial_entities import create_initial_entities
from servicebus_emulator.logs import event, masked
from servicebus_emulator.metrics import MetricSources, metrics_route
from servicebus_emulator.security.authorizer import Authorizer
from servicebus_emulator.security.bearer import TokenIssuer
from servicebus_emulator.security.settings import SecuritySettings, is_loopback
from servicebus_emulator.store.sqlite import SqliteJournal
from servicebus_emulator.version import version

__all__ = ["HostedNamespace", "connection_string"]

_log = logging.getLogger(__name__)


def connection_string(host: str, *, port: int, key: str = DEFAULT_KEY, tls: bool = False) -> str:
    """Return a connection string that the Azure SDKs take for a namespace at `host` and `port`.

    :param key: of the namespace's root rule; a secret, unless it is the well-known one.
    :param tls: whether the client is to use TLS. Clients of messages then take no port from it, but from
        their option ``custom_endpoint_address``; clients of administration use TLS and the port always.
    """
    return (
        f"Endpoint=sb://{host}:{port};SharedAccessKeyName={ROOT_POLICY};SharedAccessKey={key};"
        f"{'' if tls else 'UseDevelopmentEmulator=true;'}"
    )


class HostedNamespace:
    """One namespace, served.

    :param name: its name.
    :param host: the address to listen on.
    :param amqp_port: TCP port for AMQP; 0 = any.
    :param admin_port: TCP port for the administration API over HTTP; 0 = any.
    :param data: the folder in which the state is kept; None = in memory only.
    :param config: entities that are created if they do not exist.
    :param clock: what time it is.
    :param allow_time_shift: whether it may be put forward over HTTP.
    :param deliver_pings: whether messages of content type ``application/vnd.ms-servicebus-ping`` are delivered
        like any other; a namespace's own configuration can say so for it alone.
    :param fault_seed: from which the luck of faults comes that do not always strike.
    :param security: who is let in.
    :param issuer: knows the bearer tokens that are good.
    :param certificates: where TLS gets its certificate from.
    :param timeouts: how long clients are waited for.
    :param message_kilobytes: how large messages each queue and topic takes at least.
    """

    def __init__(
        self,
        name: str,
        *,
        host: str,
        amqp_port: int,
        admin_port: int,
        data: Path | None,
        config: NamespaceConfig | None,
        clock: ShiftableClock,
        allow_time_shift: bool,
        deliver_pings: bool,
        fault_seed: int,
        security: SecuritySettings,
        issuer: TokenIssuer,
        certificates: CertificateSource,
        timeouts: ClientTimeouts,
        message_kilobytes: int,
    ) -> None:
        self.name = name
        self.host = host
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = clock
        self._journal = None if data is None else SqliteJournal(data / f"{name}.sqlite")
        self.namespace = Namespace(
            name,
            clock=clock,
            journal=self._journal,
            identify=encoded_message_id,
            snapshot=None if self._journal is None else self._journal.snapshot(),
            codec=AmqpPropertyCodec(),
            min_message_kilobytes=message_kilobytes,
            deliver_pings=deliver_pings or (config is not None and config.deliver_pings),
        )
        root_keys = security.root_keys(None if config is None else config.root_rule)
        if not self.namespace.access_policies.set_initial_root_keys(root_keys):
            _log.warning("namespace %s: the keys on disk, regenerated before, are used instead of those given", name)
        if config is not None:
            create_initial_entities(config, namespace=self.namespace)
        if security.open and not is_loopback(host):
            _log.warning("namespace %s: open: whoever reaches %s is let in, unchecked", name, host)
        authorizer = Authorizer(
            name, policies=self.namespace.access_policies, issuer=issuer, clock=clock.base, is_open=security.open
        )
        self._faults = FaultInjector(name, clock=clock, seed=fault_seed)
        self._broker = Broker(
            self.namespace, clock=clock, fault_injector=self._faults, guard=authorizer, on_failure=self.fail
        )
        self._certificates = certificates
        self.counts = ConnectionCounts()
        self._admin = AdminServer(
            self.namespace,
            host=host,
            port=admin_port,
            authorizer=authorizer,
            tls=certificates.context,
            timeouts=timeouts,
            clock=clock,
            fault_injector=self._faults,
            routes=self._routes(allow_time_shift=allow_time_shift),
        )
        handler = make_port_handler(
            self._broker,
            http=self._admin.make_handler,
            tls=certificates.context,
            timeouts=timeouts,
            counts=self.counts,
        )
        self._listener = Listener(host, port=amqp_port, handler=handler)

    @property
    def amqp_port(self) -> int:
        """The TCP port of the AMQP listener.

        :raises RuntimeError: when it is not started.
        """
        port = self._listener.port
        if port is None:
            raise RuntimeError(f"namespace {self.name!r} has no AMQP port; start() it first")
        return port

    @property
    def admin_port(self) -> int:
        """The TCP port of the administration API.

        :raises RuntimeError: when it is not started.
        """
        return self._admin.port

    @property
    def fault_injector(self) -> FaultInjector:
        """The namespace's faults, carried out."""
        return self._faults

    @property
    def connection_string(self) -> str:
        """What clients of messages connect with: the root rule and its primary key."""
        return connection_string(self.host, port=self.amqp_port, key=self.namespace.access_policies.root.primary_key)

    @property
    def admin_connection_string(self) -> str:
        """What administration clients connect with: the root rule and its primary key."""
        return connection_string(self.host, port=self.admin_port, key=self.namespace.access_policies.root.primary_key)

    @property
    def tls_connection_string(self) -> str:
        """What clients of messages and of administration connect with over TLS.

        Administration clients need the option ``connection_verify`` beside it, with :attr:`ca_file`; clients
        of messages also ``custom_endpoint_address``, with :attr:`endpoint_address`.
        """
        return connection_string(
            self.host, port=self.amqp_port, key=self.namespace.access_policies.root.primary_key, tls=True
        )

    @property
    def endpoint_address(self) -> str:
        """Where clients of messages connect to over TLS or WebSocket: their option ``custom_endpoint_address``."""
        return f"sb://{self.host}:{self.amqp_port}"

    @property
    def ca_file(self) -> Path:
        """The certificates that a TLS client has to trust: the SDK's option ``connection_verify``.

        :raises OSError: when they cannot be written.
        """
        return self._certificates.ca_file

    async def start(self) -> None:
        """Listen.

        :raises OSError: when a port is taken or the host is not of this machine.
        """
        await self._admin.start()
        await self._listener.open()
        self._faults.attach_listener(self._listener)
        self._clock.add_listener(self._broker.time_shifted)
        about = event(
            "listening",
            namespace=self.name,
            amqp=f"{self.host}:{self.amqp_port}",
            administration=f"{self.host}:{self.admin_port}",
            connection_string=masked(self.connection_string),
            durable=self._journal is not None,
        )
        _log.info(
            "namespace %s: AMQP on %s:%d, clients connect with %s",
            self.name,
            self.host,
            self.amqp_port,
            masked(self.connection_string),
            extra=about,
        )

    @property
    def faults(self) -> tuple[Armed, ...]:
        """The faults in force, in the order in which they were set."""
        return self._faults.armed

    def set_fault(self, fault: Fault) -> Armed:
        """Break something, from now on; return the fault with the id by which it is cleared.

        Of several faults that match an operation the one set first strikes.

        :raises FaultError: when it is meant for another namespace.
        """
        return self._faults.add(fault)

    def clear_faults(self, fault_id: str | None = None) -> tuple[Armed, ...]:
        """Mend one fault, or all (None); return those that were in force, with how often they struck."""
        return self._faults.clear(fault_id)

    def shift_time(self, by: timedelta) -> None:
        """Put the clock forward: locks end, messages expire, become active and go, faults end, as if time had passed.

        What a client waits for on its own clock is not hastened. All namespaces of an :class:`Emulator` share it.

        :raises TimeShiftError: when that is no step forward, or leads more than ten years ahead.
        """
        self._clock.shift(by)

    async def stop(self) -> None:
        """Make durable and answer what has arrived, close all connections, stop listening."""
        self._clock.remove_listener(self._broker.time_shifted)
        self._listener.close()
        self._broker.stop()
        await self._admin.stop()
        if self._journal is not None:
            self._journal.close()

    async def destroy(self) -> None:
        """Stop, and forget all that the namespace held."""
        await self.stop()
        if self._journal is not None:
            self._journal.destroy()

    def _routes(self, *, allow_time_shift: bool) -> tuple[Route, ...]:
        return (
            health_route(self.namespace, version=version, is_healthy=lambda: not self.failure.done()),
            metrics_route(
                MetricSources(
                    namespace=self.namespace,
                    broker=self._broker,
                    fault_injector=self._faults,
                    journal=self._journal,
                )
            ),
            *time_routes(self._clock, allowed=allow_time_shift),
        )

    def fail(self, error: JournalError) -> None:
        """Take note that the state cannot be kept any longer."""
        if not self.failure.done():
            self.failure.set_exception(error)
