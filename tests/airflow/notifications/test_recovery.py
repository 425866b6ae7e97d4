"""Notices of recoveries go to the notifier that the environment configures."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.notifications import recovery

notices: list[tuple[str, int]] = []


class RecordingNotifier(BaseNotifier):
    """Records each notice and the thread that it came from."""

    template_fields = ("text",)

    def __init__(self, *, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:  # noqa: ARG002  the base class passes it
        notices.append((self.text, threading.get_ident()))


class TaskInstance:
    """The task instance of the report."""

    task_id = "report"

    def xcom_pull(self, *, task_ids: str) -> dict[str, Any]:
        assert task_ids == self.task_id
        return {"moved": {"flights": 3}}


RUN = SimpleNamespace(dag_id="recovery", run_id="r1")


@pytest.fixture(autouse=True)
def no_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    notices.clear()

    monkeypatch.setenv("SERVICEBUS_PAIR_NOTIFIER", f"{__name__}.RecordingNotifier")
    monkeypatch.setenv("SERVICEBUS_PAIR_NOTIFIER_ARGUMENTS", json.dumps({"text": "to ops: {{ notice }}"}))


def test_a_recovery_notice_contains_the_report():
    recovery.recovered({"dag_run": RUN, "ti": TaskInstance()})

    assert [text for text, _ in notices] == ['to ops: recovery, run r1, drained the backlog: {"moved": {"flights": 3}}']


def test_a_failure_notice_contains_the_reason():
    recovery.failed({"dag_run": RUN, "reason": "task_failure"})

    assert [text for text, _ in notices] == [
        "to ops: recovery, run r1, failed (task_failure): messages that it did not move are still in the backlog"
    ]


async def test_a_late_notice_runs_outside_the_event_loop():
    due = {"deadline_time": "2026-11-21T08:00:00Z"}

    await recovery.late({"dag_run": {"dag_id": "recovery", "dag_run_id": "r1"}, "deadline": due})

    ((text, thread),) = notices
    assert text.startswith("to ops: recovery, run r1, has not ended by 2026-11-21T08:00:00Z: ")
    assert thread != threading.get_ident()


def test_without_a_notifier_notices_are_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.delenv("SERVICEBUS_PAIR_NOTIFIER")

    with caplog.at_level("INFO", logger="servicebus_pair"):
        recovery.failed({"dag_run": RUN})

    assert notices == []
    assert "recovery, run r1, failed (see its tasks)" in caplog.text


@pytest.mark.parametrize(
    ("notifier", "arguments", "message"),
    [
        ("nowhere.Notifier", "{}", r"SERVICEBUS_PAIR_NOTIFIER is 'nowhere.Notifier', which cannot be imported"),
        ("json.Notifier", "{}", r"SERVICEBUS_PAIR_NOTIFIER is 'json.Notifier', which cannot be imported"),
        ("subprocess.Popen", "{}", r"it must be the path of a subclass of BaseNotifier"),
        (
            f"{__name__}.RecordingNotifier",
            '{"key": "canary"}',
            r"_ARGUMENTS cannot create a RecordingNotifier .*a JSON object of its parameters",
        ),
        (f"{__name__}.RecordingNotifier", "[]", r"_ARGUMENTS cannot create a RecordingNotifier"),
        (f"{__name__}.RecordingNotifier", "canary", r"_ARGUMENTS cannot create a RecordingNotifier"),
    ],
)
def test_invalid_notifiers_are_named_without_their_arguments(
    monkeypatch: pytest.MonkeyPatch, notifier: str, arguments: str, message: str
):
    monkeypatch.setenv("SERVICEBUS_PAIR_NOTIFIER", notifier)
    monkeypatch.setenv("SERVICEBUS_PAIR_NOTIFIER_ARGUMENTS", arguments)

    with pytest.raises(ConfigurationError, match=message) as raised:
        recovery.failed({"dag_run": RUN})

    assert "canary" not in str(raised.value)
