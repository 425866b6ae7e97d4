"""``ServiceBusPairRecordOperator``: tells Airflow what a job outside it found out about health."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import SLOT_SECONDS, Route
from servicebus_pair.core.health import EntityHealth, State
from servicebus_pair.hooks.health import AirflowHealthStore
from servicebus_pair.hooks.news import announce_failover, announce_recovery
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
    event of the failover asset, so that a recovery starts; if the job saw the recovery too, of that
    of recoveries as well. Idempotent, except that a repetition announces again.

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
            if _recovered(each):
                announce_recovery(context, self.conn_id, entity, each.health)
            self.log.info("entity=%s diverted=%d health=%s", entity, each.diverted, each.health.state.value)
        await self._note(manifest)
        return {
            "primary": manifest.primary,
            "diverted": manifest.diverted,
            "failed_over": sorted(diverted),
            "recorded": sorted(recorded),
        }

    async def _note(self, manifest: PublishManifest) -> None:
        """Note what the job sent, for the page of the pairs; each message is an operation."""
        from servicebus_pair.core.meter import Meter, Operation

        notes, meter = TaskNotes(self.conn_id, goes_on=False), Meter()
        meter.count(Operation.SEND, manifest.primary)
        meter.count(Operation.DIVERT, manifest.diverted)
        async with notes.kept(meter):
            for entity, each in manifest.entities.items():
                for slot, (primary, diverted) in _slots(each).items():
                    notes.accepted(entity, Route.PRIMARY, primary, at=slot * SLOT_SECONDS)
                    notes.accepted(entity, Route.BACKLOG, diverted, at=slot * SLOT_SECONDS)


def _failure(published: EntityManifest, run: str) -> EntityHealth:
    """The failover to announce: a job that saw the recovery too has only its counts to tell of it."""
    if published.health.failed_over:
        return published.health
    reason = f"{published.diverted} messages were diverted in {run}"
    since = published.health.since if published.diverted_at is None else published.diverted_at
    return replace(published.health, state=State.FAILED_OVER, since=since, reason=reason, by="publish")


def _recovered(published: EntityManifest) -> bool:
    """Whether the job has seen the end of the failover that it found."""
    began, health = published.diverted_at, published.health
    return health.state is State.HEALTHY and began is not None and health.since >= began


def _slots(published: EntityManifest) -> Mapping[int, tuple[int, int]]:
    """What was sent when; a manifest that does not tell counts as of now."""
    return published.slots or {int(time.time() // SLOT_SECONDS): (published.primary, published.diverted)}


async def _record(store: AirflowHealthStore, entity: str, health: EntityHealth) -> bool:
    """Share ``health`` unless what is known is as new; answer whether it was shared."""
    known = await store.load(entity)
    if known is not None and known.since >= health.since:
        return False
    await store.save(entity, health)
    return True
