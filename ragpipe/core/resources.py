"""The shipped `conf/` and `prompts/` folders: inside an installed package, beside it in a checkout."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED_DATA = "package:"
"""How the path of a file begins that ragpipe ships with its data."""
BESIDE_THE_FILE = "here:"
"""How a path in a YAML option begins that starts at the folder of this YAML file."""


def _shipped(name: str) -> Path:
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def conf_dir() -> Path:
    """Absolute path of the shipped Hydra options."""
    return _shipped("conf")


def prompts_dir() -> Path:
    """Absolute path of the shipped prompt templates, `<metric>/<step>.v<N>.jinja`."""
    return _shipped("prompts")


def data_path(path: str, base: Path = Path()) -> Path:
    """The file or folder of a configured path: one of ragpipe's own after `package:`, else relative to `base`."""
    is_shipped = path.startswith(SHIPPED_DATA)
    return PACKAGE / "data" / path.removeprefix(SHIPPED_DATA) if is_shipped else base / path


def placed_paths(value: Any, folder: Path) -> Any:
    """The content of a YAML file with every `here:PATH` in it as a path that can be opened: below the working directory
    relative to it, elsewhere absolute."""
    if isinstance(value, dict):
        return {name: placed_paths(item, folder) for name, item in value.items()}
    if isinstance(value, list):
        return [placed_paths(item, folder) for item in value]
    if isinstance(value, str) and value.startswith(BESIDE_THE_FILE) and (name := value.removeprefix(BESIDE_THE_FILE)):
        path = Path(os.path.normpath(folder.absolute() / name))
        here = Path.cwd()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)
    return value


@lru_cache(maxsize=1)
def code_digest() -> str:
    """The first 12 hex digits of the sha256 over ragpipe's own source and the templates of its pages: it tells two states of one version
    apart."""
    digest = hashlib.sha256()
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".yaml", ".jinja", ".js", ".css")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
