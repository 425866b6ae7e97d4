"""What azure-servicebus leaves behind."""

from __future__ import annotations

import gc
import warnings

__all__ = ["collect_leaks"]


def collect_leaks() -> None:
    """The client leaves the socket of a connection that broke to the garbage collector, which warns of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    # What has survived stays: to look through all of an imported Airflow again costs a third of a second each time.
    gc.freeze()
