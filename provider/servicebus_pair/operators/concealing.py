"""Rendered values that are not for Airflow's page of rendered templates, which keeps what it shows."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

__all__ = ["Concealed"]


class Concealed:
    """Stands in for a rendered field that holds bodies of messages; it tells their number at most.

    :param value: the rendered value.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def around(cls, value: Any) -> Concealed | None:
        """Conceal ``value``, unless it is nothing or concealed already."""
        return value if value is None or isinstance(value, cls) else cls(value)

    @staticmethod
    def reveal(value: Any) -> Any:
        """Answer what is concealed, or ``value`` itself where nothing was rendered."""
        return value.value if isinstance(value, Concealed) else value

    def serialize(self) -> str:
        """Tell Airflow what to keep of it."""
        return repr(self)

    def __repr__(self) -> str:
        counted = isinstance(self.value, Sized) and not isinstance(self.value, str | bytes)
        return f"{len(self.value)} messages, not shown" if counted else "not shown"
