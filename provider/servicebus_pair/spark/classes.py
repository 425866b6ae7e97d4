"""Classes of ages, sizes and waits: numbers put into few classes by Spark, for tables and plots."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

__all__ = ["class_names", "class_of"]


def class_of(column: str, bounds: Mapping[str, int]) -> Column:
    """Answer the number of a value's class, from 0.

    :param bounds: what a class ends before, by its name, ascending; there is one more class after the last.
    """
    return reduce(add, ((F.col(column) >= bound).cast("int") for bound in bounds.values()))


def class_names(bounds: Mapping[str, int]) -> list[str]:
    """Answer what the classes are called, the last one too."""
    names = list(bounds)
    between = (f"{lower} to {upper}" for lower, upper in pairwise(names))
    return [f"under {names[0]}", *between, f"{names[-1]} and more"]
