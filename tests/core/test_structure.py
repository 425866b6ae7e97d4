"""Structure of the product's folders (DESIGN section 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

PROVIDER = Path(__file__).parents[2] / "provider"
FOLDERS = sorted({path.parent.relative_to(PROVIDER).as_posix() for path in PROVIDER.rglob("*.py")})
MAX_MODULES = 15


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_at_most_15_modules(folder: str) -> None:
    modules = [path.name for path in (PROVIDER / folder).glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MAX_MODULES, f"{folder} has {len(modules)} modules: move some into a package of their own"
