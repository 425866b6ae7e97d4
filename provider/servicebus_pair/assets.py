"""The assets of a pair: one stores its state, the others start DAGs by their events.

========================================  ====================================================
asset                                     meaning
========================================  ====================================================
``servicebus-pair://CONN_ID``             the pair; its state store holds the entities' health
``servicebus-pair://CONN_ID/failover``    an event for each failover that a task detected
``servicebus-pair://CONN_ID/recovery``    an event for each recovery that a task detected
``servicebus-pair://CONN_ID/backlog``     an event when a watcher sees messages in the backlog
``servicebus-pair://CONN_ID/drained``     an event when a recovery has moved messages
========================================  ====================================================
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from airflow.sdk import Asset, AssetAlias, AssetWatcher

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import no_secret

__all__ = [
    "ASSET_NAME_PREFIX",
    "backlog_asset",
    "check_conn_id",
    "conn_id_of",
    "drained_asset",
    "failover_asset",
    "health_alias",
    "pair_asset",
    "recovery_asset",
]

_GROUP: Final = "servicebus_pair"
ASSET_NAME_PREFIX: Final = "servicebus_pair."
_CONN_ID: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
# What the names of the other assets and of the alias end with.
_PARTS: Final = ("backlog", "drained", "failover", "health", "recovery")


def check_conn_id(conn_id: str) -> str:
    """Return ``conn_id`` if it can be part of an asset name.

    :raises ConfigurationError: it is a template, holds a secret, or has characters that asset names do not allow.
    """
    no_secret("servicebus_pair_conn_id", conn_id, belongs="in the connection")
    if not _is_conn_id(conn_id):
        raise ConfigurationError(
            f"servicebus_pair_conn_id is {conn_id!r}: it names assets when the DAG is parsed, so it cannot be a "
            "template; allowed are letters, digits, underscores and hyphens, and dots between them, but not "
            f"{', '.join(_PARTS)} after the last dot"
        )
    return conn_id


def _is_conn_id(text: object) -> bool:
    if not isinstance(text, str):
        return False
    return _CONN_ID.fullmatch(text) is not None and not ("." in text and text.rpartition(".")[2] in _PARTS)


def pair_asset(conn_id: str) -> Asset:
    """Return the asset whose state store holds the state of the pair."""
    return _asset(conn_id, "")


def failover_asset(conn_id: str) -> Asset:
    """Return the asset that gets an event when a task detects a failover."""
    return _asset(conn_id, "failover")


def recovery_asset(conn_id: str) -> Asset:
    """Return the asset that gets an event when a task detects that an entity accepts sends again."""
    return _asset(conn_id, "recovery")


def backlog_asset(conn_id: str, *, watchers: Sequence[AssetWatcher] = ()) -> Asset:
    """Return the asset that gets an event when the backlog holds messages.

    :param watchers: watchers with a ``BacklogTrigger``; without one there are no events.
    """
    return _asset(conn_id, "backlog", watchers)


def drained_asset(conn_id: str) -> Asset:
    """Return the asset that gets an event when a recovery has moved messages; its extra is the recovery's report."""
    return _asset(conn_id, "drained")


def health_alias(conn_id: str) -> AssetAlias:
    """Return the alias through which tasks emit the events of the failover and recovery assets."""
    return AssetAlias(f"{ASSET_NAME_PREFIX}{check_conn_id(conn_id)}.health", group=_GROUP)


def conn_id_of(asset_name: str) -> str | None:
    """Return the connection id of a pair asset's name, or ``None`` for any other asset."""
    conn_id = asset_name.removeprefix(ASSET_NAME_PREFIX)
    return conn_id if asset_name.startswith(ASSET_NAME_PREFIX) and _is_conn_id(conn_id) else None


def _asset(conn_id: str, part: str, watchers: Sequence[AssetWatcher] = ()) -> Asset:
    name, uri = f"{ASSET_NAME_PREFIX}{check_conn_id(conn_id)}", f"servicebus-pair://{conn_id}"
    if part:
        name, uri = f"{name}.{part}", f"{uri}/{part}"
    return Asset(name=name, uri=uri, group=_GROUP, watchers=list(watchers))
