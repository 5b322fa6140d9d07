"""The files of a detector: where they stand, what their hashes are, and how to get them. Nothing is downloaded here."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from ragpipe.core.digest import sha256_file

WEIGHTS, TOKENIZER, ARCHITECTURE = "model.safetensors", "tokenizer.json", "config.json"
FILES = {"weights": WEIGHTS, "tokenizer": TOKENIZER, "architecture": ARCHITECTURE}
"""The files by the setting that holds their hash."""
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,95}/[A-Za-z0-9][A-Za-z0-9._\-]{0,95}\Z")
COMMIT = re.compile(r"[0-9a-f]{40}\Z")


def hub_cache() -> Path:
    """The folder in which the Hugging Face tools keep downloaded files, by their own environment variables."""
    variables = os.environ
    if folder := variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE"):
        return Path(folder).expanduser()
    if home := variables.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    return Path(variables.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def cached_commit(model: str) -> str | None:
    """The commit that the cache has as the newest (`main`) of a published model; None where it has none."""
    if not MODEL_NAME.match(model):
        return None
    reference = _cached(model) / "refs" / "main"
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else ""
    return commit if COMMIT.match(commit) else None


def cached_folder(model: str, commit: str) -> Path | None:
    """The folder of a published model's files at a commit; None where the cache does not have it."""
    if not (MODEL_NAME.match(model) and COMMIT.match(commit)):
        return None
    folder = _cached(model) / "snapshots" / commit
    return folder if folder.is_dir() else None


def _cached(model: str) -> Path:
    return hub_cache() / f"models--{model.replace('/', '--')}"


def fetch_command(model: str, commit: str | None, *files: str) -> str:
    """The command that brings a published model's files into the cache."""
    names = "".join(f" {name}" for name in files)
    return f"hf download {model}{names}{f' --revision {commit}' if commit else ''}"


def hash_once(path: Path) -> str | None:
    """sha256 of a file, None where there is none. A file that did not change is read once per process: weights are large."""
    try:
        state = path.stat()
    except OSError:
        return None
    return _hash(path, state.st_size, state.st_mtime_ns) if path.is_file() else None


@lru_cache(maxsize=64)
def _hash(path: Path, size: int, changed: int) -> str:
    return sha256_file(path)
