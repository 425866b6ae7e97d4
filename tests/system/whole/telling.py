"""A notifier as a deployment may have one: it writes each notice into a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import BaseNotifier

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["FileNotifier", "notices"]


class FileNotifier(BaseNotifier):
    """Appends a line to a file.

    :param path: of the file.
    :param text: the line (templated).
    """

    template_fields = ("text",)

    def __init__(self, *, path: str, text: str) -> None:
        super().__init__()
        self.path = path
        self.text = text

    def notify(self, context: Context) -> None:  # noqa: ARG002  the base class hands it over
        """Write the line."""
        with Path(self.path).open("a") as file:
            file.write(self.text + "\n")


def notices(path: Path) -> list[str]:
    """Return what was told so far, the oldest first."""
    return path.read_text().splitlines() if path.exists() else []
