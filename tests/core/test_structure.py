"""Structure of the product's folders (DESIGN section 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

PROVIDER = Path(__file__).parents[2] / "provider"
FOLDERS = sorted({path.parent.relative_to(PROVIDER).as_posix() for path in PROVIDER.rglob("*.py")})
MODULES = sorted(path.relative_to(PROVIDER).as_posix() for path in PROVIDER.rglob("*.py"))
MAX_MODULES = 15
MAX_LINES = 400
# These may only become shorter.
LONGER = {
    "servicebus_emulator/engine/queue/queue.py": 440,
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_at_most_15_modules(folder: str) -> None:
    modules = [path.name for path in (PROVIDER / folder).glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MAX_MODULES, f"{folder} has {len(modules)} modules: move some into a package of their own"


def test_a_module_has_at_most_400_lines() -> None:
    """One idea to a module, in 100 to 300 lines (DESIGN section 5, rule 1)."""
    lines = {module: len((PROVIDER / module).read_text("utf-8").splitlines()) for module in MODULES}
    assert {module: count for module, count in lines.items() if count > LONGER.get(module, MAX_LINES)} == {}
