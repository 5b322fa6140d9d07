import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.resources import PACKAGE
from ragpipe.data.dataset import Dataset, Record, open_dataset
from ragpipe.data.settings import DatasetSettings

DATA = Path(os.environ.get("RAGPIPE_DATA", PACKAGE.parent / ".." / "shared" / "data"))


@pytest.fixture
def open_file(tmp_path: Path) -> Callable[..., Dataset]:
    """Write files and open the first of them (or the folder, with `files`) as a data set."""

    def opened(contents: dict[str, str | bytes], **settings: Any) -> Dataset:
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        path = "." if "files" in settings else next(iter(contents))
        return open_dataset(DatasetSettings(path=path, **settings), tmp_path)

    return opened


@pytest.fixture
def read_file(open_file: Callable[..., Dataset]) -> Callable[..., list[Record]]:
    return lambda contents, **settings: list(open_file(contents, **settings))


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """The path of a folder of the real data; the test is skipped where it is absent."""

    def found(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"no {name} in RAGPIPE_DATA")
        return path.resolve()

    return found
