"""What the DAGs of all factories have in common."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from airflow.sdk import DAG

from servicebus_pair.airflow_runtime.airflow_version import AirflowFailException
from servicebus_pair.airflow_runtime.validators import no_secret_in
from servicebus_pair.assets import check_conn_id
from servicebus_pair.core.errors import ConfigurationError

__all__ = ["RETRYING", "check_arguments", "check_form", "pair_dag"]

RETRYING: Final[Mapping[str, Any]] = {"retries": 2, "retry_delay": timedelta(seconds=30)}


def pair_dag(
    purpose: str, *, servicebus_pair_conn_id: str, dag_id: str | None, options: Mapping[str, Any], **defaults: Any
) -> DAG:
    """Return the DAG for one purpose of one pair.

    Without a schedule among ``defaults`` it is triggered by hand only.

    :param options: the caller's arguments of ``DAG``; they replace ``defaults``.
    :raises ConfigurationError: the connection cannot name assets.
    """
    check_conn_id(servicebus_pair_conn_id)
    if "schedule" not in defaults:
        # While a DAG is paused, a run that was triggered by hand would stay queued.
        defaults |= {"schedule": None, "is_paused_upon_creation": False}
    common = {"max_active_runs": 1, "default_args": dict(RETRYING), "tags": ["servicebus_pair"]}
    name = f"{servicebus_pair_conn_id}_{purpose}" if dag_id is None else dag_id
    return DAG(name, **{**common, **defaults, **options})  # noqa: AIR002  among the defaults


def check_arguments(given: Mapping[str, Any]) -> None:
    """Check what a factory was given, which Airflow stores with the DAG; what is for ``DAG`` is the caller's.

    :raises ConfigurationError: an argument holds a secret.
    """
    no_secret_in({name: value for name, value in given.items() if name != "dag_options"})


def check_form(params: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Fail on a misspelt field of a trigger form, which Airflow accepts; the default would be used instead of it.

    Also on a secret in a form: Airflow stores and logs what a task returns of it.

    :raises AirflowFailException: naming the fields that are unknown and those that are known, or that of the secret.
    """
    try:
        no_secret_in({"the form": list(params), **params})
    except ConfigurationError as error:
        raise AirflowFailException(str(error)) from None
    unknown = sorted(set(params) - set(known))
    if unknown:
        raise AirflowFailException(f"unknown fields {unknown}: allowed are {sorted(known)}; nothing was changed")
