"""``ServiceBusPairRecordOperator``: tells Airflow what a job outside it found out about health."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import Route
from servicebus_pair.core.health import EntityHealth, State
from servicebus_pair.hooks.health import AirflowHealthStore
from servicebus_pair.hooks.news import announce_failover
from servicebus_pair.hooks.notes import TaskNotes
from servicebus_pair.operators.base import PairOperator

if TYPE_CHECKING:
    from servicebus_pair.core.manifest import EntityManifest, PublishManifest

__all__ = ["ServiceBusPairRecordOperator", "read_manifest"]


def read_manifest(path: Path) -> PublishManifest:
    """Read what a publishing job wrote.

    :raises ConfigurationError: missing, unreadable, or of another version.
    """
    from servicebus_pair.core.manifest import PublishManifest

    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ConfigurationError(f"manifest {path} is {type(content).__name__}: it must be a JSON object")
        return PublishManifest.from_json(content)
    except FileNotFoundError as error:
        raise ConfigurationError(f"manifest {path} does not exist: the job that writes it must end first") from error
    except ValueError as error:
        raise ConfigurationError(f"manifest {path} cannot be read: {error}") from error


class ServiceBusPairRecordOperator(PairOperator):
    """Shares the health that a publishing job found, and announces its failovers.

    A Spark job has no door to Airflow's state, so it leaves a manifest; this operator takes it over.
    Health that somebody found later stays. Every entity of which messages were diverted becomes an
    event of the failover asset, so that a recovery starts. Idempotent, except that a repetition
    announces again.

    The result is ``{"primary": n, "diverted": n, "failed_over": [...], "recorded": [...]}``.

    :param manifest: path of the file (templated).
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: the file is missing, unreadable or of another version.
    """

    template_fields = ("manifest",)

    def __init__(self, *, manifest: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.manifest = manifest

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Record."""
        manifest = await asyncio.to_thread(read_manifest, Path(self.manifest))
        found = manifest.entities
        store = AirflowHealthStore(self.conn_id)
        recorded = [entity for entity, each in found.items() if await _record(store, entity, each.health)]
        diverted = {entity: each for entity, each in found.items() if each.diverted}
        for entity, each in diverted.items():
            announce_failover(context, self.conn_id, entity, _failure(each, manifest.run))
            self.log.info("entity=%s diverted=%d health=%s", entity, each.diverted, each.health.state.value)
        await self._note(manifest)
        return {
            "primary": manifest.primary,
            "diverted": manifest.diverted,
            "failed_over": sorted(diverted),
            "recorded": sorted(recorded),
        }

    async def _note(self, manifest: PublishManifest) -> None:
        """Note what the job sent, for the page of the pairs; the manifest does not tell when."""
        notes, now = TaskNotes(self.conn_id, goes_on=False), time.time()
        async with notes.kept():
            for entity, each in manifest.entities.items():
                notes.accepted(entity, Route.PRIMARY, each.primary, at=now)
                notes.accepted(entity, Route.BACKLOG, each.diverted, at=now)


def _failure(published: EntityManifest, run: str) -> EntityHealth:
    """The failover to announce: a job that saw the recovery too has only its counts to tell of it."""
    if published.health.failed_over:
        return published.health
    reason = f"{published.diverted} messages were diverted in {run}"
    return replace(published.health, state=State.FAILED_OVER, reason=reason, by="publish")


async def _record(store: AirflowHealthStore, entity: str, health: EntityHealth) -> bool:
    """Share ``health`` unless what is known is as new; answer whether it was shared."""
    known = await store.load(entity)
    if known is not None and known.since >= health.since:
        return False
    await store.save(entity, health)
    return True
