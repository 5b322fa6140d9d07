"""A word may name a device or a pipe: files are regular and bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ragpipe.comparing.judge_drift import read_drift_record
from ragpipe.core.errors import DataError, RagpipeError
from ragpipe.core.named_files import named_bytes, named_text
from ragpipe.core.yaml_files import yaml_text
from ragpipe.prompting.template_files import read_text
from ragpipe.scoring.calibration_file import read_calibration
from ragpipe.store.calls.recorded_replies import read_recorded_file


@pytest.fixture(params=["/dev/zero", "fifo"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param != "fifo":
        return Path(request.param)
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.mark.parametrize("read", [read_recorded_file, read_calibration, read_drift_record, read_text])
def test_a_file_without_an_end_is_refused(endless: Path, read) -> None:
    with pytest.raises(RagpipeError, match="not a regular file"):
        read(endless)


def test_so_is_a_configuration(endless: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        yaml_text(endless)


def test_a_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\r\nb\xc3\xa9")
    assert (named_bytes(path, 6), named_text(path)) == (b"a\r\nb\xc3\xa9", "a\nb\u00e9")
    with pytest.raises(OSError, match="more than 5 bytes"):
        named_bytes(path, 5)
    with pytest.raises(DataError, match="recorded replies cannot be used"):
        read_recorded_file(tmp_path)
