"""What a survey counts in a backlog queue (SPEC section 6)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from dataclasses import replace
from typing import Any

import pytest

from servicebus_pair.core.model.errors import AuthorizationError, ServerBusyError, ServiceError
from servicebus_pair.core.syphon import survey as module
from servicebus_pair.core.syphon.backlog_entry import Selection
from servicebus_pair.core.syphon.survey import BacklogSurvey, DestinationSurvey, Surveyor
from tests.core.support.fake_transport import EPOCH, drain_context


@pytest.mark.parametrize("first_page", [False, True])
async def test_section_6_a_survey_counts_messages_bytes_and_times_by_destination(first_page: bool) -> None:
    context, transport, _ = drain_context(max_batch_messages=3, selection=Selection.of(["Flights", "delays"]))
    queue = transport.queues["q"]
    queue.put("flights", "m0", body="four")
    transport.clock.time += 10
    queue.put("flights", "m1", body="fifteen", application_properties={"ab": 123, "c": bytes(9)})
    queue.put(None, "lost sheep")
    queue.put("elsewhere", "e0")
    queue.put("delays", "d0", body="x" * 9)
    survey = await Surveyor(context).survey("q", first_page=first_page)
    # A copy carries its entity as an application property too.
    path = len("x-ms-path") + len("flights")
    two = DestinationSurvey(2, 4 + 7 + len("ab123c") + 9 + 2 * path, EPOCH, EPOCH + 10)
    one = DestinationSurvey(1, 9 + path - 1, EPOCH + 10, EPOCH + 10)
    assert survey.destinations == ({"flights": two} if first_page else {"flights": two, "delays": one})
    assert (survey.undeliverable, survey.unreadable) == ({"NoPath": 1}, 0)
    assert two.ages(EPOCH + 30) == (20, 30)
    assert len(queue.called("peek")) == (1 if first_page else 3)
    assert queue.calls[-1] == ("close", None)


async def test_section_6_a_survey_counts_a_message_that_raises_as_unreadable() -> None:
    context, transport, _ = drain_context()
    transport.queues["q"].put("flights", "m0", "m1")
    del transport.queues["q"].messages[0].enqueued_time
    survey = await Surveyor(context).survey("q")
    assert (survey.undeliverable, survey.destinations["flights"].messages) == ({"Unreadable": 1}, 1)


class FakeBrowser:
    """Reads the messages of a session queue, one to a page; another receiver holds the sessions ``locked``."""

    undecodable = 5

    def __init__(self, messages: list[Any], locked: list[str]) -> None:
        self.messages, self.locked, self.read = messages, locked, 0

    async def readable_pages(self, **_: bool) -> AsyncGenerator[list[Any], None]:
        for message in self.messages:
            self.read += 1
            yield [message]


@pytest.mark.parametrize("first_page", [True, False])
@pytest.mark.parametrize(
    ("locked", "counted", "selection", "expected"),
    [
        ([], 9, None, 0),
        (["x", "y"], 3 + 5 + 6, None, 6),
        (["x", "y"], 3 + 5 + 1, None, 2),  # messages that were received meanwhile
        (["x", "y"], ServerBusyError("busy"), None, 2),
        (["x", "y"], 3 + 5 + 6, ["flights"], 2),
    ],
)
async def test_section_6_a_survey_of_sessions_counts_what_others_hold_by_what_the_queue_has_more(
    monkeypatch: pytest.MonkeyPatch,
    locked: list[str],
    counted: int | ServiceError,
    selection: list[str] | None,
    expected: int,
    *,
    first_page: bool,
) -> None:
    context, transport, _ = drain_context(max_batch_messages=2, selection=Selection.of(selection))
    transport.queues["q"].put("flights", "m0", "m1", "m2")
    browser = FakeBrowser(transport.queues["q"].messages, locked)
    monkeypatch.setattr(module, "SessionBrowser", lambda *_, **__: browser)

    async def count(queues: Collection[str]) -> int:
        assert list(queues) == ["q"]
        if isinstance(counted, ServiceError):
            raise counted
        return counted

    survey = await Surveyor(context).survey_sessions("q", count=count, first_page=first_page)
    read = 2 if first_page else 3
    assert (browser.read, survey.destinations["flights"].messages, survey.unreadable) == (read, read, 5)
    assert survey.locked == (len(locked) if first_page else expected)


def test_section_6_surveys_of_several_queues_add_up() -> None:
    early, late = DestinationSurvey(1, 10, 5.0, 6.0), DestinationSurvey(2, 20, 7.0, 9.0)
    total = BacklogSurvey.total(
        [
            BacklogSurvey({"a": late}, {"NoPath": 1}, 4, 2),
            BacklogSurvey({"a": early, "b": DestinationSurvey()}, {"NoPath": 1, "Unreadable": 2}, 16, 3),
        ]
    )
    assert total.destinations == {"a": DestinationSurvey(3, 30, 5.0, 9.0), "b": DestinationSurvey()}
    assert (total.undeliverable, total.unreadable, total.locked, total.messages) == (
        {"NoPath": 2, "Unreadable": 2},
        20,
        5,
        32,
    )
    assert DestinationSurvey().ages(100.0) == (0, 0)
    assert BacklogSurvey({"a": replace(late, messages=1)}, {"NoPath": 1}, 1, 1).messages == 4


@pytest.mark.parametrize(
    ("entity", "redrive", "selected"),
    [("flights", False, True), ("delays", False, False), (None, False, True), (None, True, False)],
)
def test_section_6_undeliverable_messages_are_selected_unless_redriven(
    entity: str | None, redrive: bool, selected: bool
) -> None:
    context, transport, _ = drain_context(selection=Selection.of(["flights"]), redrive=redrive)
    transport.queues["q"].put(entity, "m0")
    [message] = transport.queues["q"].messages
    surveyor = Surveyor(context)
    assert surveyor.is_selected(message) is surveyor.is_workable(message, set()) is selected
    assert not surveyor.is_workable(message, {1})
    context.backoff.record_permanent_failure("flights", "no right", now=0)
    assert surveyor.is_workable(message, set()) is (selected and entity is None)


@pytest.mark.parametrize(
    ("error", "text"), [(AuthorizationError("no"), "right Listen on q is needed"), (ServerBusyError("busy"), "busy")]
)
async def test_section_6_a_survey_explains_why_a_queue_cannot_be_read(error: ServiceError, text: str) -> None:
    context, transport, _ = drain_context()
    transport.queues["q"].errors["peek"] = error
    with pytest.raises(type(error), match=text):
        await Surveyor(context).survey("q")
    assert transport.queues["q"].calls[-1] == ("close", None)
