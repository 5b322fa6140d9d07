"""A process killed at every stage of a batch, and the next one: no question is in two batches, no reply is lost or paid twice."""

import json
import signal
import subprocess
import sys
from collections import Counter

import pytest

from ragpipe.store.call_store import paid_by
from ragpipe.testing.openai_server import running
from tests.extras.batch.batch_asker import RUN, follow_up, texts_of
from tests.extras.batch.batch_server import BatchServer
from tests.support.asking import question
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow
COUNT = 3
MODELS = {"openai": "openai/test-model-2024-07-18", "anthropic": "anthropic/claude-3-5-haiku-20241022"}
# the writes of one batch: body, lines, intent, sent, results, collected, done
WRITES = [*(("write", number, "before") for number in range(1, 8)), ("write", 7, "after")]
CALLS = [("upload", 1), ("create", 1), ("status", 1), ("status", 2), ("results", 1), ("deliver", 1), ("deliver", COUNT)]
SECOND_ROUND = [("write", 10), ("create", 2), ("results", 2), ("deliver", COUNT + 1)]
AROUND = [(*point, when) for point in CALLS for when in ("before", "after")]
OPENAI = [("openai", *point) for point in [*WRITES, *AROUND, *((*point, "after") for point in SECOND_ROUND)]]
ANTHROPIC = [
    ("anthropic", *point, when)
    for point in [("write", 3), ("create", 1), ("write", 4), ("status", 1), ("results", 1), ("create", 2)]
    for when in ("before", "after")
]


def start(server, folder, shape, kill):
    words = {"url": server.url, "model": MODELS[shape], "folder": str(folder), "count": COUNT, "kill": kill}
    command = [sys.executable, "-m", "tests.extras.batch.batch_asker", json.dumps(words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)


def expected_texts(server, bodies):
    """The replies that the server gives to all questions, worked out from the questions and not from a run."""
    replies = {}
    for body in bodies.values():
        replies[json.dumps(body["messages"], sort_keys=True)] = server.batches.reply(body)
    texts = set()
    for text in texts_of(COUNT):
        first = replies[json.dumps(list(question(text).payload.messages), sort_keys=True)]
        reply = first["choices"][0]["message"]["content"]
        second = replies[json.dumps(list(question(follow_up(text, reply)).payload.messages), sort_keys=True)]
        texts |= {reply, second["choices"][0]["message"]["content"]}
    return texts


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize(("shape", "name", "number", "when"), OPENAI + ANTHROPIC)
def test_killed_and_started_again(tmp_path, shape, name, number, when):
    with running(BatchServer()) as server:
        server.batches.delay_s = 0.12  # at least two looks
        killed = start(server, tmp_path, shape, f"{name}:{number}:{when}")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        again = start(server, tmp_path, shape, "")
        assert again.returncode == 0, again.stderr
        texts = json.loads(again.stdout)
        assert len(texts) == 2 * COUNT
        assert all(texts)
        assert Counter(server.batches.asked.values()) == {1: 2 * COUNT}
        assert len(server.batches.made[0].lines) == COUNT  # of the second round one may come late, and be a batch of its own
        if shape == "openai":
            assert set(texts) == expected_texts(server, dict(line for b in server.batches.made for line in b.lines))
    paid = paid_by(tmp_path / "calls.sqlite", RUN, 1)
    assert (paid.calls, paid.replies) == (2 * COUNT, 2 * COUNT)
