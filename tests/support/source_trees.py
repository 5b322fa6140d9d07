"""The package as syntax trees. A file is read when a test asks for it, once per process: not while tests are collected."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "ragpipe"
FILES = tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def source_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def source_nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(source_tree(path)))
