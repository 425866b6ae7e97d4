"""Mutates modules, one change at a time, and reports the mutants that the tests of their own room do not notice.

``python -m tests.mutants PATH... [--count 50] [--seed 1] [--jobs 2]``. The mutants come from cosmic-ray. A sample is
drawn at random, reproducibly. The tests of ``core/syphon/policies/link_pool.py`` are, in this order,
``tests/core/syphon/policies/test_link_pool.py``, the folder of that, and all of the room, ``tests/core/syphon``:
without those that are ``slow``, and with as many examples of each property as ``make test-all`` draws. Work is done in
copies of the project.

Left out are mutants that cannot change what a program does: those of annotations, of what is imported for the type
checker only, and of the markers in a signature that an operator takes for operators.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue
from typing import Final

from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-untyped]
from cosmic_ray.mutating import MutationVisitor  # type: ignore[import-untyped]
from cosmic_ray.plugins import get_operator, operator_names  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).parents[1]
_COPIED: Final = ("dags", "plugins", "provider", "pyproject.toml", "tests", "README.md", "constraints.txt")
# Each of these is either noticed by the type checker or equivalent to the original far too often: the sum of flags is
# what ``|`` makes of them, and sets have no sum.
_LEFT_OUT: Final = (
    *("_Is", "Is_", "VariableReplacer", "VariableInserter", "Invert", "UAdd", "Pow", "Shift", "BitXor", "BitOr_Add"),
)
_TIMEOUT_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Mutant:
    module: Path
    operator: str
    source: str
    diff: str


def sample_mutants(modules: Sequence[Path], *, count: int, seed: int) -> list[Mutant]:
    """Return mutants that change what a module does at run time, drawn at random from all of them."""
    candidates = [(module, *mutation) for module in modules for mutation in _mutations(module)]
    random.Random(seed).shuffle(candidates)  # noqa: S311 - no secret
    drawn = (_mutant(*candidate) for candidate in candidates)
    return list(islice((mutant for mutant in drawn if mutant is not None), count))


def _mutations(module: Path) -> Iterator[tuple[str, int]]:
    nodes = list(ast_nodes(get_ast((ROOT / module).read_text("utf-8"))))
    for name in operator_names():
        if not any(part in name for part in _LEFT_OUT):
            operator = get_operator(name)()
            positions = sum(1 for node in nodes for _ in operator.mutation_positions(node))
            yield from ((name, occurrence) for occurrence in range(positions))


def _mutant(module: Path, name: str, occurrence: int) -> Mutant | None:
    source = (ROOT / module).read_text("utf-8")
    try:
        changed = MutationVisitor.mutate_code(source, get_operator(name)(), occurrence)
        if changed is None or _behaviour(changed) == _behaviour(source):
            return None
    except (SyntaxError, AttributeError):  # the latter: cosmic-ray cannot replace an exception with a dotted name
        return None
    diff = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
    return Mutant(module, name.rpartition("/")[2], changed, "\n".join(list(diff)[2:]))


def _behaviour(source: str) -> str:
    """Return the syntax tree as text, without what has no effect: ``from __future__`` makes annotations inert."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            # An operator may take the markers in a signature for operators: the order of parameters is all that counts.
            parameters = node.args
            parameters.kwonlyargs = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]
            parameters.defaults += [each for each in parameters.kw_defaults if each is not None]
            parameters.posonlyargs, parameters.args, parameters.kw_defaults = [], [], []
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.test = ast.Constant(None)
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def paths_of_tests(module: Path) -> list[Path]:
    """Return the tests of a module, the fastest to fail first.

    :raises ValueError: the module's room has no tests.
    """
    package, *rooms, file = module.relative_to("provider").parts
    top = {"servicebus_emulator": ["emulator"], "servicebus_pair": [], "pyspark_servicebus": ["spark"]}[package]
    if package == "servicebus_pair" and (not rooms or rooms[0] not in {"core", "spark"}):
        top = ["airflow"]
    folder = Path("tests", *top, *rooms)
    room = Path("tests", *top, *rooms[:2])
    paths = dict.fromkeys((folder / f"test_{file}", folder, room))
    found = [path for path in paths if (ROOT / path).exists()]
    if not found:
        raise ValueError(f"{module} has no tests: neither {folder / f'test_{file}'} nor {folder} exists")
    return found


def _is_noticed(mutant: Mutant, copy: Path) -> bool:
    path = copy / mutant.module
    before = path.read_text("utf-8")
    path.write_text(mutant.source, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy / "provider"), "THOROUGH": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        for tests in paths_of_tests(mutant.module):
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-x",
                "-p",
                "no:cacheprovider",
                "-m",
                "not slow",
                str(tests),
            ]
            with suppress(subprocess.TimeoutExpired):
                ended = subprocess.run(
                    command, cwd=copy, env=environment, capture_output=True, check=False, timeout=_TIMEOUT_SECONDS
                )
                if ended.returncode == 0:
                    continue
            return True
        return False
    finally:
        path.write_text(before, "utf-8")


def _copy(target: Path) -> Path:
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target / name)
    # Valid by the hash of their source, which a mutant changes within one second and without changing its size.
    compileall.compile_dir(target, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return target


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("paths", nargs="+", type=Path, help="modules or folders below provider/")
    parser.add_argument("--count", type=int, default=50, help="how many mutants to try; default 50")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample; default 1")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at the same time; default 2")
    options = parser.parse_args(arguments)
    modules = sorted({each for path in options.paths for each in ([path] if path.suffix else path.rglob("*.py"))})
    sample = sample_mutants(modules, count=options.count, seed=options.seed)
    print(f"{len(modules)} modules, trying {len(sample)} mutants (seed {options.seed})", flush=True)
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            (Path(folder) / str(number)).mkdir()
            copies.put(_copy(Path(folder) / str(number)))

        def attempt(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                return _is_noticed(mutant, copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(options.jobs) as pool:
            for number, (mutant, noticed) in enumerate(zip(sample, pool.map(attempt, sample), strict=True), 1):
                if not noticed:
                    missed += 1
                    print(f"MISSED {mutant.module} ({mutant.operator})\n{mutant.diff}", flush=True)
                print(f"{number} of {len(sample)}: {number - missed} noticed", flush=True)
    print(f"noticed {len(sample) - missed} of {len(sample)} ({1 - missed / max(len(sample), 1):.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
