"""``ServiceBusPairHook``: opens the pair of namespaces that an Airflow connection describes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from servicebus_pair.airflow_runtime.airflow_version import (
    AirflowNotFoundException,
    amask_secret,
    answered,
    mask_secret,
    supervisor_comms,
    supervisor_is_async,
)
from servicebus_pair.airflow_runtime.cancellable_run import CancellableRun
from servicebus_pair.airflow_runtime.message_spec import MessageValue
from servicebus_pair.airflow_runtime.observers.metrics import MetricsObserver
from servicebus_pair.airflow_runtime.observers.task_activity import TaskActivity
from servicebus_pair.airflow_runtime.pair_connection import PairConnection
from servicebus_pair.airflow_runtime.state.accessor import call_supervisor
from servicebus_pair.airflow_runtime.state.health_store import AirflowHealthStore
from servicebus_pair.airflow_runtime.state.spool_sightings import SpoolSightings, warn_of_other_spools
from servicebus_pair.core import SyncBridge
from servicebus_pair.core.errors import ConfigurationError, EntityNotFoundError
from servicebus_pair.core.model import guard_library_logs, no_secret
from servicebus_pair.hooks.connection_fields import (
    PAIR_TYPE,
    check_type,
    pair_from_connections,
    parse_extra,
    referenced_conn_ids,
    secret_values,
    unknown_reference_error,
)

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from servicebus_pair.core import HealthStore, NamespacePair, PairSettings, SendResult
    from servicebus_pair.core.events import Observer

__all__ = ["DEFAULT_CONN_ID", "ServiceBusPairHook"]

DEFAULT_CONN_ID = "servicebus_pair_default"


class ServiceBusPairHook(BaseHook):
    """Opens the pair of namespaces that a connection of type ``servicebus_pair`` describes.

    The connection's extra holds the settings of ``servicebus_pair.core.read_pair_settings``. Instead of a namespace's
    settings it may name another connection, of type ``servicebus_namespace`` or ``azure_service_bus``. All secrets are
    masked in logs.

    :param servicebus_pair_conn_id: the connection.
    :param spool: in place of the connection's spool: an absolute path or a URL.
    :raises ConfigurationError: the connection id holds a secret, which Airflow's own errors would quote.
    """

    conn_name_attr = "servicebus_pair_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = PAIR_TYPE
    hook_name = "Azure Service Bus pair"

    def __init__(
        self, servicebus_pair_conn_id: str = DEFAULT_CONN_ID, *, spool: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        no_secret(self.conn_name_attr, servicebus_pair_conn_id, belongs="in the connection")
        self.servicebus_pair_conn_id = servicebus_pair_conn_id
        self.spool = spool

    def get_settings(self) -> PairSettings:
        """Read the connection and the connections that it refers to.

        :raises ConfigurationError: naming the connection, the field, its value (never a secret) and what is allowed.
        :raises AirflowNotFoundException: no such connection.
        """
        connection = self.get_connection(self.servicebus_pair_conn_id)
        for secret in secret_values(connection):
            mask_secret(secret)
        referenced: dict[str, Connection] = {}
        for side, referenced_id in self._references(connection).items():
            try:
                referenced[side] = self.get_connection(referenced_id)
            except AirflowNotFoundException:
                raise unknown_reference_error(
                    self.servicebus_pair_conn_id, side=side, referenced_id=referenced_id
                ) from None
            for secret in secret_values(referenced[side]):
                mask_secret(secret)
        return self._settings(connection, referenced)

    async def aget_settings(self) -> PairSettings:
        """Read the connections without blocking the event loop; errors as in :meth:`get_settings`."""
        if supervisor_comms() is not None and not supervisor_is_async():
            return await call_supervisor(self.get_settings)
        connection = await answered(self.aget_connection(self.servicebus_pair_conn_id))
        for secret in secret_values(connection):
            await amask_secret(secret)
        referenced: dict[str, Connection] = {}
        for side, referenced_id in self._references(connection).items():
            try:
                referenced[side] = await answered(self.aget_connection(referenced_id))
            except AirflowNotFoundException:
                raise unknown_reference_error(
                    self.servicebus_pair_conn_id, side=side, referenced_id=referenced_id
                ) from None
            for secret in secret_values(referenced[side]):
                await amask_secret(secret)
        return self._settings(connection, referenced)

    def backlog_queue_names(self) -> tuple[str, ...]:
        """Return the paths of the pair's backlog queues, for a mapped drain; session queues are among them.

        :raises ConfigurationError: as in :meth:`get_settings`.
        """
        from servicebus_pair.core.protocol import queues_in_use

        settings = self.get_settings()
        return queues_in_use(settings.primary.namespace, settings.options)

    def filled_backlog_queues(self, queues: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the backlog queues that hold messages, for a mapped drain; peeks into each and removes nothing.

        ``"spool"`` is among them if the pair's spool holds messages.

        Locked messages count, dead letters do not. A queue that does not exist holds nothing. Needs the Listen right
        on the secondary.

        :param queues: paths of the queues to check, which may lie beyond the number in use; all queues in use when not
            given.
        :raises ConfigurationError: as in :meth:`get_settings`, or a queue is not a backlog queue of this pair.
        :raises ServiceError: a queue cannot be read.
        :raises SpoolError: the spool cannot be read.
        """
        from servicebus_pair.core.syphon import SPOOL

        chosen = (SPOOL, *self.backlog_queue_names()) if queues is None else tuple(queues)
        return CancellableRun().run(self._filled(chosen))

    async def _filled(self, queues: tuple[str, ...]) -> tuple[str, ...]:
        async with self.pair() as pair:
            await warn_of_other_spools(self.servicebus_pair_conn_id, pair)
            holding = await asyncio.gather(*(_holds_messages(pair, queue) for queue in queues))
        return tuple(queue for queue, holds in zip(queues, holding, strict=True) if holds)

    @asynccontextmanager
    async def pair(
        self, *, store: HealthStore | None = None, observers: Sequence[Observer] = ()
    ) -> AsyncIterator[NamespacePair]:
        """Open the pair for the length of an ``async with`` block.

        :param store: where health is shared; Airflow's state store when not given.
        :param observers: receive every event of the pair.
        :raises ConfigurationError: as in :meth:`get_settings`.
        """
        # In a thread: importing the SDK takes a third of a second, which would block a triggerer's event loop.
        core = await asyncio.to_thread(import_module, "servicebus_pair.core.pair.namespace_pair")
        settings = await self.aget_settings()
        shared = AirflowHealthStore(self.servicebus_pair_conn_id) if store is None else store
        activity = TaskActivity(self.servicebus_pair_conn_id)
        sightings = SpoolSightings(self.servicebus_pair_conn_id)
        pair = core.NamespacePair(
            settings.primary,
            settings.secondary,
            settings.options,
            store=shared,
            observers=[MetricsObserver(self.servicebus_pair_conn_id), activity, sightings, *observers],
        )
        async with activity.saving(pair.meter), pair, sightings.saving(pair):
            yield pair

    def get_conn(self) -> PairConnection:
        """Return the pair for synchronous code, to be opened by a ``with`` block.

        :raises ConfigurationError: as in :meth:`get_settings`, when the block is entered.
        """
        return PairConnection(self.pair)

    def send(
        self, entity: str, messages: MessageValue | Iterable[Any], *, timeout: timedelta | float | None = None
    ) -> SendResult:
        """Open the pair, send, and close it; for a plain task. Several sends should share one :meth:`get_conn`.

        The task should have ``pair_asset(conn_id)`` among its inlets, or it shares no health with others.

        :raises ConfigurationError: as in :meth:`get_settings`, or a message is invalid; nothing was sent.
        :raises SendError: not every message was accepted.
        """
        with self.get_conn() as pair:
            return pair.send(entity, messages, timeout=timeout)

    async def unopened_pair(self) -> NamespacePair:
        """Return the pair without opening it, for work that needs no connection, such as a cost estimate.

        :raises ConfigurationError: as in :meth:`get_settings`.
        """
        core = await asyncio.to_thread(import_module, "servicebus_pair.core.pair.namespace_pair")
        settings = await self.aget_settings()
        unopened: NamespacePair = core.NamespacePair(settings.primary, settings.secondary, settings.options)
        return unopened

    def test_connection(self) -> tuple[bool, str]:
        """Check each namespace: network, authentication, and the rights Send, Listen and Manage.

        Read-only: it opens links on one queue and lists queues. It ends within 20 seconds even when a namespace is
        down. It succeeds if both namespaces authenticate the client, both accept sends, and the secondary accepts
        receives; a right that no queue exists to test does not fail it. Manage is only needed for provisioning.

        :returns: whether it succeeded, and the findings as text.
        """
        try:
            settings = self.get_settings()
        except (ConfigurationError, AirflowNotFoundException) as error:
            return False, str(error)
        with SyncBridge() as bridge:
            return bridge.run(_check_connection(settings))

    def _references(self, connection: Connection) -> dict[str, str]:
        check_type(connection, PAIR_TYPE)
        return referenced_conn_ids(parse_extra(connection), conn_id=self.servicebus_pair_conn_id)

    def _settings(self, connection: Connection, referenced: dict[str, Connection]) -> PairSettings:
        guard_library_logs("azure")
        settings = pair_from_connections(self.servicebus_pair_conn_id, parse_extra(connection), referenced)
        if self.spool is None:
            return settings
        return replace(settings, options=replace(settings.options, spool=self.spool))


