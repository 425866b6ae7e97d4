"""Every sentence about order, duplicates, loss and other versions of the SDK is held by a test, or says so no more.

So is every sentence of the operators' page that says "every" or "all".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from servicebus_pair import core

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "provider" / "servicebus_pair"
TABLE = Path(__file__).with_name("promises.txt")
NO_PROMISE = "-"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "provider" / "docs").glob("*.md")),
    ROOT / "provider" / "servicebus_emulator" / "README.md",
]
PACKAGES = ("dags", "decorators", "hooks", "notifications", "operators", "queues", "sensors", "spark/datasource")
WORDS = re.compile(
    r"\b(at least once|exactly[- ]once|once within|duplicat\w+|twice|copies|lost|loses?|losing|newer|other version"
    r"|order (is|of|across|between|within)|(in|out of|session|no|its|their|keeps?( the)?|kept|breaks?( the)?) order)\b",
    re.IGNORECASE,
)
# Of one page, beside these.
MORE_WORDS = {"provider/docs/operators.md": re.compile(r"\b(every\w*|all)\b", re.IGNORECASE)}


def public_modules() -> Iterator[Path]:
    """Yield the modules whose docstrings people read: those of public names of the core, of Airflow's and Spark's."""
    for module in sorted({getattr(getattr(core, name), "__module__", "") for name in core.__all__}):
        if module.startswith("servicebus_pair"):
            yield ROOT / "provider" / f"{module.replace('.', '/')}.py"
    yield from (PRODUCT / "core" / "model" / name for name in ("errors.py", "events.py"))
    for package in (*PACKAGES, "spark/jobs", "triggers"):
        yield from (PRODUCT / package).glob("*.py")


def docstrings(module: Path) -> str:
    nodes = ast.walk(ast.parse(module.read_text("utf-8")))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    public = [each for each in nodes if isinstance(each, documented) and not getattr(each, "name", "").startswith("_")]
    return "\n\n".join(ast.get_docstring(each) or "" for each in public)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and table rows, without headings and blocks of code."""
    prose = re.sub(r"^(```.*?^ *```|#.*?|=+[ =]*)$", "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|:\w+) )|\n(?=\|)|\n(?=\s*:\w+ \w+:)", prose):
        yield from re.split(r"(?<=[.:!?])\s+(?=[A-Z`*\[(])", " ".join(block.split()))


def concerned(text: str, more: re.Pattern[str] = WORDS) -> list[str]:
    """Return the sentences with one of the words, other than as a name in code."""
    prose = ((each, re.sub(r"`+[^`]*`+", "", each)) for each in sentences(text))
    return [each for each, plain in prose if WORDS.search(plain) or more.search(plain)]


@cache
def texts() -> dict[str, str]:
    """Return what people read, by path."""
    read = {page: page.read_text("utf-8") for page in PAGES} | {page: docstrings(page) for page in public_modules()}
    return {page.relative_to(ROOT).as_posix(): text for page, text in read.items()}


@cache
def table() -> dict[str, dict[str, list[str]]]:
    """Return the tests of each part of a sentence, by page."""
    found: dict[str, dict[str, list[str]]] = {}
    page = ""
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("["):
            page = line.strip("[]")
        elif line and not line.startswith("#"):
            part, _, tests = line.partition(" -> ")
            found.setdefault(page, {})[part] = tests.split(", ")
    return found


@cache
def names_of_tests() -> frozenset[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return frozenset(name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text("utf-8")))


@pytest.mark.parametrize("page", table())
def test_every_listed_sentence_is_there_and_its_tests_exist(page: str) -> None:
    written = [" ".join(each.split()) for each in sentences(texts()[page])]
    gone = [part for part in table()[page] if not any(part in each for each in written)]
    assert gone == [], "take these out of promises.txt, and their tests if nothing else needs them"
    named = {test for tests in table()[page].values() for test in tests} - {NO_PROMISE}
    assert sorted(named - names_of_tests()) == []


@pytest.mark.parametrize("page", texts())
def test_every_sentence_with_such_a_word_is_listed(page: str) -> None:
    listed = table().get(page, {})
    found = concerned(texts()[page], MORE_WORDS.get(page, WORDS))
    missing = [each for each in found if not any(part in each for part in listed)]
    assert missing == [], f"list these in promises.txt, below [{page}], with the tests that hold them"


def test_a_sentence_is_found_in_a_paragraph_a_list_a_table_and_a_docstring() -> None:
    page = """# Order of the parts

Nothing special. Messages are never
lost by it.

- In order, always: yes.
- The option `order` is something else.

| a | b |
|---|---|
| `x` | may come twice |

```text
lost
```
"""
    assert concerned(page) == ["Messages are never lost by it.", "- In order, always: yes.", "| `x` | may come twice |"]
