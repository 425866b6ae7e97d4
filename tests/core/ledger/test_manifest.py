"""Manifests of a publish job, merged over its tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.ledger.manifest import EntityManifest, PublishManifest
from servicebus_pair.core.model.health_state import EntityHealth, HealthState

NOTHING = EntityHealth()
DOWN = EntityHealth(HealthState.FAILED_OVER, 100.0, None, "refused", "send")
UP = EntityHealth(HealthState.HEALTHY, 130.0, 130.0, "a ping was answered", "ping")


def merged(*parts: tuple[str, EntityManifest]) -> PublishManifest:
    return PublishManifest.merge(parts, run="r", size_bytes=7, seconds=1.5)


@pytest.mark.parametrize("order", [(NOTHING, DOWN, UP), (UP, DOWN, NOTHING), (DOWN, UP, NOTHING)])
def test_merge_keeps_newest_health(order: tuple[EntityHealth, ...]):
    manifest = merged(*(("flights", EntityManifest(2, 1, health)) for health in order))
    assert manifest.entities == {"flights": EntityManifest(6, 3, UP)}


def test_merge_counts_per_entity_and_in_total():
    manifest = merged(("flights", EntityManifest(5, 0, NOTHING)), ("delays", EntityManifest(1, 2, DOWN)))
    assert (list(manifest.entities), manifest.primary, manifest.diverted) == (["delays", "flights"], 6, 2)
    assert PublishManifest.merge([], run="r", size_bytes=0, seconds=1.23456).seconds == 1.235


def test_sum_adds_counts_per_second_and_keeps_first_divert():
    one = EntityManifest(5, 1, NOTHING, {7: (5, 0), 8: (0, 1)}, 2500.0)
    two = EntityManifest(3, 2, NOTHING, {7: (5, 0), 8: (3, 2), 9: (1, 0)}, 2450.0)

    assert EntityManifest.total([one, two, EntityManifest(1, 0, NOTHING)]) == EntityManifest(
        9, 3, NOTHING, {7: (10, 0), 8: (3, 3), 9: (1, 0)}, 2450.0
    )
    assert EntityManifest.from_json(one.to_json()) == one
    earlier = {"primary": 1, "diverted": 0, "health": NOTHING.to_json()}
    assert EntityManifest.from_json(earlier) == EntityManifest(1, 0, NOTHING)


def test_written_manifest_is_read_again_with_extra_fields(tmp_path: Path):
    manifest = merged(("flights", EntityManifest(5, 1, DOWN)))
    manifest.write(tmp_path / "new" / "manifest.json", scheduled_base=60)
    written = json.loads((tmp_path / "new" / "manifest.json").read_text())
    assert written["scheduled_base"] == 60
    assert PublishManifest.from_json(written) == manifest
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["manifest.json"]
    for added in ("rejected", "ledger"):
        written.pop(added, None)  # as in manifests of earlier versions
    earlier = PublishManifest.from_json(written)
    assert (earlier.rejected, earlier.ledger, earlier.entities) == (0, {}, manifest.entities)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"version": 2}, "version is 2: this reads 1"),
        (["version"], "a manifest is a JSON object, not a list"),
        ({"version": 0}, "version is 0: this reads 1"),
        ({"version": 1, "run": "r"}, "not a manifest, KeyError"),
        ({"version": 1, "run": "r", "entities": {"flights": {}}, "bytes": 0, "seconds": 0}, "not an entity"),
    ],
)
def test_invalid_manifest_is_rejected(value: Any, says: str):
    with pytest.raises(ValueError, match=says):
        PublishManifest.from_json(value)


@pytest.mark.parametrize("number", [-1, 10**300, 1e300, float("nan"), float("inf")])
@pytest.mark.parametrize(
    "field", ["bytes", "seconds", "rejected", "ledger", "primary", "diverted", "diverted_at", "slots", "slot"]
)
def test_a_number_that_no_publish_counts_is_rejected(field: str, number: float):
    value = merged(("flights", EntityManifest(5, 1, DOWN, {7: (5, 1)}, 7.0))).to_json()
    planted = {"ledger": {"a.jsonl": number}, "slots": [[number, 1, 1]], "slot": [[7, 1, number]]}.get(field, number)
    of_all = field in value
    (value if of_all else value["entities"]["flights"])["slots" if field == "slot" else field] = planted
    with pytest.raises(ValueError, match=r"a number in the manifest is|not a manifest|not an entity of a manifest"):
        PublishManifest.from_json(value)
