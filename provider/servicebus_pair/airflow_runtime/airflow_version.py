"""The versions of Airflow: what they do not have, and every name of theirs that is not public or has moved.

No other module imports a name that is not public, or asks for the version. Names are looked up when they are first
used, because a worker needs none of the API server's.

The check of the version is not in the top-level package, because its core works without Airflow. It is not in the
provider's metadata either, because an error there would keep Airflow from starting.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow._shared.state import AssetStateStoreWriterKind
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from airflow.api_fastapi.auth.managers.models.resource_details import AssetDetails, DagAccessEntity, DagDetails
    from airflow.api_fastapi.core_api.security import get_user
    from airflow.configuration import AIRFLOW_HOME
    from airflow.configuration import conf as server_conf
    from airflow.listeners.types import AssetEvent as EmittedAssetEvent
    from airflow.models.asset import AssetEvent, AssetModel, TaskInletAssetReference
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.models.connection import Connection as ConnectionModel
    from airflow.models.dag import DagModel
    from airflow.models.dagbag import DBDagBag
    from airflow.models.dagrun import DagRun
    from airflow.models.log import Log
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.variable import Variable as VariableModel
    from airflow.models.xcom import XComModel
    from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable, conf
    from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, _TaskDecorator, determine_kwargs
    from airflow.sdk.definitions.context import context_merge
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowOptionalProviderFeatureException,
    )
    from airflow.sdk.execution_time.comms import GetVariable, PutVariable, VariableResult
    from airflow.sdk.execution_time.context import AssetStateStoreAccessor
    from airflow.sdk.log import mask_secret
    from airflow.sdk.observability import stats
    from airflow.sdk.types import TaskInstanceKey
    from airflow.secrets.environment_variables import EnvironmentVariablesBackend
    from airflow.state import AssetScope
    from airflow.state.metastore import MetastoreBackend
    from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome, SharedStreamProducer
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunTriggeredByType

__all__ = [
    "AIRFLOW_HOME",
    "MISSING",
    "AdvanceItem",
    "AdvanceOutcome",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowOptionalProviderFeatureException",
    "AssetDetails",
    "AssetEvent",
    "AssetModel",
    "AssetOrTimeSchedule",
    "AssetScope",
    "AssetStateStoreAccessor",
    "AssetStateStoreModel",
    "AssetStateStoreWriterKind",
    "BaseUser",
    "ConnectionModel",
    "CronTriggerTimetable",
    "DBDagBag",
    "DagAccessEntity",
    "DagDetails",
    "DagModel",
    "DagRun",
    "DagRunTriggeredByType",
    "DecoratedOperator",
    "EmittedAssetEvent",
    "EnvironmentVariablesBackend",
    "Feature",
    "GetVariable",
    "Log",
    "MetastoreBackend",
    "PutVariable",
    "SharedStreamProducer",
    "TaskDecorator",
    "TaskInletAssetReference",
    "TaskInstance",
    "TaskInstanceKey",
    "TaskStateStoreModel",
    "VariableModel",
    "VariableResult",
    "XComModel",
    "_TaskDecorator",
    "amask_secret",
    "answered",
    "approval_timeout",
    "backoff_multiplier",
    "conf",
    "context_merge",
    "create_session",
    "determine_kwargs",
    "get_auth_manager",
    "get_user",
    "has",
    "mask_secret",
    "metric_tag",
    "missing_on_page",
    "needed",
    "require_airflow",
    "server_conf",
    "stats",
    "supervisor_comms",
    "supervisor_is_async",
    "trigger_dag",
]

Version: TypeAlias = tuple[int, int]
AnswerT = TypeVar("AnswerT")
_MINIMUM: Final[Version] = (3, 1)
_TURN: Final = Lock()
_METRIC_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_.-]")


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that older versions of Airflow do not have.

    :param name: what it is.
    :param since: the first version that has it.
    :param before: what happens before, as the compatibility page says it.
    :param on_page: the sentence that the page of the pairs shows before; empty if nothing there is missing.
    """

    name: str
    since: Version
    before: str
    on_page: str = ""


