from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import EntityNotFoundError, ServiceError, ServiceFaultError
from servicebus_pair.core.sdk.message_browser import MessageBrowser


class FakeQueue:
    """A queue of sequence numbers; a peek that includes an undecodable one fails as a whole."""

    def __init__(self, numbers: set[int], undecodable: set[int]) -> None:
        self.numbers = sorted(numbers | undecodable)
        self.undecodable = undecodable
        self.failures: list[ServiceError] = []
        self.requests = 0

    async def peek(self, *, max_messages: int, timeout: float, from_sequence_number: int = 1) -> list[Any]:
        assert timeout == 5
        assert max_messages > 0
        assert isinstance(from_sequence_number, int)
        self.requests += 1
        if self.failures:
            raise self.failures.pop(0)
        page = [each for each in self.numbers if each >= from_sequence_number][:max_messages]
        if self.undecodable.intersection(page):
            raise ServiceFaultError("Handler failed")
        return [SimpleNamespace(sequence_number=each) for each in page]


async def read(browser: MessageBrowser) -> list[int]:
    return [message.sequence_number or 0 async for page in browser.readable_pages() for message in page]


@given(
    numbers=st.sets(st.integers(1, 60)),
    undecodable=st.sets(st.integers(1, 60)),
    page_size=st.integers(1, 10),
)
async def test_every_readable_message_is_read_once_and_in_order(
    numbers: set[int], undecodable: set[int], page_size: int
) -> None:
    browser = MessageBrowser(FakeQueue(numbers, undecodable), page_size=page_size, timeout=5)
    assert await read(browser) == sorted(numbers - undecodable)
    assert (browser.undecodable > 0) is bool(undecodable)
    assert browser.undecodable <= len(undecodable)


async def test_a_long_run_of_undecodable_messages_is_bisected() -> None:
    queue = FakeQueue({1, 2, 5000}, set(range(3, 5000)))
    browser = MessageBrowser(queue, page_size=10, timeout=5)
    assert await read(browser) == [1, 2, 5000]
    assert browser.undecodable == 1
    assert queue.requests == 96, "64 one by one, then fewer and fewer"
    later = FakeQueue({*range(1, 21), 201}, set(range(21, 200)))
    assert await read(MessageBrowser(later, page_size=10, timeout=5)) == [*range(1, 21), 201]


async def test_a_search_for_a_readable_message_has_an_end() -> None:
    class Unreadable(FakeQueue):
        async def peek(self, *, from_sequence_number: int = 1, **_: Any) -> list[Any]:
            if from_sequence_number != 2**62:
                raise ServiceFaultError("Handler failed")
            return []

    with pytest.raises(ServiceFaultError, match="no message after sequence number 1 can be read"):
        await read(MessageBrowser(Unreadable(set(), set()), page_size=10, timeout=5))


async def test_a_queue_that_cannot_be_read_at_all_raises_instead_of_being_searched() -> None:
    queue = FakeQueue({1, 2, 3}, set())
    queue.failures = [ServiceFaultError("internal error")] * 3
    with pytest.raises(ServiceFaultError):
        await read(MessageBrowser(queue, page_size=10, timeout=5))
    assert queue.requests == 3, "one page, one message, and one request beyond the last message"


@pytest.mark.parametrize(("error", "requests"), [(ServiceFaultError("race"), 3), (EntityNotFoundError("gone"), 1)])
async def test_only_retriable_errors_are_retried(
    monkeypatch: pytest.MonkeyPatch, error: ServiceError, requests: int
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("servicebus_pair.core.sdk.message_browser.asyncio.sleep", sleep)
    queue = FakeQueue({1}, set())
    queue.failures = [error] * 3
    with pytest.raises(type(error)):
        await MessageBrowser(queue, page_size=10, timeout=5, attempts=3).page()
    assert (queue.requests, pauses) == (requests, [1, 2][: requests - 1])
