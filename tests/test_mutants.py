"""``make mutants`` finds the tests of a module by the mirror rule, and its mutants change what code does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import ROOT, paths_of_tests, sample_mutants

MODULE = Path("provider/servicebus_pair/core/protocol/iso_duration.py")


def test_a_sample_is_reproducible_and_every_mutant_is_valid_changed_python() -> None:
    sample = sample_mutants([MODULE], count=5, seed=3)
    assert sample == sample_mutants([MODULE], count=5, seed=3)
    original = ast.dump(ast.parse((ROOT / MODULE).read_text("utf-8")))
    assert all(ast.dump(ast.parse(mutant.source)) != original for mutant in sample)


def test_a_module_without_tests_is_an_error_that_names_where_they_belong() -> None:
    with pytest.raises(ValueError, match=r"missing\.py has no tests: neither tests/core/nowhere/test_missing\.py"):
        paths_of_tests(Path("provider/servicebus_pair/core/nowhere/missing.py"))
