"""Keeps message bodies out of Airflow's rendered templates, which are stored and displayed."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

__all__ = ["Redacted"]


class Redacted:
    """Wraps a rendered field that holds message bodies; its text form shows at most their number.

    :param value: the rendered value.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def wrap(cls, value: Any) -> Redacted | None:
        """Wrap ``value``, unless it is ``None`` or already wrapped."""
        return value if value is None or isinstance(value, cls) else cls(value)

    @staticmethod
    def unwrap(value: Any) -> Any:
        """Return the wrapped value, or ``value`` itself when it was not rendered."""
        return value.value if isinstance(value, Redacted) else value

    def serialize(self) -> str:
        """Return what Airflow stores."""
        return repr(self)

    def __repr__(self) -> str:
        is_list = isinstance(self.value, Sized) and not isinstance(self.value, str | bytes)
        return f"{len(self.value)} messages, not shown" if is_list else "not shown"
