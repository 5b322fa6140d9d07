import subprocess
import sys

import pytest

import ragpipe
from ragpipe.cli.command_line import main


def test_a_process_is_refused() -> None:
    with pytest.raises(pytest.fail.Exception, match="belongs in tests/slow"):
        subprocess.run([sys.executable, "-V"])


def test_a_run_is_refused() -> None:
    with pytest.raises(pytest.fail.Exception, match="belongs in tests/integration"):
        main(["--version"])
    with pytest.raises(pytest.fail.Exception, match="belongs in tests/integration"):
        ragpipe.run("+experiment=quickstart")
