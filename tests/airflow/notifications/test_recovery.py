"""What a recovery did is told to any notifier of Airflow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from servicebus_pair.notifications.recovery import RecoveryNotifier

notices: list[str] = []


class RecordingNotifier(BaseNotifier):
    """Records each notice."""

    template_fields = ("text",)

    def __init__(self, *, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:  # noqa: ARG002  the base class passes it
        notices.append(self.text)


class TaskInstance:
    """The task instance of the report."""

    task_id = "report"

    def xcom_pull(self, *, task_ids: str) -> dict[str, Any]:
        assert task_ids == self.task_id
        return {"moved": {"flights": 3}}


RUN = SimpleNamespace(dag_id="recovery", run_id="r1")
TO_OPS = RecordingNotifier(text="to ops: {{ notice }}")


@pytest.fixture(autouse=True)
def no_notices() -> None:
    notices.clear()


def test_a_recovery_notice_contains_the_report_each_time():
    notifier = RecoveryNotifier(TO_OPS, outcome="recovered")

    for _ in range(2):
        notifier({"dag_run": RUN, "ti": TaskInstance()})

    assert notices == ['to ops: recovery, run r1, drained the backlog: {"moved": {"flights": 3}}'] * 2


def test_a_failure_notice_contains_the_reason():
    RecoveryNotifier(TO_OPS, outcome="failed")({"dag_run": RUN, "reason": "task_failure"})

    assert notices == [
        "to ops: recovery, run r1, failed (task_failure): messages that it did not move are still in the backlog"
    ]


def test_without_a_notifier_notices_are_logged(caplog: pytest.LogCaptureFixture):
    (notifier,) = RecoveryNotifier.each([], outcome="failed")

    with caplog.at_level("INFO"):
        notifier({"dag_run": RUN})

    assert isinstance(notifier, BaseNotifier)
    assert notices == []
    assert "recovery, run r1, failed (see its tasks)" in caplog.text
