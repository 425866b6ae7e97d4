"""Preflight checks reject settings that cannot work, before any task starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus.management import AccessRights, AuthorizationRule
from pyspark.sql import DataFrame, SparkSession

from servicebus_pair.core import PairSettings, read_pair_settings
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.protocol import backlog_session_id
from servicebus_pair.spark import publish
from servicebus_pair.spark.base.preflight import Access, check_access, select_queues
from servicebus_pair.spark.base.redaction import Redaction
from servicebus_pair.spark.transfer.draining import drain
from tests.spark.conftest import CANARY, Pair
from tests.spark.support.own_backlog import OwnBacklog, own_backlog

LISTEN_KEY = "a2V5IHdpdGggdGhlIExpc3RlbiByaWdodCBvbmx5Lg=="
NO_PERMISSION = "lack the Send permission on the primary: q-"
LISTEN_RULE = AuthorizationRule(
    type="SharedAccessAuthorizationRule",
    rights=[AccessRights.LISTEN],
    key_name="listener",
    primary_key=LISTEN_KEY,
    secondary_key=LISTEN_KEY,
)


@pytest.fixture
def own(pair: Pair, tmp_path: Path) -> OwnBacklog:
    """A pair with two messages in its backlog."""
    own = own_backlog(pair, tmp_path)
    own.divert(tmp_path / "ledger", own.fresh_queue(authorization_rules=[LISTEN_RULE]), 2)
    return own


def check(settings: PairSettings) -> Access:
    return check_access(settings, select_queues(settings, None), redaction=Redaction(), sends=True)


def unreachable(connection_string: str) -> str:
    return f"Endpoint=sb://127.0.0.1:1;{connection_string.partition(';')[2]}"


def with_key(connection_string: str, name: str, key: str) -> str:
    return connection_string.replace("RootManageSharedAccessKey", name).replace(CANARY, key)


def test_reachable_destinations_pass(own: OwnBacklog):
    assert check(read_pair_settings(own.settings)) == Access({}, ())


def test_section_6_entities_of_sessions_in_the_backlog_are_probed(pair: Pair, tmp_path: Path):
    own = own_backlog(pair, tmp_path, ordering="session")
    there = own.fresh_queue()
    for entity in (there.upper(), "gone", "e" * 200):
        own.divert_session(entity, 1)
    settings = read_pair_settings(own.settings)
    found = check(settings)
    assert found.unavailable == {}
    assert set(found.sessions) == {there, "gone", backlog_session_id("e" * 200)}
    with pytest.raises(ConfigurationError, match=r"the primary does not respond: gone \(.*\), q-"):
        check(
            read_pair_settings(
                own.settings | {"primary_connection_string": unreachable(own.settings["primary_connection_string"])}
            )
        )


# Side, change of its connection string, error.
UNUSABLE: dict[str, tuple[str, Callable[[str], str], str]] = {
    "unreachable secondary": ("secondary", unreachable, r"the backlog cannot be read \(Unreachable"),
    "unreachable primary": ("primary", unreachable, "the primary does not respond: q-"),
    # The SDK reports a wrong key and a missing permission alike.
    "no permission to send": ("primary", lambda text: with_key(text, "listener", LISTEN_KEY), NO_PERMISSION),
    "unknown key": ("primary", lambda text: with_key(text, "unknown", "wrong"), NO_PERMISSION),
}


@pytest.mark.parametrize(("side", "change", "error"), UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_namespace_is_rejected(side: str, change: Callable[[str], str], error: str, own: OwnBacklog):
    name = f"{side}_connection_string"
    with pytest.raises(ConfigurationError, match=error):
        check(read_pair_settings(own.settings | {name: change(own.settings[name])}))


def test_speculation_is_rejected_by_publish_and_drain(spark: SparkSession, pair: Pair, tmp_path: Path):
    table: DataFrame = spark.createDataFrame([("flights", "x")], "entity string, body string")
    ledger = str(tmp_path / "ledger")
    configuration = spark.sparkContext._conf
    configuration.set("spark.speculation", "true")
    try:
        with pytest.raises(ConfigurationError, match="would send twice"):
            publish(table, pair_reference=pair.reference, ledger=ledger, run="r")
        with pytest.raises(ConfigurationError, match="would send twice"):
            drain(spark, pair_reference=pair.reference, ledger=ledger, run="r")
    finally:
        configuration.set("spark.speculation", "false")