async def _holds_messages(pair: NamespacePair, queue: str) -> bool:
    from servicebus_pair.core.protocol import is_session_queue
    from servicebus_pair.core.syphon import SPOOL

    if queue == SPOOL:
        return bool(await pair.spooled())
    try:
        if is_session_queue(pair.primary.namespace, queue):
            # Not a survey, which sees nothing of the sessions that a syphon holds, or held until it was killed.
            return bool(await pair.waiting_sessions(queue))
        found = await pair.syphon([queue]).survey(first_page=True)
    except EntityNotFoundError:  # not provisioned yet
        return False
    return found.messages > 0


async def _check_connection(settings: PairSettings) -> tuple[bool, str]:
    from servicebus_pair.core.pair import check_namespace, check_spool
    from servicebus_pair.core.protocol import backlog_queue_paths

    # Not the session queues: a link to one would lock a session.
    backlog = backlog_queue_paths(settings.primary.namespace, settings.options.backlog_queue_count)
    primary, secondary, spool = await asyncio.gather(
        check_namespace(settings.primary),
        check_namespace(settings.secondary, queues=backlog),
        check_spool(settings.options),
    )
    usable = primary.usable(listen=False) and secondary.usable(listen=True)
    found = f"primary {primary}; secondary {secondary}"
    return (usable, found) if spool is None else (usable and spool.works is True, f"{found}; spool {spool}")
