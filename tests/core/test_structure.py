"""Structure of the product's folders (DESIGN section 2)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

PROVIDER = Path(__file__).parents[2] / "provider"
MODULES = sorted(path.relative_to(PROVIDER).as_posix() for path in PROVIDER.rglob("*.py"))
MAX_MODULES = 15
MAX_LINES = 400
# These may only become shorter.
LONGER = {
    "servicebus_emulator/engine/queue/queue.py": 440,
}


def test_a_folder_has_at_most_15_modules() -> None:
    """A folder with more has some which belong in a package of their own."""
    folders = Counter(Path(module).parent for module in MODULES if Path(module).name != "__init__.py")
    assert {folder: count for folder, count in folders.items() if count > MAX_MODULES} == {}


def test_a_module_has_at_most_400_lines() -> None:
    """One idea to a module, in 100 to 300 lines (DESIGN section 5, rule 1)."""
    lines = {module: len((PROVIDER / module).read_text("utf-8").splitlines()) for module in MODULES}
    assert {module: count for module, count in lines.items() if count > LONGER.get(module, MAX_LINES)} == {}
