"""``ServiceBusPairRecordOperator``: shares with Airflow the health that a Spark publishing job detected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.observers.asset_events import emit_failover, emit_recovery
from servicebus_pair.airflow_runtime.observers.task_activity import TaskActivity
from servicebus_pair.airflow_runtime.state.health_store import AirflowHealthStore
from servicebus_pair.airflow_runtime.validators import storage_path
from servicebus_pair.core import EntityHealth, HealthState
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import SLOT_SECONDS, Route
from servicebus_pair.core.model import IrregularFileError, get_logger, load_json
from servicebus_pair.operators._support.base import AsyncPairOperator

if TYPE_CHECKING:
    from servicebus_pair.core.ledger import EntityManifest, PublishManifest

__all__ = ["ServiceBusPairRecordOperator", "read_manifest"]

_log = get_logger(__name__)
_MAX_MANIFEST_BYTES: Final = 16 << 20


def read_manifest(path: Path) -> PublishManifest:
    """Read the manifest that a publishing job wrote.

    :raises ConfigurationError: it is missing, unreadable, or of another version.
    """
    from servicebus_pair.core.ledger import PublishManifest

    try:
        content = load_json(path, limit=_MAX_MANIFEST_BYTES, follow=True)
        if not isinstance(content, dict):
            raise ConfigurationError(f"manifest {path} is {type(content).__name__}: it must be a JSON object")
        return PublishManifest.from_json(content)
    except FileNotFoundError as error:
        raise ConfigurationError(f"manifest {path} does not exist: the job that writes it must end first") from error
    except (ValueError, IrregularFileError) as error:
        raise ConfigurationError(f"manifest {path} cannot be read: {error}") from error


class ServiceBusPairRecordOperator(AsyncPairOperator):
    """Shares the health that a publishing job detected, and emits its asset events.

    A Spark job cannot access Airflow's state, so it writes a manifest, which this operator reads. Health that was
    shared later is kept. Every entity with diverted messages gets an event of the failover asset, so that a recovery
    starts; if the job saw the recovery too, also one of the recovery asset. Idempotent, except that each run emits
    the events again.

    The result is ``{"primary": n, "diverted": n, "failed_over": [...], "recorded": [...]}``.

    :param manifest: path of the file (templated).
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: the file is missing, unreadable or of another version.
    """

    template_fields = ("manifest",)
    parameter_checks: ClassVar = {"manifest": storage_path}

    def __init__(self, *, manifest: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.manifest = manifest
        self.check_parameters()

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Share the manifest's health, emit asset events, and record the job's activity."""
        manifest = await asyncio.to_thread(read_manifest, Path(storage_path("manifest", self.manifest)))
        entities = manifest.entities
        store = AirflowHealthStore(self.servicebus_pair_conn_id)
        recorded = [entity for entity, each in entities.items() if await _save_if_newer(store, entity, each.health)]
        diverted = {entity: each for entity, each in entities.items() if each.diverted}
        for entity, each in diverted.items():
            emit_failover(context, self.servicebus_pair_conn_id, entity, _failover_health(each, manifest.run))
            if _has_recovered(each):
                emit_recovery(context, self.servicebus_pair_conn_id, entity, each.health)
            self.log.info("entity=%s diverted=%d health=%s", entity, each.diverted, each.health.state.value)
        await self._record_activity(manifest)
        return {
            "primary": manifest.primary,
            "diverted": manifest.diverted,
            "failed_over": sorted(diverted),
            "recorded": sorted(recorded),
        }

    async def _record_activity(self, manifest: PublishManifest) -> None:
        """Record what the job sent, for the Service Bus pairs page; each message counts as one operation."""
        from servicebus_pair.core.model import Meter, Operation

        activity, meter = TaskActivity(self.servicebus_pair_conn_id, resume=False), Meter()
        meter.count(Operation.SEND, manifest.primary)
        meter.count(Operation.DIVERT, manifest.diverted)
        async with activity.saving(meter):
            for entity, each in manifest.entities.items():
                for slot, (primary, diverted) in _sends_by_slot(each).items():
                    activity.accepted(entity, Route.PRIMARY, primary, at=slot * SLOT_SECONDS)
                    activity.accepted(entity, Route.BACKLOG, diverted, at=slot * SLOT_SECONDS)


def _failover_health(published: EntityManifest, run: str) -> EntityHealth:
    """Return the health for the failover event, derived from the counts when the job has already recovered."""
    if published.health.failed_over:
        return published.health
    reason = f"{published.diverted} messages were diverted in {run}"
    since = published.health.since if published.diverted_at is None else published.diverted_at
    return replace(published.health, state=HealthState.FAILED_OVER, since=since, reason=reason, by="publish")


def _has_recovered(published: EntityManifest) -> bool:
    """Return whether the job saw the end of its failover."""
    began, health = published.diverted_at, published.health
    return health.state is HealthState.HEALTHY and began is not None and health.since >= began


def _sends_by_slot(published: EntityManifest) -> Mapping[int, tuple[int, int]]:
    """Return primary and diverted counts by time slot; without slots in the manifest, everything counts as now."""
    return published.slots or {int(time.time() // SLOT_SECONDS): (published.primary, published.diverted)}


async def _save_if_newer(store: AirflowHealthStore, entity: str, health: EntityHealth) -> bool:
    """Save ``health`` unless the stored one is at least as recent; return whether it was saved."""
    try:
        known = await store.load(entity)
        if known is not None and known.since >= health.since:
            return False
        if known is not None and known.epoch > 0:
            # Above the epoch that processes know, or they would take it for a read of the past.
            health = replace(health, epoch=known.epoch + 1)
        await store.save(entity, health)
    except Exception:  # noqa: BLE001  soft state; a task, a trigger and dag.test raise different errors
        _log.warning("entity=%s: its health could not be recorded", entity, exc_info=True)
        return False
    return True
