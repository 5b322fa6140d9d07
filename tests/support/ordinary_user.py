"""A user whom permissions stop: root reads everything."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_NOBODY = 65534


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Inside, this process has the permissions of an ordinary user. Skips the test where a root may not give up its own."""
    if os.name != "posix":
        pytest.skip("permissions of POSIX")
    if os.geteuid() != 0:
        yield
        return
    try:
        os.seteuid(_NOBODY)
    except OSError:
        pytest.skip("this root may not become another user")
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """A folder that every user may enter, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="ragpipe-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for path, _, _ in os.walk(folder):
            os.chmod(path, 0o700)
        shutil.rmtree(folder)
