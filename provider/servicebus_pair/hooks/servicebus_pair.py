"""``ServiceBusPairHook``: the only door from Airflow to the core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import amask_secret, mask_secret

from servicebus_pair.core.blocking import Bridge
from servicebus_pair.core.errors import ConfigurationError, EntityNotFoundError
from servicebus_pair.hooks.connections import (
    PAIR_TYPE,
    check_type,
    extra_of,
    pair_of,
    references_in,
    secrets_of,
    unknown_reference,
)
from servicebus_pair.hooks.health import AirflowHealthStore
from servicebus_pair.hooks.notes import TaskNotes
from servicebus_pair.hooks.running import CancellableRun
from servicebus_pair.hooks.stats import StatsObserver

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from servicebus_pair.core.configuration import PairSettings
    from servicebus_pair.core.events import Observer
    from servicebus_pair.core.pair import NamespacePair
    from servicebus_pair.core.ports import HealthStore

__all__ = ["DEFAULT_CONN_ID", "ServiceBusPairHook"]

DEFAULT_CONN_ID = "servicebus_pair_default"


class ServiceBusPairHook(BaseHook):
    """Opens the pair of namespaces that a connection of type ``servicebus_pair`` describes.

    Its settings are the fields of the connection's extra, which are those of ``servicebus_pair.core.read_pair``; a
    namespace may be given there by the id of another connection, of type ``servicebus_namespace`` or
    ``azure_service_bus``. Every secret of all of them is masked in logs.

    :param conn_id: the connection.
    """

    conn_name_attr = "conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = PAIR_TYPE
    hook_name = "Azure Service Bus pair"

    def __init__(self, conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    def get_settings(self) -> PairSettings:
        """Read the connection, and those that it refers to.

        :raises ConfigurationError: naming the connection, the field, its value (never a secret) and what is allowed.
        :raises AirflowNotFoundException: no such connection.
        """
        connection = self.get_connection(self.conn_id)
        for secret in secrets_of(connection):
            mask_secret(secret)
        referenced: dict[str, Connection] = {}
        for side, named in self._references(connection).items():
            try:
                referenced[side] = self.get_connection(named)
            except AirflowNotFoundException:
                raise unknown_reference(self.conn_id, side=side, named=named) from None
            for secret in secrets_of(referenced[side]):
                mask_secret(secret)
        return self._settings(connection, referenced)

    async def aget_settings(self) -> PairSettings:
        """Read the connections without blocking the event loop; errors as in :meth:`get_settings`."""
        connection = await self.aget_connection(self.conn_id)
        for secret in secrets_of(connection):
            await amask_secret(secret)
        referenced: dict[str, Connection] = {}
        for side, named in self._references(connection).items():
            try:
                referenced[side] = await self.aget_connection(named)
            except AirflowNotFoundException:
                raise unknown_reference(self.conn_id, side=side, named=named) from None
            for secret in secrets_of(referenced[side]):
                await amask_secret(secret)
        return self._settings(connection, referenced)

    def backlog_queue_names(self) -> tuple[str, ...]:
        """Return the paths of the pair's backlog queues, to map a drain over.

        :raises ConfigurationError: as in :meth:`get_settings`.
        """
        from servicebus_pair.core.backlog import backlog_queues

        settings = self.get_settings()
        return backlog_queues(settings.primary.namespace, settings.options.backlog_queue_count)

    def filled_backlog_queues(self, queues: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return which backlog queues hold messages, to map a drain over: a peek into each, which takes nothing.

        Messages that somebody has locked are seen too; dead letters are not. A queue that does not exist holds
        nothing. Needs the right to listen on the secondary.

        :param queues: look into these only, which may be beyond the number in use; all in use when not given.
        :raises ConfigurationError: as in :meth:`get_settings`, or a queue is not a backlog queue of this pair.
        :raises ServiceError: a queue cannot be read.
        """
        return CancellableRun().run(self._filled(self.backlog_queue_names() if queues is None else tuple(queues)))

    async def _filled(self, queues: tuple[str, ...]) -> tuple[str, ...]:
        async with self.pair() as pair:
            holding = await asyncio.gather(*(_holds_messages(pair, queue) for queue in queues))
        return tuple(queue for queue, holds in zip(queues, holding, strict=True) if holds)

    @asynccontextmanager
    async def pair(
        self, *, store: HealthStore | None = None, observers: Sequence[Observer] = ()
    ) -> AsyncIterator[NamespacePair]:
        """Open the pair for the length of an ``async with`` block.

        :param store: where health is shared; Airflow's state store when not given.
        :param observers: told every event of the pair.
        :raises ConfigurationError: as in :meth:`get_settings`.
        """
        # Importing the SDK takes a third of a second: a triggerer must not stand still for that.
        core = await asyncio.to_thread(import_module, "servicebus_pair.core.pair")
        settings = await self.aget_settings()
        shared = AirflowHealthStore(self.conn_id) if store is None else store
        notes = TaskNotes(self.conn_id)
        pair = core.NamespacePair(
            settings.primary,
            settings.secondary,
            settings.options,
            store=shared,
            observers=[StatsObserver(self.conn_id), notes, *observers],
        )
        async with notes.kept(pair.meter), pair:
            yield pair

    async def unopened_pair(self) -> NamespacePair:
        """Return the pair without opening it, for what talks to no namespace, such as a plan of its costs.

        Nothing is connected to, shared or begun, whatever the options say.

        :raises ConfigurationError: as in :meth:`get_settings`.
        """
        core = await asyncio.to_thread(import_module, "servicebus_pair.core.pair")
        settings = await self.aget_settings()
        unopened: NamespacePair = core.NamespacePair(settings.primary, settings.secondary, settings.options)
        return unopened

    def test_connection(self) -> tuple[bool, str]:
        """Say for each namespace what works: reach, authenticate, and the rights Send, Listen and Manage.

        Changes nothing: links are opened on one queue, and queues are listed. Ends within 20 seconds, also when
        the namespaces are down. It succeeds if both know the client, and messages can be sent to both and received from
        the secondary, as far as there was a queue to try on; Manage is for provisioning.

        :returns: whether it succeeded, and the findings.
        """
        try:
            settings = self.get_settings()
        except (ConfigurationError, AirflowNotFoundException) as error:
            return False, str(error)
        with Bridge() as bridge:
            return bridge.run(_inspect(settings))

    def _references(self, connection: Connection) -> dict[str, str]:
        check_type(connection, PAIR_TYPE)
        return references_in(extra_of(connection), conn_id=self.conn_id)

    def _settings(self, connection: Connection, referenced: dict[str, Connection]) -> PairSettings:
        _quiet_sdk()
        return pair_of(self.conn_id, extra_of(connection), referenced)


def _quiet_sdk() -> None:
    """Keep the SDK's account of every frame out of task logs, unless somebody chose its level."""
    logger = logging.getLogger("azure")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


async def _holds_messages(pair: NamespacePair, queue: str) -> bool:
    try:
        found = await pair.syphon([queue]).survey(first_page=True)
    except EntityNotFoundError:  # not provisioned yet
        return False
    return found.messages > 0


async def _inspect(settings: PairSettings) -> tuple[bool, str]:
    from servicebus_pair.core.backlog import backlog_queues
    from servicebus_pair.core.inspection import inspect_namespace

    backlog = backlog_queues(settings.primary.namespace, settings.options.backlog_queue_count)
    primary, secondary = await asyncio.gather(
        inspect_namespace(settings.primary), inspect_namespace(settings.secondary, queues=backlog)
    )
    usable = primary.usable(listen=False) and secondary.usable(listen=True)
    return usable, f"primary {primary}; secondary {secondary}"
