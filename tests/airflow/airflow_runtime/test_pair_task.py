"""Sentences of the operators page that hold for every operator and sensor, each tested on all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, TaskGroup

from servicebus_pair.airflow_runtime.pair_task import is_permanent
from servicebus_pair.airflow_runtime.validators import entity_paths, optional_path_list
from servicebus_pair.assets import health_alias, pair_asset
from servicebus_pair.core import SendResult, errors
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.get_provider_info import get_provider_info
from tests.airflow.conftest import CONN_ID, RunDag

# What each needs at least, and what it is mapped over.
NEEDED: dict[str, dict[str, Any]] = {
    "ServiceBusEntityCreateOperator": {"entity": "flights"},
    "ServiceBusEntityDeleteOperator": {"entity": "flights"},
    "ServiceBusEntityUpdateOperator": {"entity": "flights", "settings": {"max_delivery_count": 5}},
    "ServiceBusMessageSensor": {"entity": "flights"},
    "ServiceBusPairDrillOperator": {"entity": "flights"},
    "ServiceBusPairFailbackOperator": {"entities": "flights", "reason": "a test"},
    "ServiceBusPairFailoverOperator": {"entities": "flights", "reason": "a test"},
    "ServiceBusPairRecordOperator": {"manifest": "missing.json"},
    "ServiceBusPairSendOperator": {"entity": "flights", "messages": ["a"]},
    "ServiceBusReceiveOperator": {"entity": "flights", "folder": "/nowhere"},
}
MAPPED: dict[str, tuple[str, Any]] = {
    "ServiceBusEntityCreateOperator": ("kind", "topic"),
    "ServiceBusEntityDeleteOperator": ("namespace", "secondary"),
    "ServiceBusEntityUpdateOperator": ("settings", {"max_delivery_count": 5}),
    "ServiceBusPairCleanupOperator": ("what", "all"),
    "ServiceBusPairCostOperator": ("messages", 5),
    "ServiceBusPairDrillOperator": ("messages", 5),
    "ServiceBusPairFailbackOperator": ("reason", "another"),
    "ServiceBusPairFailoverOperator": ("reason", "another"),
    "ServiceBusPairProvisionOperator": ("on_drift", "warn"),
    "ServiceBusPairRecordOperator": ("manifest", "missing.json"),
    "ServiceBusPairSendOperator": ("messages", ["a"]),
    "ServiceBusPairSyphonOperator": ("rate", 5),
    "ServiceBusReceiveOperator": ("max_messages", 5),
    "ServiceBusBacklogSensor": ("messages", 5),
    "ServiceBusMessageSensor": ("session_id", "a"),
    "ServiceBusPrimaryHealthSensor": ("entities", ["flights"]),
}
# They decide how a task runs, not what it does.
NOT_TEMPLATED = {"servicebus_pair_conn_id", "deferrable", "poll_interval", "poke_interval", "burst", "wait_timeout"}


def task_classes() -> Iterator[type[Any]]:
    """Every operator and sensor of the provider info."""
    info = get_provider_info()
    for name in [name for kind in ("operators", "sensors") for each in info[kind] for name in each["python-modules"]]:
        module = import_module(name)
        yield from (
            value
            for value in map(module.__dict__.get, module.__all__)
            if inspect.isclass(value) and issubclass(value, BaseOperator)
        )


CLASSES = list(task_classes())
every_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


def own_parameters(kind: type) -> set[str]:
    """The parameters of a class and of our base classes."""
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith("servicebus_pair") and "__init__" in vars(base)
        for name in inspect.signature(vars(base)["__init__"]).parameters
    } - {"self", "kwargs"}


def make(kind: Any, /, **parameters: Any) -> Any:
    return kind(**{"task_id": "task", **NEEDED.get(kind.__name__, {}), **parameters})


def test_the_tables_of_this_test_are_complete():
    assert len(CLASSES) >= 16
    assert {kind.__name__ for kind in CLASSES} == set(MAPPED)


@every_class
def test_every_parameter_of_a_wrong_type_is_refused_when_the_dag_is_parsed_mapped_or_not(kind: Any):
    for name in sorted(own_parameters(kind)):
        with pytest.raises(ConfigurationError, match=name):
            make(kind, **{name: object()})
        with pytest.raises(ConfigurationError, match=name):
            kind.partial(**{"task_id": "task", name: object()})


@every_class
def test_every_parameter_may_be_a_template_unless_it_says_how_the_task_runs(kind: Any):
    assert own_parameters(kind) - {*kind.template_fields} == own_parameters(kind) & NOT_TEMPLATED
    for name in own_parameters(kind) & {*kind.template_fields} - {"messages"}:
        make(kind, **{name: "{{ params.value }}"} | ({"messages": None} if name in ("json_lines", "path") else {}))


PATH_LISTS = [
    (kind, name)
    for kind in CLASSES
    for name, check in kind._all_checks().items()
    if check in (optional_path_list, entity_paths)
]


def test_every_list_of_paths_is_found():
    assert {name for _, name in PATH_LISTS} == {"entities", "queues", "only"}
    assert len(PATH_LISTS) == 6


@pytest.mark.parametrize(("kind", "name"), PATH_LISTS, ids=[f"{kind.__name__}-{name}" for kind, name in PATH_LISTS])
def test_every_list_of_paths_may_be_a_text_with_commas(kind: Any, name: str):
    task = make(kind, **{name: "flights, contoso/x-servicebus-transfer/0"})

    check = kind._all_checks()[name]
    assert check(name, getattr(task, name)) == ["flights", "contoso/x-servicebus-transfer/0"]
    assert check(name, ["a", "b"]) == ["a", "b"]


@every_class
def test_every_parameter_is_keyword_only(kind: Any):
    for base in kind.__mro__:
        if base.__module__.startswith("servicebus_pair") and "__init__" in vars(base):
            parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            assert {each.kind for each in parameters} <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


@every_class
@pytest.mark.parametrize("place", ["task", "dag", "group", "default"])
def test_every_task_has_the_assets_of_its_pair_mapped_or_not(kind: Any, place: str):
    """PLATFORM section 6: __init__ of a mapped operator does not run when the DAG is parsed."""
    given: dict[str, Any] = {"servicebus_pair_conn_id": "other.pair"}
    conn_id = "servicebus_pair_default" if place == "default" else "other.pair"
    name, value = MAPPED[kind.__name__]
    with (
        DAG("assets", schedule=None, default_args=given if place == "dag" else {}),
        TaskGroup("group", default_args=given if place == "group" else {}),  # type: ignore[arg-type]  # as documented
    ):
        own = given if place == "task" else {}
        plain = make(kind, **own)
        partial = {k: v for k, v in NEEDED.get(kind.__name__, {}).items() if k != name}
        mapped = kind.partial(task_id="mapped", **partial, **own).expand(**{name: [value, value]})

    outlets = [health_alias(conn_id)] if kind.detects_health else []
    for task in (plain, mapped):
        assert (task.inlets, task.outlets) == ([pair_asset(conn_id)], outlets)
    unmapped = mapped.unmap({name: value})
    assert (unmapped.inlets, unmapped.outlets) == ([pair_asset(conn_id)], outlets)


@every_class
def test_the_connection_cannot_be_mapped(kind: Any):
    needed = NEEDED.get(kind.__name__, {})

    with DAG("mapped", schedule=None), pytest.raises(TypeError, match="specified argument: servicebus_pair_conn_id"):
        kind.partial(task_id="task", **needed).expand(servicebus_pair_conn_id=["a", "b"])


DECORATORS: dict[str, Callable[..., Any]] = {
    "servicebus_receive": lambda text, messages: (text, messages),
    "servicebus_send": lambda text: [text],
}


def test_every_decorator_is_in_this_table():
    assert {each["name"] for each in get_provider_info()["task-decorators"]} == set(DECORATORS)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", DECORATORS)
def test_default_args_reach_every_decorated_task_and_no_other_providers(name: str, *, mapped: bool):
    from airflow.providers.standard.operators.bash import BashOperator
    from airflow.sdk import task

    with DAG("defaults", schedule=None, default_args={"servicebus_pair_conn_id": "other.pair"}) as dag:
        other = BashOperator(task_id="other", bash_command="true")
        decorated = getattr(task, name)(task_id="task", entity="flights")(DECORATORS[name])
        decorated.expand(text=["a", "b"]) if mapped else decorated(text="a")

    made = dag.get_task("task")
    outlets = [health_alias("other.pair")] if name == "servicebus_send" else []
    assert (made.inlets, made.outlets) == ([pair_asset("other.pair")], outlets)
    assert not hasattr(other, "servicebus_pair_conn_id")


@every_class
def test_inlets_and_outlets_of_the_author_are_kept(kind: Any):
    own = pair_asset("mine")
    name, value = MAPPED[kind.__name__]
    with DAG("assets", schedule=None):
        partial = {k: v for k, v in NEEDED.get(kind.__name__, {}).items() if k != name}
        mapped = kind.partial(task_id="mapped", inlets=[own], outlets=[own], **partial).expand(**{name: [value]})

    for task in (make(kind, inlets=[own], outlets=[own]), mapped):
        assert task.inlets[0] == task.outlets[0] == own
        assert len(task.inlets) == 2


@every_class
def test_every_task_links_to_the_page_and_the_portal(kind: Any):
    assert [link.name for link in kind.operator_extra_links] == ["Service Bus pairs", "Azure portal"]
    assert kind.portal_side in ("primary", "secondary")


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("wrong", ["connection", "parameter"])
def test_every_task_fails_at_once_on_what_only_a_person_can_mend(run_dag: RunDag, wrong: str):
    with DAG("permanent", schedule=None, render_template_as_native_obj=True) as dag:
        for kind in CLASSES:
            given = {"servicebus_pair_conn_id": "nowhere"}
            if wrong == "parameter":
                given = {"servicebus_pair_conn_id": CONN_ID, MAPPED[kind.__name__][0]: "{{ [[1]] }}"}
            make(kind, task_id=kind.__name__, retries=3, **given)

    ended = {each.task_id: (each.state, each.try_number) for each in run_dag(dag).get_task_instances()}

    assert ended == {kind.__name__: ("failed", 1) for kind in CLASSES}


@every_class
def test_the_old_name_of_the_connection_is_refused_with_the_new_one(kind: Any):
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: make(kind, conn_id=CONN_ID),
        lambda: kind.partial(task_id="task", conn_id=CONN_ID),
    )
    for attempt in attempts:
        with pytest.raises(ConfigurationError, match=r"conn_id is .*: the parameter is servicebus_pair_conn_id"):
            attempt()


PASSING = {
    *("AuthenticationSuspectError", "EntityDisabledError", "HealthStoreError", "LockLostError", "NoBacklogQueueError"),
    *("ObserverError", "PairClosedError", "PartnerFaultError", "QuotaExceededError", "RejectedError"),
    *("SendCancelledError", "SendTimeoutError", "ServerBusyError", "ServiceFaultError", "SessionLockedError"),
    *("SpoolError", "SpoolFullError", "TimedOutError", "UnreachableError"),
}


def test_every_error_is_permanent_or_may_pass():
    names: list[str] = vars(errors)["__all__"]
    found = {name for name in names if name != "find_send_error" and not is_permanent(an_error(name))}

    # A SendError and a ProvisionError are what their cause is; PairError and ServiceError are only bases.
    assert found - {"SendError", "ProvisionError"} == PASSING
    denied = errors.AuthorizationError("no")
    assert is_permanent(errors.SendError("x", cause=denied, result=SendResult(), unsent=()))


def an_error(name: str) -> Any:
    kind = getattr(errors, name)
    if issubclass(kind, errors.SendError):
        return kind("x", cause=errors.UnreachableError("no"), result=SendResult(), unsent=())
    return kind("reason", "text") if kind is errors.UndeliverableError else kind("text")


def test_a_path_in_a_templated_field_becomes_text_which_every_version_of_airflow_renders():
    from servicebus_pair.operators.receive import ServiceBusReceiveOperator

    task = ServiceBusReceiveOperator(task_id="receive", entity="flights", folder=Path("/nowhere/received"))

    assert task.folder == "/nowhere/received"
