"""A custom notifier, as a deployment may have one, that writes to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier, Context


class FileNotifier(BaseNotifier):
    """Append a line to a file.

    :param text: the line; templated.
    """

    template_fields = ("text",)

    def __init__(self, *, path: str, text: str, **context: Any) -> None:
        super().__init__(**context)
        self.path = path
        self.text = text

    def notify(self, context: Context) -> None:  # noqa: ARG002  signature of the base class
        with Path(self.path).open("a") as file:
            file.write(self.text + "\n")

    async def async_notify(self, context: Context) -> None:
        self.notify(context)


def read_notices(path: Path) -> list[str]:
    """Return the notices so far, oldest first."""
    return path.read_text().splitlines() if path.exists() else []
