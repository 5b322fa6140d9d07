"""Names in the package: no filler, nothing with two meanings, and the formatter has the last word on layout."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.source_trees import FILES, PACKAGE, source_nodes, source_tree

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

FILLERS = frozenset({"found", "given", "one", "other", "own", "said", "shown", "there", "told", "wanted", "whole"})
"""Names that say nothing of what they hold. Say what it is: `matches`, `row`, `path`, `problems`."""
FILLERS_AT_MOST = 0.005
"""Share of all bindings: `other` is the customary name in `__eq__` and `__add__`."""

SAME_MEANING = frozenset({"Keys", "load", "main", "plan", "rejudge", "rescore", "run", "validate", "verify"})
"""Public names in several modules: the protocol of a task, and the public functions of `ragpipe/api.py` over them."""
SAME_FILE = frozenset({"__init__", "__main__", "settings"})
LAYOUTS_BY_HAND = 20
FUNCTION_LINES = 50


def _bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Every name that is bound by an assignment, a loop, a parameter, an exception or a pattern, with its line."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name, node.lineno


def _place(path: Path, line: int) -> str:
    return f"{path.relative_to(PACKAGE.parent)}:{line}"


def test_names_say_what_they_hold() -> None:
    bound = [(name, _place(path, line)) for path in FILES for name, line in _bindings(source_nodes(path))]
    fillers = [f"{place} {name}" for name, place in bound if name in FILLERS]
    assert len(fillers) <= FILLERS_AT_MOST * len(bound), fillers


def test_no_public_name_has_two_meanings() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.iter_child_nodes(source_tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith(
                "_"
            ):
                homes[node.name].append(_place(path, node.lineno))
    assert {name: places for name, places in homes.items() if len(places) > 1 and name not in SAME_MEANING} == {}


def test_no_file_name_is_used_twice() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        homes[path.stem].append(str(path.relative_to(PACKAGE)))
    assert {stem: paths for stem, paths in homes.items() if len(paths) > 1 and stem not in SAME_FILE} == {}


def test_the_formatter_lays_out_the_code() -> None:
    places = [
        _place(path, number)
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "# fmt: skip" in line or "# fmt: off" in line
    ]
    assert len(places) <= LAYOUTS_BY_HAND, places


def test_functions_are_short() -> None:
    functions = [
        (node.end_lineno - node.lineno + 1, f"{_place(path, node.lineno)} {node.name}")
        for path in FILES
        for node in source_nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    assert [place for length, place in functions if length > FUNCTION_LINES] == []


def test_long_parameter_lists_are_explained() -> None:
    """A public function with more than four parameters says what each of them is."""
    silent = []
    for path in FILES:
        tree = source_tree(path)
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for node in (node for scope in (tree, *classes) for node in scope.body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)} - {
                    "self",
                    "cls",
                }
                if len(names) > 4 and "Args:" not in (ast.get_docstring(node) or ""):
                    silent.append(f"{_place(path, node.lineno)} {node.name}")
    assert silent == []


def test_the_form_of_an_id_is_written_once() -> None:
    """Of a sha256 in `ragpipe.core.digest`, of a run's id in `ragpipe.store.run.run_folder`."""
    forms: dict[str, list[str]] = {"[0-9a-f]{64}": [], "[0-9a-f]{12}": []}
    for path in FILES:
        for node in source_nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip("^$") in forms:
                forms[node.value.strip("^$")].append(path.name)
    assert forms == {"[0-9a-f]{64}": ["digest.py"], "[0-9a-f]{12}": ["run_folder.py"]}
