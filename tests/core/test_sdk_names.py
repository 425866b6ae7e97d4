"""A newer SDK without the names that 7.15 keeps to itself: the public way, or an error that says what is missing."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import pytest
from azure.servicebus import ServiceBusMessageBatch, __version__

from servicebus_pair.core import encoding, sdk_inside, sdk_names, wire
from servicebus_pair.core.sdk_inside import can_settle_runs, make_patient
from tests.core.hosted import BACKLOG, hosted, messages

LINK = (*sdk_inside._OF_LINK, *sdk_inside._OF_SETTLEMENT)


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_names, "_said", set())


class Receiver(SimpleNamespace):
    """A receiver of the SDK, as far as its inside is used."""

    async def __aenter__(self) -> Self:
        return self


def receiver_without(missing: str) -> Receiver:
    def only(names: tuple[str, ...], **more: Any) -> SimpleNamespace:
        found = {**dict.fromkeys(names), **more}
        return SimpleNamespace(**{name: value for name, value in found.items() if name != missing})

    # Of the class, as the SDK's are: an instance that has its own was made patient already.
    link = type("Link", (), vars(only(LINK)))()
    inside = ("_received_messages", "do_work_async", "settle_messages_async")
    handler = only(inside, _link=link)
    return Receiver(_handler=handler) if missing != "_handler" else Receiver()


@pytest.mark.parametrize("missing", ["_handler", *sdk_inside._OF_HANDLER, *sdk_inside._OF_LINK])
async def test_a_receiver_that_cannot_be_made_patient_is_used_as_it_is_and_the_log_says_so_once(
    missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver: Any = receiver_without(missing)
    with caplog.at_level(logging.WARNING):
        await make_patient(receiver, over=lambda: False, seen=lambda _: None)
        await make_patient(receiver, over=lambda: False, seen=lambda _: None)
    (said,) = caplog.messages
    assert __version__ in said
    assert f".{missing}," in said


async def test_without_the_form_of_a_message_there_is_no_stand_in_for_one_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr("azure.servicebus._pyamqp.message.Message")
    receiver: Any = receiver_without("nothing")
    await make_patient(receiver, over=lambda: False, seen=lambda _: None)
    (said,) = caplog.messages
    assert "_pyamqp.message.Message" in said


@pytest.mark.parametrize("missing", ["settle_messages_async", "_link", *sdk_inside._OF_SETTLEMENT])
def test_messages_are_settled_one_by_one_where_runs_cannot_be(missing: str) -> None:
    whole: Any = receiver_without("nothing")
    lacking: Any = receiver_without(missing)
    message: Any = SimpleNamespace(_delivery_id=1, _delivery_tag=b"1")
    assert can_settle_runs(whole, [message])
    assert not can_settle_runs(lacking, [message])


@pytest.mark.parametrize("missing", sdk_inside._OF_MESSAGE)
def test_messages_that_do_not_know_their_delivery_are_settled_one_by_one(missing: str) -> None:
    whole: Any = receiver_without("nothing")
    known = {name: 1 for name in sdk_inside._OF_MESSAGE if name != missing}
    message: Any = SimpleNamespace(**known)
    assert not can_settle_runs(whole, [message])


async def test_a_backlog_is_drained_by_public_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_inside, "absent", lambda _, names, **__: next(iter(names)))
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(40)))
        await both.put_into_backlog("gone", messages(1, name="x"))
        report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 40}, {"EntityNotFound": 1})
        assert await both.ids("flights") == [f"m{n}" for n in range(40)]
        assert await both.ids_in_backlog(BACKLOG) == []


@pytest.mark.parametrize(
    ("ours", "module", "name"),
    [
        (encoding, "azure.servicebus._pyamqp._encode", "encode_payload"),
        (encoding, "azure.servicebus._pyamqp.message", "Message"),
        (wire, "azure.servicebus.aio._transport._pyamqp_transport_async", "PyamqpTransportAsync"),
    ],
)
def test_without_the_encoder_the_import_ends_naming_version_and_name(
    monkeypatch: pytest.MonkeyPatch, ours: ModuleType, module: str, name: str
) -> None:
    monkeypatch.delattr(importlib.import_module(module), name)
    with pytest.raises(ImportError, match=rf"azure-servicebus {__version__} cannot be used: .*{name}.*; install"):
        imported_anew(ours)


@pytest.mark.parametrize("name", ["_message", "_amqp_transport"])
def test_without_the_inside_of_a_batch_the_import_ends_too(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    class Other(ServiceBusMessageBatch):
        def __init__(self) -> None:
            super().__init__()
            delattr(self, name)

    monkeypatch.setattr("azure.servicebus.ServiceBusMessageBatch", Other)
    with pytest.raises(ImportError, match=rf"cannot be used: ServiceBusMessageBatch has no '{name}'"):
        imported_anew(wire)


def imported_anew(module: ModuleType) -> None:
    """Import a module once more, under a name of its own."""
    assert module.__file__ is not None
    spec = importlib.util.spec_from_file_location("imported_anew", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
