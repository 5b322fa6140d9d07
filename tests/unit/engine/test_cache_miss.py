"""What is said of a question that no run asked."""

from pathlib import Path

import pytest

from ragpipe.core.errors import DataError
from ragpipe.engine.cache_miss import explain_cache_miss


def test_a_case_without_a_question_is_named_by_the_keys_of_the_command_line() -> None:
    question = {"sample_id": "nobody", "metric": "faithfulness"}
    with pytest.raises(DataError) as caught:
        list(explain_cache_miss(Path("calls.sqlite"), [], None, 1, question, None))
    assert [problem.found for problem in caught.value.problems] == ["none for case=nobody, metric=faithfulness"]
