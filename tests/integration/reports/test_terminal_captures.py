"""What a terminal shows of a whole run with a slow judge: at every width, with and without colours, and where no line can be drawn
again. The counts are compared with the server's own log."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ragpipe.reports.styled_text import columns_of
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.terminals import drawn_lines, on_a_terminal

pytestmark = pytest.mark.slow  # whole runs

WORDS = (
    "+experiment=quickstart",
    "metrics=[faithfulness,groundedness]",
    "dataset.limit=5",
    "judge=llm",
    "judge.model=openai/test-model-2026-01-01",
    "judge.api_key_env=RAGPIPE_TEST_KEY",
    "judge.concurrency=8",
)
COLOUR = "\x1b[3"
_SENT = re.compile(r"([\d,]+) sent, ([\d,]+) answered")


class Capture(NamedTuple):
    """A terminal, and whether it draws the line of progress again and has colours."""

    columns: int
    is_live: bool
    has_colours: bool
    env: dict[str, str]


CAPTURES = {
    "60 columns": Capture(60, True, True, {"TERM": "xterm-256color"}),
    "80 columns": Capture(80, True, True, {"TERM": "xterm-256color"}),
    "100 columns": Capture(100, True, True, {"TERM": "xterm-256color"}),
    "160 columns": Capture(160, True, True, {"TERM": "xterm-256color"}),
    "no colour": Capture(80, True, False, {"TERM": "xterm-256color", "NO_COLOR": "1"}),
    "dumb": Capture(80, False, False, {"TERM": "dumb"}),
}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with serving(latency_ms=700) as server:
        yield server


def start(tmp_path: Path, server: OpenAIServer, capture: Capture, *words: str, code: int = 0) -> str:
    here = [f"judge.api_base={server.url}", f"output_dir={tmp_path / 'out'}", f"store.path={tmp_path / 'store'}"]
    return on_a_terminal([*WORDS, *here, *words], tmp_path, capture.columns, code=code, **capture.env)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("name", CAPTURES)
def test_a_slow_judge_on_a_terminal(tmp_path: Path, server: OpenAIServer, name: str) -> None:
    """13 cases of 39 calls, 0.7 s a reply, the first alone."""
    capture = CAPTURES[name]
    text = start(tmp_path, server, capture)
    lines = drawn_lines(text)
    progress = [line for line in lines if "judging " in line and "/13" in line]
    asked = len(server.log)
    assert asked == 39

    frames = progress[:-1]
    assert "0/13" in frames[0]
    assert all(any(word in frame for word in (" left", "estimating", "| 0:0")) for frame in frames), frames
    if capture.is_live:
        assert "estimating" in frames[0], "before the first reply"
        assert max(map(columns_of, frames)) < capture.columns
    counts = [tuple(int(n) for n in found.groups()) for frame in progress if (found := _SENT.search(frame))]
    assert counts == sorted(counts)
    assert all(answered <= sent <= asked for sent, answered in counts)
    assert progress[-1].startswith("judging 13/13 cases | 0:0")
    assert "39 sent, 39 answered |" in progress[-1]

    result = lines[lines.index(progress[-1]) + 1 :]
    assert result[0].startswith("no gates: 3 methods, 13 cases, 5 questions; judge")
    assert result[-1].startswith("report: ")
    assert max(columns_of(line) for line in result[:-1]) <= capture.columns
    assert len(result) <= (25 if capture.columns >= 80 else 28)
    assert (COLOUR in text) == capture.has_colours


def test_a_wait_that_the_provider_asks_for_is_said_and_counts_down(tmp_path: Path, server: OpenAIServer) -> None:
    """Three requests are refused for three seconds; no other goes meanwhile. The time left has the wait in it."""
    server.latency_ms = 100
    server.faults = [ServerFault.read("429:nth=20+21+22,retry_after=3")]
    lines = drawn_lines(start(tmp_path, server, CAPTURES["100 columns"]))
    held = [line for line in lines if "waits " in line]
    assert held, lines
    seconds = [int(line.partition("waits ")[2].split()[0]) for line in held]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] in (2, 3)
    assert all("(429)" in line and " left" in line for line in held)
    last = [line for line in lines if line.startswith("judging 13/13 cases | 0:")][-1]
    requests = server.log
    good = sum(line["status"] == 200 for line in requests)
    assert f"{len(requests)} sent, {good} answered, {len(requests) - good} failed |" in last


@pytest.mark.thorough
def test_errors_and_a_gate_that_blocks(tmp_path: Path, server: OpenAIServer) -> None:
    """Every fifth request or so is refused for good; the gate cannot pass."""
    server.latency_ms = 10
    server.faults = [ServerFault.read("400:rate=0.2")]
    gate = "scoring.gates.faithful={score: faithfulness, of: mean, min: 0.99, tier: critical}"
    lines = drawn_lines(start(tmp_path, server, CAPTURES["80 columns"], f"+{gate}", code=3))
    last = next(line for line in lines if line.startswith("judging 13/13"))
    errors = int(last.rpartition("| ")[2].split()[0])
    assert errors > 0
    requests = server.log
    failed = sum(line["status"] == 400 for line in requests)
    assert f"{len(requests)} sent, {len(requests) - failed} answered, {failed} failed" in last
    verdict = lines.index(
        next(line for line in lines if line.startswith("BLOCKED: 1 of 1 gate did not pass: faithful "))
    )
    assert any(line.startswith(f"cost: judge {len(requests)} calls ({failed} failed)") for line in lines[verdict:])
    assert any(line.startswith("warning: coverage under 95% of cases: ") for line in lines[verdict:])
