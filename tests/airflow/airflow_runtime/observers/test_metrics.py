"""Metrics arrive at a StatsD socket through Airflow's own configuration."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

import pytest

from servicebus_pair.airflow_runtime.airflow_version import has, stats
from servicebus_pair.airflow_runtime.observers.metrics import MetricsObserver
from servicebus_pair.airflow_runtime.waiting.backlog import read_backlog_depth
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.core.model.events import MessageRef, MessagesSyphoned
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import CONN_ID, Pair
from tests.airflow.support.queues import divert

TAGS = f"conn_id={CONN_ID}"


@pytest.fixture
def statsd() -> Iterator[socket.socket]:
    """The socket of a StatsD server that receives Airflow's metrics during the test."""
    from statsd import StatsClient

    has_moved = find_spec("airflow.sdk.observability") is not None  # in Airflow 3.2
    metrics = "airflow.sdk._shared.observability.metrics" if has_moved else "airflow.metrics"
    given: Any = import_module(f"{metrics}.statsd_logger").SafeStatsdLogger
    absent: Any = import_module(f"{metrics}.base_stats_logger").NoStatsLogger
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        client = StatsClient(*server.getsockname())
        # Later versions refuse the commas of such tags in names, unless they are told.
        told = {"statsd_influxdb_enabled": True} if "statsd_influxdb_enabled" in signature(given).parameters else {}
        _send_metrics_to(given(client, influxdb_tags_enabled=True, **told))
        yield server
        _send_metrics_to(absent())
        client.close()


def _send_metrics_to(logger: Any) -> None:
    target: Any = stats
    if has("asset_state"):
        target.initialize(factory=lambda: logger, export_legacy_names=False)
    else:
        target.instance, target._instance_pid = logger, os.getpid()


def next_metric(server: socket.socket, prefix: str) -> str:
    """Return the next metric with this prefix, skipping others."""
    while not (found := server.recv(4096).decode()).startswith(f"servicebus_pair.{prefix}"):
        pass
    return found


async def test_sends_pings_and_the_backlog_gauge_have_tags(pair: Pair, statsd: socket.socket):
    from azure.servicebus import ServiceBusMessage

    await divert(pair, count=3)
    async with ServiceBusPairHook(CONN_ID).pair() as opened:
        async with opened.sender("flights") as sender:
            await sender.send([ServiceBusMessage("1"), ServiceBusMessage("2")])
        await opened.ping("flights")
    async with shared_pair(ServiceBusPairHook(CONN_ID)) as watched:
        await read_backlog_depth(watched, conn_id=CONN_ID, max_age=0, with_ages=False)

    assert (
        next_metric(statsd, "messages_sent") == f"servicebus_pair.messages_sent,{TAGS},entity=flights,route=primary:2|c"
    )
    assert next_metric(statsd, "pings") == f"servicebus_pair.pings,{TAGS},entity=flights,outcome=answered:1|c"
    assert next_metric(statsd, "ping_duration").endswith("|ms")
    assert next_metric(statsd, "backlog_messages") == f"servicebus_pair.backlog_messages,{TAGS}:3|g"


def test_a_syphoned_batch_counts_its_messages(statsd: socket.socket):
    moved = MessagesSyphoned(
        "flights", "contoso/x-servicebus-transfer/0", (MessageRef("a", 1), MessageRef("b", 2)), 0.0
    )

    MetricsObserver(CONN_ID).observe(moved)

    sent = next_metric(statsd, "messages_syphoned")
    assert sent.endswith(",entity=flights,queue=contoso_x-servicebus-transfer_0:2|c")
