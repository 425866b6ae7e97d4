"""Names of the folders of runs: DAGs write reports there, and the page finds them by the ids of a run."""

from __future__ import annotations

from typing import Final

__all__ = ["RUN_FOLDER", "run_folder"]

# What Spark does not allow in names of folders, or leads out of the folder of the DAG. Reversible, because whoever
# triggers a run chooses its id: the report of another run would be replaced by one with the same name.
_ESCAPES: Final = (("~", "~7E"), ("/", "~2F"), (":", "~3A"), ("+", "~2B"), (".", "~2E"))

RUN_FOLDER: Final = "{{ dag.dag_id }}/{{ run_id" + "".join(f" | replace{each}" for each in _ESCAPES) + " }}"
"""Template of the folder of a run, below the root of the reports."""


def run_folder(run_id: str) -> str:
    """Return the name of the folder of a run in that of its DAG, as the template makes it."""
    for text, escape in _ESCAPES:
        run_id = run_id.replace(text, escape)
    return run_id
