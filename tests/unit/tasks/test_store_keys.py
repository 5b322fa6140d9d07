"""What an action of task=store needs and does not have."""

from typing import Any

import pytest

from ragpipe.core.errors import ConfigError
from ragpipe.tasks.store import validate

FILE = "a .parquet or .jsonl file"


@pytest.mark.parametrize(
    ("words", "key", "found", "expected"),
    [
        ({"action": "export"}, "to", "nothing", FILE),
        ({"action": "export", "to": "calls.csv"}, "to", "'calls.csv'", FILE),
        ({"action": "import"}, "from", "nothing", FILE),
        ({"action": "why", "case": "q1"}, "key", "nothing", "a question"),
    ],
)
def test_a_key_that_is_missing_or_wrong(words: dict[str, Any], key: str, found: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate({"output_dir": "out", **words})
    (problem,) = caught.value.problems
    assert (problem.key, problem.found, problem.expected) == (key, found, expected)