MISSING: Final[Mapping[str, Feature]] = {
    "asset_state": Feature(
        "state store of assets",
        (3, 3),
        "health, the index of entities and the control of the syphon are Variables named "
        "`servicebus_pair/CONN_ID/...`, which whoever may edit Variables may edit",
    ),
    "task_state": Feature(
        "state store of tasks",
        (3, 3),
        "`ServiceBusReceiveOperator` needs `folder`, where its retries find what was received; a retried send repeats "
        "messages that the service refused; the page has no sends, no operations and no progress of a drain",
        "Sends, operations and the progress of a drain are not shown: they need Airflow 3.3.",
    ),
    "acknowledged_events": Feature(
        "confirmation that an event is stored",
        (3, 3),
        "`ServiceBusReceiveTrigger`, also behind `servicebus-pair://` queues, completes a message 10 s after it fired "
        "the event: one that Airflow stores later, or never, is lost; every trigger has a receiver of its own, and "
        "equal ones compete for messages",
    ),
    "connection_forms": Feature(
        "form of a connection from a provider's metadata",
        (3, 2),
        "the form of a connection has no fields of ours: write the settings as JSON into *Extra*",
    ),
    "example_bundles": Feature(
        "bundles of the example DAGs of providers",
        (3, 3),
        "`[core] load_examples` does not show our example DAGs: copy them from `servicebus_pair/example_dags`",
    ),
    "asset_event_listener": Feature(
        "listener of asset events",
        (3, 2),
        "the metrics `servicebus_pair.failovers` and `servicebus_pair.recoveries` are not counted, and the log of the "
        "scheduler does not show failovers",
    ),
}

