"""A secret as a parameter of a task or a trigger is refused: Airflow stores these, for all who may read the DAG."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import pytest
from jinja2.sandbox import SandboxedEnvironment

from servicebus_pair import dags
from servicebus_pair.airflow_runtime.message_spec import MessageFields, MessageReader
from servicebus_pair.assets import pair_asset
from servicebus_pair.decorators.servicebus_receive import servicebus_receive_task
from servicebus_pair.decorators.servicebus_send import servicebus_send_task
from servicebus_pair.get_provider_info import get_provider_info
from servicebus_pair.hooks.servicebus_namespace import ServiceBusNamespaceHook
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.notifications.recovery import RecoveryNotifier
from servicebus_pair.operators.failover import ServiceBusPairFailoverOperator
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from tests.security.canaries import CANARIES, disclosed, outcome

# What security.md names: the content of messages is not looked at.
CONTENT = {"messages", "json_lines", "defaults"}
_KEY = CANARIES["key"]
SECRETS = {**CANARIES, "key in a list": [_KEY], "key in a mapping": {"value": _KEY}, "key as a name": {_KEY: 1}}
# Valid values of the parameters that are required.
REQUIRED: dict[str, Any] = {
    "servicebus_pair_conn_id": "contoso",
    "entity": "flights",
    "entities": ["flights"],
    "reason": "a test",
    "manifest": "/manifest.json",
    "settings": {},
    "interval": 10,
    "until": "drained",
    "messages": 0,
    "age": None,
}


def public_classes() -> Iterator[type]:
    """Every operator, sensor and trigger of the provider info."""
    info = get_provider_info()
    for kind in ("operators", "sensors", "triggers"):
        for module in (import_module(name) for each in info[kind] for name in each["python-modules"]):
            yield from (
                public
                for name in module.__all__
                if inspect.isclass(public := getattr(module, name)) and name.endswith(("Operator", "Sensor", "Trigger"))
            )


def own_parameters(kind: type) -> dict[str, inspect.Parameter]:
    """The parameters of a class and of our base classes."""
    return {
        name: each
        for base in reversed(kind.__mro__)
        if base.__module__.startswith("servicebus_pair") and "__init__" in vars(base)
        for name, each in inspect.signature(vars(base)["__init__"]).parameters.items()
        if name not in {"self", "kwargs"}
    }


def send(**given: Any) -> Any:
    return servicebus_send_task(list, task_id="t", **given)()


def receive(**given: Any) -> Any:
    return servicebus_receive_task(lambda messages: None, task_id="t", **given)()  # noqa: ARG005  its name matters


def leaks(make: Callable[..., Any], given: dict[str, Any], names: Iterator[str]) -> list[tuple[str, str]]:
    """The parameters that take a secret, or show it in an error."""
    found = []
    for name in names:
        for kind, secret in SECRETS.items():
            text = outcome(lambda name=name, secret=secret: make(**{**given, name: secret}))  # type: ignore[misc]
            if not text.startswith("ConfigurationError") or disclosed(text):
                found.append((name, kind))
    return found


@pytest.mark.parametrize("kind", list(public_classes()), ids=lambda kind: kind.__name__)
def test_each_parameter_of_tasks_and_triggers_refuses_a_secret_and_shows_none(kind: Any):
    parameters = own_parameters(kind)
    given = {name: REQUIRED[name] for name, each in parameters.items() if each.default is each.empty}
    if kind.__name__.endswith(("Operator", "Sensor")):
        given |= {"task_id": "t"}
    content = CONTENT if kind is ServiceBusPairSendOperator else set()
    if content:
        given |= {"messages": []}

    kind(**given)

    assert leaks(kind, given, iter(sorted(set(parameters) - content))) == []


@pytest.mark.parametrize(
    "kind", [kind for kind in public_classes() if hasattr(kind, "partial")], ids=lambda k: k.__name__
)
def test_each_parameter_of_mapped_tasks_and_beside_a_template_refuses_a_secret(kind: Any):
    content = CONTENT if kind is ServiceBusPairSendOperator else set()
    names = sorted(set(own_parameters(kind)) - content)
    secret = CANARIES["connection string"]

    def make(**given: Any) -> Any:
        return kind.partial(task_id="t", **given)

    assert leaks(make, {}, iter(names)) == []
    for name in names:
        text = outcome(lambda name=name: make(**{name: f"{{{{ ds }}}} {secret}"}))  # type: ignore[misc]
        assert text.startswith("ConfigurationError")
        assert not disclosed(text)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (ServiceBusPairHook, "servicebus_pair_conn_id"),
        (ServiceBusNamespaceHook, "servicebus_namespace_conn_id"),
        (RecoveryNotifier, "outcome"),
        (pair_asset, "conn_id"),
    ],
)
def test_hooks_notifiers_and_assets_refuse_a_secret(make: Any, name: str):
    assert leaks(make, {}, iter([name])) == []


def test_a_secret_that_a_template_makes_is_refused_before_airflow_stores_it():
    secret, environment = CANARIES["connection string"], SandboxedEnvironment()
    task = ServiceBusPairFailoverOperator(task_id="t", entities="{{ secret }}", reason="a test")
    content = ServiceBusPairSendOperator(task_id="t", entity="flights", messages=["{{ secret }}"])

    text = outcome(lambda: task.render_template_fields({"secret": secret}, environment))  # type: ignore[typeddict-unknown-key]
    content.render_template_fields({"secret": secret}, environment)  # type: ignore[typeddict-unknown-key]

    assert text.startswith("AirflowFailException")
    assert not disclosed(text)


@pytest.mark.parametrize(
    "content", [{"messages": []}, {"messages": [_KEY]}, {"json_lines": f'{{"body": "{_KEY}"}}\n{{"body": "b"}}'}]
)
def test_the_content_of_messages_may_be_anything(content: dict[str, Any]):
    ServiceBusPairSendOperator(task_id="t", entity="flights", defaults={"subject": _KEY}, **content)


@pytest.mark.parametrize("name", ["connection_string", "defaults"])
def test_a_secret_in_an_argument_that_airflow_does_not_know_is_not_shown(name: str):
    for secret in SECRETS.values():
        text = outcome(lambda secret=secret: ServiceBusPairProvisionOperator(task_id="t", **{name: secret}))  # type: ignore[misc]
        assert text.startswith("TypeError")
        assert not disclosed(text)


@pytest.mark.parametrize("name", MessageFields.__annotations__)
def test_the_error_of_a_field_of_a_message_shows_no_secret(name: str):
    def read(secret: Any) -> None:
        MessageReader(seed="").read({"body": "b", "session_id": "s", name: secret}, where="messages[0]", position=0)

    assert [kind for kind, secret in SECRETS.items() if disclosed(outcome(partial(read, secret)))] == []


@pytest.mark.parametrize("make", [getattr(dags, name) for name in dags.__all__], ids=dags.__all__)
def test_each_argument_of_the_dags_to_start_from_refuses_a_secret(make: Any):
    parameters = inspect.signature(make).parameters
    given = {"entities": ["flights"], "ledger": "/ledger", "output": "/output"}

    assert len(parameters) > 2
    required = {name: value for name, value in given.items() if name in parameters}
    assert leaks(make, required, iter(sorted(set(parameters) - {"dag_options"}))) == []


@pytest.mark.parametrize("make", [send, receive])
def test_each_parameter_of_the_decorators_refuses_a_secret(make: Any):
    names = {"servicebus_pair_conn_id", *inspect.signature(globals()[f"servicebus_{make.__name__}_task"]).parameters}
    names -= {"python_callable", "multiple_outputs", "kwargs"} | CONTENT

    assert len(names) > 4
    assert leaks(make, {"entity": "flights"}, iter(sorted(names))) == []
