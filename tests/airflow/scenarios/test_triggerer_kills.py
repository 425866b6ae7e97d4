"""Triggerers that are killed lose no message: each has its event in the metadata database.

KILLS=100 pytest -s -m exploring tests/airflow/scenarios/test_triggerer_kills.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.airflow.conftest import CONN_ID, PROJECT, Pair
from tests.airflow.support.queues import contents, send_texts

KILLS = int(os.environ.get("KILLS", "3"))
MESSAGES = 20  # for each kill
SEED = int(os.environ.get("SEED", str(time.time_ns() % 1_000_000)))

WATCHED = f"""
from airflow.sdk import DAG, Asset, AssetWatcher
from servicebus_pair.triggers.receive import ServiceBusReceiveTrigger

trigger = ServiceBusReceiveTrigger(servicebus_pair_conn_id={CONN_ID!r}, entity="flights", max_messages=5, linger=0.2)
with DAG("watched", schedule=[Asset("killed_flights", watchers=[AssetWatcher(name="flights", trigger=trigger)])]):
    pass
"""


def received() -> Counter[str]:
    """How often each message is in an event that the metadata database has."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        extras = session.scalars(select(AssetEvent.extra))
        return Counter(
            message["body"] for extra in extras if "payload" in extra for message in extra["payload"]["messages"]
        )


@contextmanager
def triggerer(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": f"{PROJECT / 'provider'}:{PROJECT}"},
            stdout=output,
            stderr=output,
            start_new_session=True,  # the supervisor and its runner are killed together
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for_more(than: int, *, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while received().total() <= than:
        assert time.monotonic() < end, f"no event in {seconds:g} s"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.exploring
@pytest.mark.timeout(7200)
def test_each_message_has_its_event_however_often_the_triggerer_is_killed(pair: Pair, tmp_path: Path):
    from tests.airflow.support.dag_bag import DagBag, sync_bag_to_db

    served, log = pair.primary["contoso"], tmp_path / "triggerer.log"
    random = Random(SEED)  # noqa: S311  repeatable
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "watched.py").write_text(WATCHED)
    bag = DagBag(str(dags))
    assert bag.import_errors == {}
    for dag in bag.dags.values():
        dag.is_paused_upon_creation = False
    sync_bag_to_db(bag, "dags-folder", None)

    sent: list[str] = []
    for kill in range(KILLS):
        batch = [f"{kill}-{number}" for number in range(MESSAGES)]
        with triggerer(log):
            before = received().total()
            send_texts(served, "flights", *batch)
            sent += batch
            wait_for_more(before)
            time.sleep(random.uniform(0, 3))
    with triggerer(log):
        end = time.monotonic() + 240  # locks of a minute must expire
        while contents(served, "flights") and time.monotonic() < end:
            time.sleep(0.5)
    counted = received()
    lost = [body for body in sent if not counted[body]]
    again = sum(count - 1 for count in counted.values())
    print(f"seed={SEED} kills={KILLS} sent={len(sent)} lost={len(lost)} duplicates={again}")  # noqa: T201
    assert lost == []
    assert contents(served, "flights") == []
