"""Messages about measured slices: what arrives is what was sent."""

import json

import pytest

from ragpipe.core.errors import RagpipeError
from ragpipe.extras.ray.messages import HEAD, WorkerFailure, failure_message, measured_message, measured_of
from ragpipe.runs.case_measuring import MeasuredSlice, Slice
from ragpipe.runs.table_rows import PackedInputs
from ragpipe.store.table_rows import SCORES, table_from

ROW = {
    "sample_id": "a", "method": "m", "repeat": 1, "iteration": 1, "metric": "x", "score_name": "x", "value": 0.1,
    "status": "ok", "reason": None, "details": None, "calls": ["k"],
}  # fmt: skip
TABLE = table_from({name: [ROW[name]] * 3 for name in SCORES.names}, SCORES)
LINES = '{"sample_id": "é"}\n{"sample_id": "\u2028"}\n'.encode()


def arrived(message):
    size, rest = HEAD.unpack_from(message)
    values, content = message[HEAD.size : HEAD.size + size], message[HEAD.size + size :]
    assert len(content) == rest
    return measured_of(json.loads(values), content)


@pytest.mark.parametrize("asked", [[], [PackedInputs((), 0, b"ab"), PackedInputs((("x", 1),), 4, b"c")]])
def test_a_slice_arrives_as_it_was_measured(asked):
    sent = MeasuredSlice(2, LINES, 1, [["timeout", "other"]], TABLE, asked)
    assert arrived(measured_message(sent, Slice(0, 0, 2))) == sent


def test_a_failure_keeps_its_exit_code():
    error = RagpipeError("no key")
    error.exit_code = 2
    with pytest.raises(WorkerFailure, match="no key") as caught:
        arrived(failure_message(error, Slice(0, 0, 2)))
    assert caught.value.exit_code == 2
    with pytest.raises(WorkerFailure, match="rows 0 to 1 of block 0: ZeroDivisionError: boom"):
        arrived(failure_message(ZeroDivisionError("boom"), Slice(0, 0, 2)))
