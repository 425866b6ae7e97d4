"""Lines of our logs: what is written of values and errors; hostile ones are in ``tests/security/test_log_lines.py``."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from servicebus_pair.core.model.logs import get_logger, guard_library_logs, printable


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    written, logger = io.StringIO(), get_logger("servicebus_pair.test_logs")
    handler = logging.StreamHandler(written)
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("template", "value", "line"),
    [
        ("%s", "plain", "plain"),
        ("%r", "plain", "'plain'"),
        ("%s", "a\nb\u202e", "a\\nb\\u202e"),
        ("%r", "a\nb", "'a\\nb'"),
        ("%r", ValueError("a\nb"), "ValueError('a\\nb')"),
        ("%5d", 7, "    7"),
        ("%.1f", 0.25, "0.2"),
        ("%s", None, "None"),
        ("%s", "SharedAccessKey=abc", "SharedAccessKey=***"),
    ],
)
def test_a_value_is_written_on_one_line_as_its_placeholder_says(
    lines: io.StringIO, template: str, value: object, line: str
) -> None:
    get_logger("servicebus_pair.test_logs").warning(template, value)
    assert lines.getvalue() == f"{line}\n"


def test_the_lines_of_an_error_are_indented_and_printable(lines: io.StringIO) -> None:
    try:
        int("first\nsecond\x1b")
    except ValueError:
        get_logger("servicebus_pair.test_logs").exception("it failed with %(reason)s", {"reason": "x"})
    first, *others = lines.getvalue().splitlines()
    assert first == "it failed with x"
    assert others[0] == "  Traceback (most recent call last):"
    assert others[-1] == r"  ValueError: invalid literal for int() with base 10: 'first\nsecond\x1b'"


def test_an_error_that_was_never_raised_is_printable(lines: io.StringIO) -> None:
    get_logger("servicebus_pair.test_logs").warning("it failed", exc_info=ValueError("first\x1b"))
    assert lines.getvalue().splitlines()[-1] == r"  ValueError: first\x1b"


def test_a_logger_has_one_filter_however_often_it_is_asked_for() -> None:
    assert get_logger("servicebus_pair.test_logs") is get_logger("servicebus_pair.test_logs")
    assert len(get_logger("servicebus_pair.test_logs").filters) == 1


def test_a_printable_text_is_left_alone() -> None:
    assert printable("Zürich → 5") == "Zürich → 5"
    assert printable("a\tb\x00c") == "a\\tb\\x00c"


def test_a_library_logs_warnings_only_unless_a_level_is_set_and_its_lines_are_masked_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "_logRecordFactory", logging.getLogRecordFactory())
    below, set_before, beside = (logging.getLogger(f"library{each}") for each in (".part", "2", "3.part"))
    set_before.setLevel(logging.DEBUG)
    guard_library_logs("library2")
    guard_library_logs("library")
    once = logging.getLogRecordFactory()
    guard_library_logs("library")
    assert logging.getLogRecordFactory() is once
    assert logging.getLogger("library").level == logging.WARNING
    assert (below.level, set_before.level, beside.level) == (logging.NOTSET, logging.DEBUG, logging.NOTSET)
    below.info("SharedAccessKey=abc")
    for each in (below, set_before, beside):
        each.warning("SharedAccessKey=abc\n%s", "x\ty")
    assert caplog.messages == [r"SharedAccessKey=***\nx\ty"] * 2 + ["SharedAccessKey=abc\nx\ty"]
