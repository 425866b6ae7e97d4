"""What people are told of a recovery goes to the notifier that the environment names."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.notifications import recovery

told: list[tuple[str, int]] = []


class Told(BaseNotifier):
    """Keeps what it is told, and the thread in which it was."""

    template_fields = ("text",)

    def __init__(self, *, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:  # noqa: ARG002  the base class hands it over
        told.append((self.text, threading.get_ident()))


class Instance:
    """The task instance of the report."""

    task_id = "report"

    def xcom_pull(self, *, task_ids: str) -> dict[str, Any]:
        assert task_ids == self.task_id
        return {"moved": {"flights": 3}}


RUN = SimpleNamespace(dag_id="recovery", run_id="r1")


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told.clear()

    monkeypatch.setenv("SERVICEBUS_PAIR_NOTIFIER", f"{__name__}.Told")
    monkeypatch.setenv("SERVICEBUS_PAIR_NOTIFIER_ARGUMENTS", json.dumps({"text": "to ops: {{ notice }}"}))


def test_a_recovery_is_told_with_its_report():
    recovery.recovered({"dag_run": RUN, "ti": Instance()})

    assert [text for text, _ in told] == [
        'to ops: recovery, run r1, brought the backlog home: {"moved": {"flights": 3}}'
    ]


def test_a_failure_is_told_with_its_reason():
    recovery.failed({"dag_run": RUN, "reason": "task_failure"})

    assert [text for text, _ in told] == [
        "to ops: recovery, run r1, failed (task_failure): what it did not move is still in the backlog"
    ]


async def test_a_late_run_is_told_off_the_triggerers_event_loop():
    due = {"deadline_time": "2026-11-21T08:00:00Z"}

    await recovery.late({"dag_run": {"dag_id": "recovery", "dag_run_id": "r1"}, "deadline": due})

    ((text, thread),) = told
    assert text.startswith("to ops: recovery, run r1, has not ended by 2026-11-21T08:00:00Z: ")
    assert thread != threading.get_ident()


def test_without_a_notifier_the_log_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.delenv("SERVICEBUS_PAIR_NOTIFIER")

    with caplog.at_level("INFO", logger="servicebus_pair"):
        recovery.failed({"dag_run": RUN})

    assert told == []
    assert "recovery, run r1, failed (see its tasks)" in caplog.text


@pytest.mark.parametrize(
    ("notifier", "arguments", "message"),
    [
        ("nowhere.Notifier", "{}", r"SERVICEBUS_PAIR_NOTIFIER is 'nowhere.Notifier', which cannot be imported"),
        ("json.Notifier", "{}", r"SERVICEBUS_PAIR_NOTIFIER is 'json.Notifier', which cannot be imported"),
        ("subprocess.Popen", "{}", r"it must be the path of a subclass of BaseNotifier"),
        (f"{__name__}.Told", '{"key": "canary"}', r"_ARGUMENTS does not make a Told .*a JSON object of its parameters"),
        (f"{__name__}.Told", "[]", r"_ARGUMENTS does not make a Told"),
        (f"{__name__}.Told", "canary", r"_ARGUMENTS does not make a Told"),
    ],
)
def test_a_wrong_notifier_is_told_by_variable_value_and_what_is_allowed_without_the_arguments_values(
    monkeypatch: pytest.MonkeyPatch, notifier: str, arguments: str, message: str
):
    monkeypatch.setenv("SERVICEBUS_PAIR_NOTIFIER", notifier)
    monkeypatch.setenv("SERVICEBUS_PAIR_NOTIFIER_ARGUMENTS", arguments)

    with pytest.raises(ConfigurationError, match=message) as raised:
        recovery.failed({"dag_run": RUN})

    assert "canary" not in str(raised.value)
