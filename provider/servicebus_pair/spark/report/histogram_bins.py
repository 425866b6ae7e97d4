"""Histogram bins for ages, sizes and waits, computed by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses


def bin_index(column: str, bounds: Mapping[str, int]) -> Column:
    """Return the index of a value's bin, from 0.

    :param bounds: exclusive upper bound of each bin by its label, ascending; one more bin is open-ended.
    """
    return reduce(add, ((F.col(column) >= bound).cast("int") for bound in bounds.values()))


def bin_labels(bounds: Mapping[str, int]) -> list[str]:
    """Return the labels of all bins, including the open-ended one."""
    labels = list(bounds)
    between = (f"{lower} to {upper}" for lower, upper in pairwise(labels))
    return [f"under {labels[0]}", *between, f"{labels[-1]} and more"]
