"""``RecoveryNotifier``: tells other notifiers what a recovery did, as one sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any, Literal

from airflow.sdk import BaseNotifier, Context

from servicebus_pair.core.model import choice, get_logger

__all__ = ["RecoveryNotifier"]

_log = get_logger(__name__)


class RecoveryNotifier(BaseNotifier):
    """Logs a sentence about a recovery, and passes it to a notifier whose templates may contain ``{{ notice }}``.

    ``recovered`` is for ``on_success_callback`` of the task whose result is the report, ``failed`` for
    ``on_failure_callback`` of a DAG.

    :param notifier: any notifier, such as one of Slack's; the sentence is only logged when not given.
    :param outcome: which of the two it is.
    :raises ConfigurationError: it is neither.
    """

    def __init__(
        self, notifier: BaseNotifier | None = None, *, outcome: Literal["recovered", "failed"] = "recovered"
    ) -> None:
        super().__init__()
        self.notifier = notifier
        self.outcome = choice("recovered", "failed")("outcome", outcome)

    @classmethod
    def each(
        cls, notifiers: Iterable[BaseNotifier], *, outcome: Literal["recovered", "failed"]
    ) -> list[RecoveryNotifier]:
        """Return one for each notifier, and one that only logs when there is none."""
        return [cls(notifier, outcome=outcome) for notifier in notifiers] or [cls(outcome=outcome)]

    def notify(self, context: Context) -> None:
        """Log the sentence and pass it on."""
        notice = self._notice(context)
        _log.info("notice: %s", notice)
        if self.notifier is not None:
            # A copy, because rendering replaces the templates of a notifier.
            copy.copy(self.notifier)({**context, "notice": notice})

    def _notice(self, context: Any) -> str:
        run = context["dag_run"]
        name = f"{run.dag_id}, run {run.run_id},"
        if self.outcome == "recovered":
            instance = context["ti"]
            return f"{name} drained the backlog: {json.dumps(instance.xcom_pull(task_ids=instance.task_id))}"
        reason = context.get("reason") or "see its tasks"
        return f"{name} failed ({reason}): messages that it did not move are still in the backlog"
