"""Tells people what came of a recovery, through the notifier that the deployment names.

===========================================  ===========================================================
environment variable
===========================================  ===========================================================
``SERVICEBUS_PAIR_NOTIFIER``                 the import path of a notifier, a subclass of Airflow's
                                             ``BaseNotifier``; without it, the log is told only
``SERVICEBUS_PAIR_NOTIFIER_ARGUMENTS``       what it is made with, as a JSON object. Templates may stand
                                             where the notifier allows them; ``{{ notice }}`` is the
                                             sentence to tell
===========================================  ===========================================================

They are read where the notifier runs: ``recovered`` in the worker, ``failed`` in the DAG processor, ``late`` in the
triggerer. A path that an Airflow variable could hold would let everybody who may edit one run code there.
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
    """Tell what a recovery moved; for ``on_success_callback`` of the task whose result is the report.

    :raises ConfigurationError: the notifier, or what it is to be made with, is wrong.
    """
    instance = context["ti"]
    report = instance.xcom_pull(task_ids=instance.task_id)
    _tell(context, f"{_run(context)} brought the backlog home: {json.dumps(report)}")


def failed(context: Mapping[str, Any]) -> None:
    """Tell that a recovery failed; for ``on_failure_callback`` of a DAG.

    :raises ConfigurationError: as in :func:`recovered`.
    """
    why = context.get("reason") or "see its tasks"
    _tell(context, f"{_run(context)} failed ({why}): what it did not move is still in the backlog")


async def late(context: Mapping[str, Any]) -> None:
    """Tell that a recovery has not ended in time; for the ``AsyncCallback`` of a deadline.

    :raises ConfigurationError: as in :func:`recovered`.
    """
    from asgiref.sync import sync_to_async

    due = context["deadline"]["deadline_time"]
    text = f"{_run(context)} has not ended by {due}: the primary may still be away, or the backlog long"
    # Most notifiers block; in a thread from which they may ask for connections.
    await sync_to_async(_tell)(context, text)


def _tell(context: Mapping[str, Any], notice: str) -> None:
    _log.info("notice: %s", notice)
    notifier = _configured()
    if notifier is not None:
        notifier({**context, "notice": notice})


def _configured() -> BaseNotifier | None:
    path = os.environ.get(_NOTIFIER)
    if not path:
        return None
    kind, arguments = _class(path), os.environ.get(_ARGUMENTS, "{}")
    try:
        made_with = json.loads(arguments)
        return kind(**made_with)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{_ARGUMENTS} does not make a {kind.__name__} ({error}): it must be a JSON object of its parameters"
        ) from error


def _class(path: str) -> type[BaseNotifier]:
    try:
        kind = pkgutil.resolve_name(path)
    except (AttributeError, ImportError, ValueError) as error:
        raise ConfigurationError(f"{_NOTIFIER} is {path!r}, which cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise ConfigurationError(f"{_NOTIFIER} is {path!r}: it must be the path of a subclass of BaseNotifier")
    return kind


def _run(context: Mapping[str, Any]) -> str:
    run = context["dag_run"]
    # A deadline is told of its run by a mapping.
    dag_id, run_id = (run["dag_id"], run["dag_run_id"]) if isinstance(run, Mapping) else (run.dag_id, run.run_id)
    return f"{dag_id}, run {run_id},"
