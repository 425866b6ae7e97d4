"""No value forges a line of our logs or discloses a secret there: every logging call, with hostile values."""

from __future__ import annotations

import ast
import gc
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from servicebus_pair.core import read_pair_settings
from servicebus_pair.core.errors import ServiceFaultError
from servicebus_pair.core.model import get_logger
from servicebus_pair.core.pair import SIDES
from servicebus_pair.core.sdk import NamespaceClient
from tests.security.canaries import CANARIES, disclosed

PACKAGE = Path(__file__).parents[2] / "provider" / "servicebus_pair"
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
FORGED = "2026-01-01 ERROR root: forged"
HOSTILE = f"a\n{FORGED}\r\x1b[2J\x00\x85\u2028\u202e{CANARIES['connection string']}"
PLACEHOLDER = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?([a-zA-Z%])")


@dataclass(frozen=True)
class LogCall:
    logger: str
    template: str
    where: str

    def values(self, hostile: object) -> tuple[object, ...]:
        kinds = [kind for kind in PLACEHOLDER.findall(self.template) if kind != "%"]
        return tuple(hostile if kind in "sr" else 7 for kind in kinds)


def log_calls() -> Iterator[LogCall]:
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=logger, attr=method)) if method in METHODS:
                    if ast.unparse(logger) not in {"_log", "self.log", "self._log", "log", "logger"}:
                        continue
                case _:
                    continue
            template = node.args[1 if method == "log" else 0]
            # One that is passed on is as hostile as its values.
            text = template.value if isinstance(template, ast.Constant) else "%s"
            yield LogCall(module, str(text), f"{module}:{node.lineno}")


@pytest.fixture(scope="module")
def calls() -> list[LogCall]:
    # Python 3.11 fails to build a syntax tree if its collector runs code that builds one, too.
    gc.disable()
    try:
        return list(log_calls())
    finally:
        gc.enable()


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, package = Lines(), logging.getLogger("servicebus_pair")
    level, propagate = package.level, package.propagate
    package.addHandler(handler)
    package.setLevel(logging.DEBUG)
    package.propagate = False
    yield handler
    package.removeHandler(handler)
    package.setLevel(level)
    package.propagate = propagate


@pytest.mark.parametrize("hostile", [HOSTILE, ServiceFaultError(HOSTILE), Path(HOSTILE)], ids=["text", "error", "path"])
def test_no_logging_call_writes_a_line_of_somebody_else(lines: Lines, calls: list[LogCall], hostile: Any):
    for call in calls:
        get_logger(call.logger).info(call.template, *call.values(hostile))

    assert len(calls) > 100
    bad = [text for text in lines.texts if not text.isprintable() or disclosed(text)]
    assert bad == []
    assert any("forged" in text for text in lines.texts)


class OwnTracebacks(logging.Formatter):
    """A formatter that makes texts of errors itself, as Airflow's."""

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None
        return super().format(record)


@pytest.mark.parametrize("formatter", [logging.Formatter, OwnTracebacks])
def test_an_error_behind_a_line_forges_none_and_discloses_nothing(lines: Lines, formatter: type[logging.Formatter]):
    lines.setFormatter(formatter("%(levelname)s %(name)s: %(message)s"))
    try:
        int(HOSTILE)
    except ValueError:
        get_logger("servicebus_pair.core").exception("a ping failed: %r", HOSTILE)

    first, *others = lines.texts[0].splitlines()
    assert first.startswith("ERROR servicebus_pair.core: a ping failed: 'a\\n2026")
    assert all(line.startswith("  ") and line.isprintable() for line in others)
    assert "forged" in "".join(others)
    assert not disclosed(lines.texts[0])


def test_lines_of_the_sdk_disclose_nothing_outside_of_airflow_either(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    azure, module = logging.getLogger("azure"), logging.getLogger("azure.servicebus._pyamqp._connection")
    level = azure.level
    try:
        azure.setLevel(logging.NOTSET)
        both = {f"{side}_connection_string": CANARIES["connection string"].replace("contoso", side) for side in SIDES}
        NamespaceClient(read_pair_settings(both).primary)
        assert (module.getEffectiveLevel(), logging.getLogger("azureish").getEffectiveLevel()) == (30, 10)
        azure.setLevel(logging.DEBUG)
        # As of a credential, whose module is imported when it is needed.
        later = logging.getLogger(f"azure.identity.{uuid4().hex}")
        for made in (module, later):
            for text in filter(lambda each: isinstance(each, str), CANARIES.values()):
                made.debug(f"-> {text}\n{FORGED}")
                made.debug("-> %r %s", [text.encode()], {"token": text}, exc_info=ValueError(text))
    finally:
        azure.setLevel(level)

    assert len(caplog.records) >= 4 * len(CANARIES) - 8
    assert not disclosed(caplog.text)
    messages = "\n".join(caplog.messages).splitlines()
    assert [line for line in messages if disclosed(line) or not line.isprintable()] == []
    assert FORGED not in messages


def test_every_module_logs_with_safe_values():
    loggers = [
        (path.name, line.strip())
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text().splitlines()
        if "logging.getLogger(" in line or "structlog" in line
    ]

    # That of a library, which gets a level, and that of the package, which gets a handler.
    assert sorted(loggers) == [
        ("drain_task.py", 'logger = logging.getLogger("servicebus_pair")'),
        ("logs.py", "library = logging.getLogger(name)"),
        ("logs.py", "logger = logging.getLogger(name)"),
    ]
