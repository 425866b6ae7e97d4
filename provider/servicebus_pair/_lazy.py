"""Lazy package exports (PEP 562), so that parsing a DAG file does not load the Azure SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(package: str, exports: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a module ``__getattr__`` that imports each exported name on first use.

    :param package: the package's ``__name__``.
    :param exports: names by the submodule that defines them.
    """
    submodules = {name: submodule for submodule, names in exports.items() for name in names}

    def __getattr__(name: str) -> Any:  # noqa: N807  the name that PEP 562 gives it
        if name not in submodules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{submodules[name]}"), name)

    return __getattr__
