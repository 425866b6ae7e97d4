"""Notifies people of the outcome of a recovery, through the notifier that the deployment configures.

===========================================  ===========================================================
environment variable                         value
===========================================  ===========================================================
``SERVICEBUS_PAIR_NOTIFIER``                 the import path of a subclass of Airflow's
                                             ``BaseNotifier``; without it, notices are only logged
``SERVICEBUS_PAIR_NOTIFIER_ARGUMENTS``       its constructor's arguments, as a JSON object. They may be
                                             templates where the notifier allows it;
                                             ``{{ notice }}`` is the text of the notice
===========================================  ===========================================================

They are read where the notifier runs: ``recovered`` in the worker, ``failed`` in the DAG processor, ``late`` in the
triggerer. They are not Airflow variables, because everybody who may edit one could then run code in those processes.
"""

from __future__ import annotations

import json
import logging
import os
import pkgutil
from collections.abc import Mapping
from typing import Any, Final

from airflow.sdk import BaseNotifier

from servicebus_pair.core.errors import ConfigurationError

__all__ = ["failed", "late", "recovered"]

_log = logging.getLogger(__name__)
_NOTIFIER: Final = "SERVICEBUS_PAIR_NOTIFIER"
_ARGUMENTS: Final = "SERVICEBUS_PAIR_NOTIFIER_ARGUMENTS"


def recovered(context: Mapping[str, Any]) -> None:
    """Notify what a recovery moved; for ``on_success_callback`` of the task whose result is the report.

    :raises ConfigurationError: the notifier or its arguments are invalid.
    """
    instance = context["ti"]
    report = instance.xcom_pull(task_ids=instance.task_id)
    _notify(context, f"{_run_name(context)} drained the backlog: {json.dumps(report)}")


def failed(context: Mapping[str, Any]) -> None:
    """Notify that a recovery failed; for ``on_failure_callback`` of a DAG.

    :raises ConfigurationError: as in :func:`recovered`.
    """
    reason = context.get("reason") or "see its tasks"
    _notify(context, f"{_run_name(context)} failed ({reason}): messages that it did not move are still in the backlog")


async def late(context: Mapping[str, Any]) -> None:
    """Notify that a recovery has not ended in time; for the ``AsyncCallback`` of a deadline.

    :raises ConfigurationError: as in :func:`recovered`.
    """
    from asgiref.sync import sync_to_async

    due = context["deadline"]["deadline_time"]
    text = f"{_run_name(context)} has not ended by {due}: the primary may still be down, or the backlog large"
    # In a thread, because most notifiers block; asgiref's threads can read connections through the triggerer.
    await sync_to_async(_notify)(context, text)


def _notify(context: Mapping[str, Any], notice: str) -> None:
    _log.info("notice: %s", notice)
    notifier = _create_notifier()
    if notifier is not None:
        notifier({**context, "notice": notice})


def _create_notifier() -> BaseNotifier | None:
    path = os.environ.get(_NOTIFIER)
    if not path:
        return None
    notifier_class, arguments = _import_notifier(path), os.environ.get(_ARGUMENTS, "{}")
    try:
        return notifier_class(**json.loads(arguments))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{_ARGUMENTS} cannot create a {notifier_class.__name__} ({error}): it must be a JSON object of its "
            "parameters"
        ) from error


def _import_notifier(path: str) -> type[BaseNotifier]:
    try:
        kind = pkgutil.resolve_name(path)
    except (AttributeError, ImportError, ValueError) as error:
        raise ConfigurationError(f"{_NOTIFIER} is {path!r}, which cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise ConfigurationError(f"{_NOTIFIER} is {path!r}: it must be the path of a subclass of BaseNotifier")
    return kind


def _run_name(context: Mapping[str, Any]) -> str:
    run = context["dag_run"]
    # The callback of a deadline receives a mapping.
    dag_id, run_id = (run["dag_id"], run["dag_run_id"]) if isinstance(run, Mapping) else (run.dag_id, run.run_id)
    return f"{dag_id}, run {run_id},"
