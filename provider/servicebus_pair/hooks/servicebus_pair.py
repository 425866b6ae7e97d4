"""``ServiceBusPairHook``: the only door from Airflow to the core."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.log import amask_secret, mask_secret

from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.configuration import PairSettings, read_pair
from servicebus_pair.core.errors import ConfigurationError, PairError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.options import Endpoint
from servicebus_pair.core.ports import HealthStore
from servicebus_pair.hooks.health import AirflowHealthStore
from servicebus_pair.hooks.stats import StatsObserver

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from servicebus_pair.core.pair import NamespacePair

__all__ = ["DEFAULT_CONN_ID", "ServiceBusPairHook"]

DEFAULT_CONN_ID = "servicebus_pair_default"


class ServiceBusPairHook(BaseHook):
    """Opens the pair of namespaces that a connection of type ``servicebus_pair`` describes.

    Its settings are the fields of the connection's extra, which are those of
    ``servicebus_pair.core.read_pair``. Connection strings and the keys in them are masked in logs.

    :param conn_id: the connection.
    """

    conn_name_attr = "conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "servicebus_pair"
    hook_name = "Azure Service Bus pair"

    def __init__(self, conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    def get_settings(self) -> PairSettings:
        """Read the connection.

        :raises ConfigurationError: naming the field, its value (never a secret) and what is allowed.
        :raises AirflowNotFoundException: no such connection.
        """
        extra = self._extra(self.get_connection(self.conn_id))
        for secret in _secrets(extra):
            mask_secret(secret)
        return self._read(extra)

    async def aget_settings(self) -> PairSettings:
        """Read the connection without blocking the event loop; errors as in :meth:`get_settings`."""
        extra = self._extra(await self.aget_connection(self.conn_id))
        for secret in _secrets(extra):
            await amask_secret(secret)
        return self._read(extra)

    def backlog_queue_names(self) -> tuple[str, ...]:
        """Return the paths of the pair's backlog queues, to map a drain over.

        :raises ConfigurationError: as in :meth:`get_settings`.
        """
        settings = self.get_settings()
        return backlog_queues(settings.primary.namespace, settings.options.backlog_queue_count)

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
        async with core.NamespacePair(
            settings.primary,
            settings.secondary,
            settings.options,
            store=shared,
            observers=[StatsObserver(self.conn_id), *observers],
        ) as pair:
            yield pair

    def test_connection(self) -> tuple[bool, str]:
        """Reach both namespaces and list their queues; needs the Manage right on both."""
        try:
            settings = self.get_settings()
            counts = asyncio.run(_count_queues(settings.primary, settings.secondary))
        except PairError as error:
            return False, str(error)
        names = (settings.primary.namespace, settings.secondary.namespace)
        return True, "; ".join(f"{name}: {count} queues" for name, count in zip(names, counts, strict=True))

    def _extra(self, connection: Connection) -> Mapping[str, Any]:
        """The extra field; Airflow's own reader answers an empty one for what is not JSON."""
        try:
            extra = json.loads(connection.extra) if connection.extra else {}
        except ValueError:
            extra = None
        if not isinstance(extra, dict):
            raise ConfigurationError(
                f"connection {self.conn_id}: its extra must be a JSON object of settings"
            ) from None
        return extra

    def _read(self, extra: Mapping[str, Any]) -> PairSettings:
        _quiet_sdk()
        try:
            return read_pair(extra)
        except ConfigurationError as error:
            raise ConfigurationError(f"connection {self.conn_id}: {error}") from error


def _quiet_sdk() -> None:
    """Keep the SDK's account of every frame out of task logs, unless somebody chose its level."""
    logger = logging.getLogger("azure")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


def _secrets(extra: Mapping[str, Any]) -> Iterator[str]:
    """Each connection string, and the key in it, which could appear alone."""
    for name, value in extra.items():
        if not name.endswith("connection_string") or not isinstance(value, str):
            continue
        yield value
        for part in value.split(";"):
            label, _, secret = part.partition("=")
            if label.strip().casefold() in ("sharedaccesskey", "sharedaccesssignature") and secret:
                yield secret.strip()


async def _count_queues(*endpoints: Endpoint) -> list[int]:
    from servicebus_pair.core.administration import ServiceBusAdministration

    async def count(endpoint: Endpoint) -> int:
        async with ServiceBusAdministration(endpoint) as administration:
            return len(await administration.queues())

    return list(await asyncio.gather(*(count(endpoint) for endpoint in endpoints)))