# Where a name is, newest version first; a name without a colon is an attribute of that name.
_SINCE_31: Final[Version] = (3, 1)
_SINCE_32: Final[Version] = (3, 2)
_SINCE_33: Final[Version] = (3, 3)
_STAND_INS: Final = "servicebus_pair.airflow_runtime.stand_ins"
_EXCEPTIONS: Final = ((_SINCE_32, "airflow.sdk.exceptions"), (_SINCE_31, "airflow.exceptions"))
_PLACES: Final[Mapping[str, tuple[tuple[Version, str], ...]]] = {
    "AIRFLOW_HOME": ((_SINCE_31, "airflow.configuration"),),
    "AdvanceItem": ((_SINCE_33, "airflow.triggers.shared_stream"), (_SINCE_31, _STAND_INS)),
    "AdvanceOutcome": ((_SINCE_33, "airflow.triggers.shared_stream"), (_SINCE_31, _STAND_INS)),
    "AirflowException": _EXCEPTIONS,
    "AirflowFailException": _EXCEPTIONS,
    "AirflowNotFoundException": _EXCEPTIONS,
    "AirflowOptionalProviderFeatureException": _EXCEPTIONS,
    "AssetDetails": ((_SINCE_31, "airflow.api_fastapi.auth.managers.models.resource_details"),),
    "AssetEvent": ((_SINCE_31, "airflow.models.asset"),),
    "AssetModel": ((_SINCE_31, "airflow.models.asset"),),
    "AssetOrTimeSchedule": ((_SINCE_32, "airflow.sdk"), (_SINCE_31, "airflow.timetables.assets")),
    "AssetScope": ((_SINCE_33, "airflow.state"),),
    "AssetStateStoreAccessor": ((_SINCE_33, "airflow.sdk.execution_time.context"),),
    "AssetStateStoreModel": ((_SINCE_33, "airflow.models.asset_state_store"),),
    "AssetStateStoreWriterKind": ((_SINCE_33, "airflow._shared.state"),),
    "BaseUser": ((_SINCE_31, "airflow.api_fastapi.auth.managers.models.base_user"),),
    "ConnectionModel": ((_SINCE_31, "airflow.models.connection:Connection"),),
    "CronTriggerTimetable": ((_SINCE_32, "airflow.sdk"), (_SINCE_31, "airflow.timetables.trigger")),
    "DBDagBag": ((_SINCE_31, "airflow.models.dagbag"),),
    "DagAccessEntity": ((_SINCE_31, "airflow.api_fastapi.auth.managers.models.resource_details"),),
    "DagDetails": ((_SINCE_31, "airflow.api_fastapi.auth.managers.models.resource_details"),),
    "DagModel": ((_SINCE_31, "airflow.models.dag"),),
    "DagRun": ((_SINCE_31, "airflow.models.dagrun"),),
    "DagRunTriggeredByType": ((_SINCE_31, "airflow.utils.types"),),
    "DecoratedOperator": ((_SINCE_31, "airflow.sdk.bases.decorator"),),
    "EnvironmentVariablesBackend": ((_SINCE_31, "airflow.secrets.environment_variables"),),
    "GetVariable": ((_SINCE_31, "airflow.sdk.execution_time.comms"),),
    "Log": ((_SINCE_31, "airflow.models.log"),),
    "MetastoreBackend": ((_SINCE_33, "airflow.state.metastore"),),
    "PutVariable": ((_SINCE_31, "airflow.sdk.execution_time.comms"),),
    "SharedStreamProducer": ((_SINCE_33, "airflow.triggers.shared_stream"), (_SINCE_31, "builtins:object")),
    "TaskDecorator": ((_SINCE_31, "airflow.sdk.bases.decorator"),),
    "TaskInletAssetReference": ((_SINCE_31, "airflow.models.asset"),),
    "TaskInstance": ((_SINCE_31, "airflow.models.taskinstance"),),
    "TaskInstanceKey": ((_SINCE_32, "airflow.sdk.types"), (_SINCE_31, "airflow.models.taskinstancekey")),
    "TaskStateStoreModel": ((_SINCE_33, "airflow.models.task_state_store"),),
    "VariableModel": ((_SINCE_31, "airflow.models.variable:Variable"),),
    "VariableResult": ((_SINCE_31, "airflow.sdk.execution_time.comms"),),
    "XComModel": ((_SINCE_31, "airflow.models.xcom"),),
    "_TaskDecorator": ((_SINCE_31, "airflow.sdk.bases.decorator"),),
    "conf": ((_SINCE_32, "airflow.sdk"), (_SINCE_31, "airflow.configuration")),
    "context_merge": ((_SINCE_31, "airflow.sdk.definitions.context"),),
    "create_session": ((_SINCE_31, "airflow.utils.session"),),
    "determine_kwargs": ((_SINCE_32, "airflow.sdk.bases.decorator"), (_SINCE_31, "airflow.utils.operator_helpers")),
    "get_auth_manager": ((_SINCE_31, "airflow.api_fastapi.app"),),
    "get_user": ((_SINCE_31, "airflow.api_fastapi.core_api.security"),),
    "mask_secret": ((_SINCE_31, "airflow.sdk.log"),),
    "server_conf": ((_SINCE_31, "airflow.configuration:conf"),),
    "stats": (
        (_SINCE_33, "airflow.sdk.observability"),
        (_SINCE_32, "airflow.sdk.observability.stats:Stats"),
        (_SINCE_31, "airflow.stats:Stats"),
    ),
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a name of Airflow. :raises ConfigurationError: the installed version does not have it."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        for since, place in _PLACES[name]:
            if _installed() >= since:
                module, _, attribute = place.partition(":")
                return _import_name(module, attribute or name)
        raise ConfigurationError(f"{name} needs Airflow {_text(_PLACES[name][-1][0])}; found {_installed_text()}")


def _import_name(module: str, name: str) -> Any:
    found = import_module(module)
    try:
        return getattr(found, name)
    except AttributeError:
        return import_module(f"{module}.{name}")


def require_airflow() -> None:
    """Check that Airflow is recent enough.

    :raises RuntimeError: it is too old; the message names both versions and the remedies.
    """
    if _installed() < _MINIMUM:
        raise RuntimeError(
            f"airflow-provider-servicebus-pair needs Airflow {_text(_MINIMUM)} or later; found {_installed_text()}: "
            "upgrade Airflow, or use servicebus_pair.core, which needs no Airflow"
        )


def has(feature: str) -> bool:
    """Return whether the installed Airflow has a feature of :data:`MISSING`."""
    return _installed() >= MISSING[feature].since


def needed(feature: str, what: str, remedy: str) -> None:
    """Check that the installed Airflow has a feature.

    :raises ConfigurationError: it does not; the message names both versions.
    """
    if not has(feature):
        since = _text(MISSING[feature].since)
        raise ConfigurationError(
            f"{what} needs the {MISSING[feature].name} of Airflow {since}; found {_installed_text()}: {remedy}"
        )


def missing_on_page() -> list[str]:
    """Return what the page of the pairs cannot show on the installed version, as sentences."""
    return [each.on_page for name, each in MISSING.items() if each.on_page and not has(name)]


def supervisor_comms() -> Any:
    """Return the channel to the supervisor of the task or trigger, ``None`` outside them."""
    comms = getattr(import_module("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS", None)
    if type(comms).__name__ == "CommsDecoder" and _installed() < _SINCE_32:
        _ask_in_turn(type(comms))
    return comms


def _ask_in_turn(channel: Any) -> None:
    """Let one thread ask after the other, as 3.2 does: in 3.1 two of them may get each other's answers."""
    send = channel.send
    if send.__module__ != __name__:

        def send_in_turn(comms: Any, msg: Any) -> Any:
            with _TURN:
                return send(comms, msg)

        channel.send = send_in_turn


async def answered(request: Awaitable[AnswerT]) -> AnswerT:
    """Return the answer to a request to the supervisor, which is read even if the caller is cancelled.

    In 3.1 an answer that a trigger leaves unread is taken for the next one, and the triggerer fails.
    """
    return await (asyncio.shield(request) if _installed() < _SINCE_32 else request)


def supervisor_is_async() -> bool:
    """Return whether the channel can be used from an event loop; that of ``dag.test`` never can.

    Before 3.3 that of a task cannot either: 3.1 does not implement it, and 3.2 masks secrets by a blocking call, which
    waits forever for an asynchronous one of the same loop.
    """
    comms = supervisor_comms()
    return hasattr(comms, "asend") and (_installed() >= _SINCE_33 or type(comms).__name__ == "TriggerCommsDecoder")


async def amask_secret(secret: str) -> None:
    """Mask a secret in the log, from an event loop on which :func:`supervisor_is_async`."""
    if _installed() >= _SINCE_33:
        await import_module("airflow.sdk.log").amask_secret(secret)
        return
    import_module("airflow.sdk._shared.secrets_masker").mask_secret(secret)
    if supervisor_is_async():
        message = import_module("airflow.sdk.execution_time.comms").MaskSecret(value=secret)
        await answered(supervisor_comms().asend(message))


def metric_tag(value: str) -> str:
    """Return ``value`` as a tag of a metric, for which Airflow has a function since 3.2."""
    return _METRIC_CHARACTERS.sub("_", value)


def backoff_multiplier() -> float:
    """Return what makes each wait for a retry twice as long; before 3.2 that is a switch."""
    return 2 if _installed() >= _SINCE_32 else True


def approval_timeout(wait: timedelta) -> dict[str, Any]:
    """Return the argument of ``ApprovalOperator`` that limits its wait: it depends on the standard provider."""
    operator = import_module("airflow.providers.standard.operators.hitl").HITLOperator
    name = "response_timeout"
    return {name if name in inspect.signature(operator.__init__).parameters else "execution_timeout": wait}


def trigger_dag(dag_id: str, *, note: str, session: Any, **arguments: Any) -> Any:
    """Trigger a run, with a note; Airflow takes the note itself since 3.2."""
    trigger = import_module("airflow.api.common.trigger_dag").trigger_dag
    if _installed() >= _SINCE_32:
        return trigger(dag_id, note=note, session=session, **arguments)
    run = trigger(dag_id, session=session, **arguments)
    if run is not None:
        session.merge(run).note = note
    return run


def _installed() -> Version:
    major, minor = map(int, re.findall(r"\d+", _installed_text())[:2])
    return major, minor


def _installed_text() -> str:
    return str(import_module("airflow").__version__)


def _text(version: Version) -> str:
    return ".".join(map(str, version))
