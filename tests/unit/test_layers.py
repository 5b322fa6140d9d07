"""The rooms of the package, read from the syntax trees: imports point down only, and never in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.source_trees import FILES, PACKAGE, source_nodes, source_tree

ROOMS = (
    "core", "stats", "store", "judge", "data", "metrics", "score", "comparison", "calibration", "report", "runs", "cli", "__main__",
    "testing", "example_rag", "extras",
)  # fmt: skip
"""From the bottom to the top: a room imports from rooms that stand before it, and from itself. So nothing imports an extra."""
FLOORS = {room: floor for floor, room in enumerate(ROOMS)}
HYDRA = {"__main__", "cli"}
ALLOWED_LITELLM = 2
ASKING = ("attempts", "http", "litellm_client", "live_transport", "provider_state", "session")
"""The modules of the judge's room that send questions."""


def _modules() -> dict[str, Path]:
    found = {}
    for path in FILES:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def _tree(module: str) -> ast.Module:
    return source_tree(MODULES[module])


def _nodes(module: str) -> tuple[ast.AST, ...]:
    return source_nodes(MODULES[module])


def _imported(node: ast.AST, module: str) -> list[str]:
    """Dotted names that an import statement brings in; `from a import b` is a.b where that is a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *([base] if base else [])])
        return [f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names]
    return []


@cache
def _typing_only(module: str) -> set[ast.AST]:
    blocks = [n for n in _nodes(module) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    return {inner for block in blocks for child in block.body for inner in ast.walk(child)}


@cache
def imports(module: str, *, typing: bool = True) -> frozenset[str]:
    """All that a module imports anywhere in it, in functions too."""
    skip = set() if typing else _typing_only(module)
    return frozenset(name for node in _nodes(module) if node not in skip for name in _imported(node, module))


def at_import(module: str) -> frozenset[str]:
    """What is imported when the module is: not in functions, not for type checkers."""
    inside = {n for f in _nodes(module) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) for n in ast.walk(f)}
    inside |= _typing_only(module)
    return frozenset(name for node in _nodes(module) if node not in inside for name in _imported(node, module))


def _part(module: str) -> str:
    return module.split(".")[1]


INNER = [m for m in MODULES if m != "ragpipe"]


def _wrong_imports(module: str) -> Iterator[str]:
    room = _part(module)
    if room not in FLOORS:
        yield f"{module} is in no room of ROOMS: add it where what it imports lies before it"
        return
    for name in imports(module):
        if name == "ragpipe" and room != "__main__":
            yield f"{module} imports ragpipe itself, the public face: import from the room that has it"
        elif name.startswith("ragpipe.") and FLOORS[_part(name)] > FLOORS[room]:
            yield f"{module} imports {name}, which is above it: {room} comes before {_part(name)} in ROOMS"


def test_imports_point_down() -> None:
    assert len(INNER) > 300
    assert [problem for module in INNER for problem in _wrong_imports(module)] == []


MOST_IMPORTS = 20
"""Modules of ours that one may import: what needs more is a hub, which is two nouns."""


def test_no_module_is_a_hub() -> None:
    ours = {m: {name for name in at_import(m) if name.startswith("ragpipe.")} for m in INNER if _part(m) != "extras"}
    assert {module: len(names) for module, names in ours.items() if len(names) > MOST_IMPORTS} == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    below = {module: (imports(module) & MODULES.keys()) - {module} for module in MODULES}
    TopologicalSorter(below).prepare()  # a CycleError names the modules


def test_metrics_know_no_store_and_no_transport() -> None:
    for module in INNER:
        if _part(module) == "metrics":
            bad = [n for n in imports(module) if n.startswith(("ragpipe.store", *(f"ragpipe.judge.{name}" for name in ASKING)))]
            assert not bad, f"{module} imports {bad}"


@pytest.mark.parametrize("part", ["score", "stats", "comparison", "calibration", "report"])
def test_numbers_and_pages_cannot_reach_a_judge(part: str) -> None:
    reached, todo = set(), [m for m in INNER if _part(m) == part]
    while todo:
        module = todo.pop()
        if module in reached or module not in MODULES:
            continue
        reached.add(module)
        todo += [n for n in imports(module, typing=False) if n.startswith("ragpipe.")]
    assert not [m for m in reached if m.startswith("ragpipe.judge")]


EXTRAS = sorted({".".join(module.split(".")[:3]) for module in INNER if module.startswith("ragpipe.extras.")})


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_lists_what_it_brings_without_importing_it(extra: str) -> None:
    assert imports(extra) <= {"__future__"}


def test_hydra_lives_in_the_top_floor_only() -> None:
    for module in INNER:
        if _part(module) not in HYDRA:
            bad = [n for n in imports(module) if n.split(".")[0] in ("hydra", "omegaconf")]
            assert not bad, f"{module} imports {bad}"


def test_litellm_is_imported_in_two_files_inside_functions() -> None:
    users = [m for m in INNER if any(n.split(".")[0] == "litellm" for n in imports(m, typing=False))]
    assert len(users) <= ALLOWED_LITELLM, users
    assert all(_part(m) == "judge" for m in users)
    assert not [m for m in users if any(n.split(".")[0] == "litellm" for n in at_import(m))]


def test_nothing_heavy_is_imported_with_a_module() -> None:
    heavy = {"litellm", "pandas", "scipy", "torch", "openai", "sklearn"}
    found = {m: sorted({n.split(".")[0] for n in at_import(m)} & heavy) for m in INNER}
    assert not {m: names for m, names in found.items() if names}


def test_nothing_is_called_by_the_configuration() -> None:
    for module in INNER:
        names = {n.id for n in _nodes(module) if isinstance(n, ast.Name)}
        names |= {n.attr for n in _nodes(module) if isinstance(n, ast.Attribute)}
        names |= {alias.name for n in _nodes(module) if isinstance(n, ast.ImportFrom) for alias in n.names}
        assert "instantiate" not in names, module
        assert not {"pickle", "dill", "cloudpickle", "marshal", "shelve"} & {n.split(".")[0] for n in imports(module)}, module
        assert not {"unsafe_load", "full_load", "UnsafeLoader", "FullLoader"} & names, module


@pytest.mark.slow
def test_config_and_validation_stay_light() -> None:
    code = ("import sys, ragpipe.runs.validation; "
            "print([m for m in ('litellm', 'pandas', 'scipy', 'hydra', 'rich', 'aiohttp') if m in sys.modules])")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
