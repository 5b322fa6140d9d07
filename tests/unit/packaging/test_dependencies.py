"""What the package declares: its dependencies and its version."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

import ragpipe

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.slow
def test_only_what_is_declared_is_imported() -> None:
    """Every third-party import of the package stands among its dependencies or extras (names that differ are listed)."""
    names = {"hydra": "hydra-core", "yaml": "pyyaml", "json_repair": "json-repair", "pydantic_core": "pydantic"}
    names |= {"sentence_transformers": "sentence-transformers", "markdown_it": "markdown-it-py"}
    names |= {"huggingface_hub": "huggingface-hub"}
    extras = (PROJECT["optional-dependencies"][extra] for extra in ("models", "objects", "postgres", "ray"))
    wanted = [*PROJECT["dependencies"], *(one for extra in extras for one in extra)]
    declared = {re.split(r"[><=\[]", d)[0].strip().lower() for d in wanted}
    found: dict[str, str] = {}
    for path in (ROOT / "ragpipe").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            else:
                continue
            for module in modules:
                top = module.split(".")[0]
                if top != "ragpipe" and top not in sys.stdlib_module_names:
                    found[names.get(top, top).lower()] = str(path.relative_to(ROOT))
    assert {name: path for name, path in found.items() if name not in declared} == {}


def test_one_version() -> None:
    assert ragpipe.__version__ == PROJECT["version"]


@pytest.mark.parametrize("folder", ["ragpipe", "conf", "docs"])
def test_nobody_is_sent_to_the_package_of_that_name_on_an_index(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yaml", ".md")]
    assert [path.name for path in files if "'ragpipe[" in path.read_text(encoding="utf-8")] == []
