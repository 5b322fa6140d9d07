"""Errors in code of the user's: told by file and line, and never taken for a bug of ragpipe."""

import importlib.util
import os
from pathlib import Path

import pytest

from ragpipe.comparison.run_differences import read_drift_record
from ragpipe.core.digest import name_digest, sha256
from ragpipe.core.errors import ConfigError, DataError, Problem, RagpipeError, user_fault
from ragpipe.core.usage import Usage, UsageSum
from ragpipe.core.yaml_files import named_bytes, named_text, yaml_text
from ragpipe.judge.prompt import read_text
from ragpipe.score.calibration_file import read_calibration
from ragpipe.store.recorded_replies import read_recorded_file

CODE = "import json\n\ndef grade(text):\n    return helper(text)\n\ndef helper(text):\n    return lenght(text)\n\n"
CODE += "def parse(text):\n    return json.loads(text)\n"


@pytest.fixture
def plugin(here):
    (here / "plug.py").write_text(CODE)
    spec = importlib.util.spec_from_file_location("plug", here / "plug.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raised(work, *args):
    """What the call raises, without the frame of this test: that is a file of the user's too."""
    try:
        work(*args)
    except Exception as error:
        return error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
    raise AssertionError("nothing was raised")


def test_a_typo_in_a_metric_names_file_and_line(plugin):
    error = RagpipeError("metric mine on case q/default: NameError: name 'lenght' is not defined\n    the run stops")
    error.__cause__ = raised(plugin.grade, "x")
    assert user_fault(error).splitlines() == [
        "metric mine on case q/default: NameError: name 'lenght' is not defined",
        "  plug.py:4, in grade",
        "    return helper(text)",
        "  plug.py:7, in helper",
        "    return lenght(text)",
        "this is a fault in your own code, at plug.py:7",
        "fix: correct it; the same command then goes on. Or: on_metric_error=record keeps such an error as the result of its "
        "case, and the run goes on",
    ]


def test_an_error_below_the_users_code_is_told_where_that_called(plugin):
    text = user_fault(raised(plugin.parse, "{"))
    assert text.splitlines()[0].startswith("JSONDecodeError: ")
    assert text.splitlines()[-1] == "this is a fault in your own code, at plug.py:10"


def test_an_error_of_ragpipe_and_what_is_refused_are_no_faults_of_the_users_code(plugin):
    """One is raised inside the package, with no file of the user's on the way; the other says what is wrong itself."""
    assert user_fault(raised(sha256, object())) == ""
    error = ConfigError("wrong", [Problem("a", "b", "c", "d")])
    error.__cause__ = raised(plugin.grade, "x")
    assert user_fault(error) == ""


def test_borders_between_texts_count():
    assert len({name_digest("ab", "c"), name_digest("a", "bc"), name_digest("abc"), name_digest("ab", "c", "")}) == 4


def test_many_prices_are_added_exactly():
    assert Usage.sum([Usage(calls=1, usd_known=0.1)] * 10) == Usage(calls=10, usd_known=1.0)
    total = UsageSum()
    total.add_batch(Usage(calls=9, replies=9, usd_known=99.0), [0.1] * 9)  # the prices alone count
    total.add(Usage(calls=1, replies=1, usd_known=0.1))
    assert total.total() == Usage(calls=10, replies=10, usd_known=1.0)


@pytest.fixture(params=["/dev/zero", "fifo"])
def endless(request, tmp_path):
    if request.param != "fifo":
        return Path(request.param)
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.mark.parametrize("read", [read_recorded_file, read_calibration, read_drift_record, read_text, yaml_text])
def test_a_file_without_an_end_is_refused(endless, read):
    with pytest.raises(OSError if read is yaml_text else RagpipeError, match="not a regular file"):
        read(endless)


def test_a_file_is_read_up_to_a_size(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"a\r\nb\xc3\xa9")
    assert (named_bytes(path, 6), named_text(path)) == (b"a\r\nb\xc3\xa9", "a\nb\u00e9")
    with pytest.raises(OSError, match="more than 5 bytes"):
        named_bytes(path, 5)
    with pytest.raises(DataError, match="recorded replies cannot be used"):
        read_recorded_file(tmp_path)
