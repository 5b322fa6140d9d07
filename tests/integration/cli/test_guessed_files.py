"""Files of unknown shape and the table of the Langfuse UI: what is read from them, run at the first try, and told."""

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragpipe.cli.command_line import main
from ragpipe.cli.file_start import FileStart, start_from
from ragpipe.testing.openai_server import serving
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
WARRANTY = ["The warranty lasts two years."]
CELLS = [
    {
        "ticket": str(number),
        "request": json.dumps({"question": question, "language": "en"}),
        "result": json.dumps({"answer": answer, "sources": [{"url": "a", "text": passage} for passage in passages]}),
    }
    for number, question, answer, passages in (
        (1, "How long is the warranty?", "Two years.", WARRANTY),
        (2, "Is the postage refunded?", "No.", ["Postage is not refunded."]),
    )
]
FLAT = [
    {"query_id": "a", "User Query": "How long is the warranty?", "model_response": "Two years.", "passages": json.dumps(WARRANTY), "ground_truth": "Two years."},
    {"query_id": "b", "User Query": "Who wrote it?", "model_response": "Ada.", "passages": "[]", "ground_truth": "Ada."},
]  # fmt: skip
_TRACE = {
    "timestamp": "2026-01-02T03:04:05.000Z", "name": "rag", "userId": "u", "sessionId": "s", "tags": '["web"]', "bookmarked": "false",
    "totalCost": "0.0012", "inputTokens": "120", "outputTokens": "20", "totalTokens": "140", "level": "DEFAULT",
}  # fmt: skip
TRACES = [
    {"id": "t1", "input": '{"question": "How long is the warranty?"}', "output": '{"answer": "Two years."}',
     "metadata": json.dumps({"contexts": WARRANTY}), "helpful": "[0.9]", "tone": '["good"]', **_TRACE},
    {"id": "t2", "input": "Is the postage refunded?", "output": "No.", "metadata": '{"contexts": ["Postage is not refunded."]}', "helpful": "[0.5]", "tone": "", **_TRACE},
    {"id": "t3", "input": '[{"role": "user", "content": "Who wrote it?"}]', "output": '{"role": "assistant", "content": "Ada."}', "metadata": "{}", "helpful": "", "tone": "", **_TRACE},
]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def _write(rows: list[dict[str, Any]], **columns: str) -> None:
    with open("log.csv", "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [*rows[0], *columns])
        writer.writeheader()
        writer.writerows([row | columns for row in rows])


def _start(rows: list[dict[str, Any]], **columns: str) -> FileStart:
    _write(rows, **columns)
    return start_from(Path("log.csv"), Path("log"))


@pytest.mark.parametrize(("rows", "guessed"), [
    (CELLS, {"question": "parse(request).question", "answer": "parse(result).answer", "contexts": "parse(result).sources[].text"}),
    (FLAT, {"id": "query_id", "question": '"User Query"', "answer": "model_response", "contexts": "parse(passages)", "reference": "ground_truth"}),
])  # fmt: skip
def test_whole_guesses_can_be_run_and_are_marked(rows: list[dict[str, Any]], guessed: dict[str, str]) -> None:
    start = _start(rows)
    assert start.recognised is None
    assert start.folder.is_runnable
    assert start.folder.guessed == guessed
    assert start.reading.cases == 2
    assert yaml.safe_load(Path("log/dataset/log.yaml").read_text(encoding="utf-8"))["fields"] == guessed


@pytest.mark.parametrize(("rows", "why"), [
    ([*CELLS, {**CELLS[0], "result": '{"answer": null}'}], "1 records have no answer"),
    ([*CELLS, {**CELLS[0], "request": "How long?"}], "log.csv"),
    ([{"frage": "Who?", "response": "Ada."}], ""),
])  # fmt: skip
def test_guesses_that_miss_a_question_or_an_answer_wait_for_a_person(rows: list[dict[str, Any]], why: str) -> None:
    start = _start(rows)
    assert not start.folder.is_runnable
    assert why in start.misfit
    assert bool(why) == bool(start.misfit)
    assert start.to_fill_in


@pytest.mark.parametrize("latency", ["latency", "latency (s)"])
def test_the_table_of_traces_of_langfuse(latency: str) -> None:
    start = _start(TRACES, **{latency: "1.25"})
    assert start.recognised.option == "langfuse_table"
    first, second, third = start.reading.probe
    asked = [(case.sample.question, case.output.answer) for case in (first, second, third)]
    assert asked == [("How long is the warranty?", "Two years."), ("Is the postage refunded?", "No."), ("Who wrote it?", "Ada.")]
    assert [chunk.text for chunk in first.output.chunks or ()] == WARRANTY
    assert first.output.timings == {"total": 1250.0}
    assert first.output.usage == {"tokens_in": 120, "tokens_out": 20, "cost_usd": 0.0012}
    assert second.output.recorded["helpful"] == [0.5]


def test_the_commands_to_go_on_run_as_they_are_printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a server on this machine as the provider: its address is the one word that is added."""
    _write(FLAT)
    out = output_of(["log.csv"], 0, capfd).out
    commands = [shlex.split(line, comments=True) for line in out.splitlines() if line.startswith("  python -m ragpipe ")]
    judged, planned = (words[3:] for words in commands)
    assert "judge=llm" in judged
    assert "task=plan" in planned
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local")
    assert main(planned) == 0
    capfd.readouterr()
    with serving() as server:
        code = main([*judged, f"judge.api_base={server.url}"])
        said = capfd.readouterr()
        assert code == 0, said.err
        assert server.log
    scores = json.loads(Path("outputs/log/latest/final/metrics.json").read_text())["overall"]["scores"]
    assert scores["faithfulness"]["n_ok"] >= 1
    assert scores["correctness"]["n_ok"] == 2


@pytest.mark.thorough
def test_metrics_are_chosen_again_for_a_mapping_that_was_completed(capfd: pytest.CaptureFixture[str]) -> None:
    """A CSV file with German headers and JSON in its cells: the reference is mapped by hand, and metrics that need one come with it."""
    rows = [
        {"Frage": question, "Bot-Antwort": answer, "KB Snips": json.dumps([{"text": passage}]), "Soll": right}
        for question, answer, passage, right in (
            ("How long is the warranty?", "Two years.", WARRANTY[0], "Two years."),
            ("Is the postage refunded?", "No.", "Postage is not refunded.", "Postage is not refunded."),
        )
    ]
    _write(rows)
    assert "python -m ragpipe log.csv" in output_of(["log.csv"], 2, capfd).out
    mapping, experiment = Path("log/dataset/log.yaml"), Path("log/experiment/log.yaml")
    assert "      - context_recall" not in experiment.read_text(encoding="utf-8").splitlines()
    text = mapping.read_text(encoding="utf-8").replace("question: ???", "question: Frage")
    text = text.replace("answer: ???", """answer: '"Bot-Antwort"'""").replace("  # reference: NAME", "  reference: Soll")
    perhaps = text.partition("; perhaps ")[2].partition("\n")[0]
    mapping.write_text(text.replace("contexts: ???", f"contexts: {perhaps}"), encoding="utf-8")
    assert "chosen again for what the mapping reads" in output_of(["log.csv"], 0, capfd).out
    assert "      - context_recall" in experiment.read_text(encoding="utf-8").splitlines()
    scores = json.loads(Path("outputs/log/latest/final/metrics.json").read_text())["overall"]["scores"]
    assert scores["context_recall"]["n_ok"] == 2
    chosen = experiment.read_bytes()
    experiment.write_bytes(chosen + b"# mine\n")
    mapping.write_text(mapping.read_text(encoding="utf-8").replace("  reference: Soll", "  # reference: NAME"), encoding="utf-8")
    assert main(["log.csv"]) == 0
    assert experiment.read_bytes() == chosen + b"# mine\n", "an edited experiment is left alone"
