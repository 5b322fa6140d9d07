"""`python -m ragpipe FILE` and `task=init from=FILE`: what is recognised or guessed, written, kept, run and said."""

import csv
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragpipe.cli.command_line import compose, main
from ragpipe.cli.file_start import FileStart, start_from
from ragpipe.cli.option_files import start_text
from ragpipe.data.dataset import open_dataset
from ragpipe.testing.openai_server import serving
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
RECORDS: list[dict[str, Any]] = [json.loads(line) for line in start_text("cases.jsonl").splitlines()]


@pytest.fixture(autouse=True)
def _here(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def _lines(path: str, records: list[dict[str, Any]]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def _experiment(folder: str) -> Any:
    return yaml.safe_load((Path(folder) / "experiment" / f"{Path(folder).name}.yaml").read_text(encoding="utf-8"))


def _metrics(folder: str) -> list[str]:
    return next(next(iter(item.values())) for item in _experiment(folder)["defaults"] if "override /metrics" in item)


def _run_metrics(name: str) -> Any:
    return json.loads(Path(f"outputs/{name}/latest/final/metrics.json").read_text(encoding="utf-8"))


def test_a_file_is_recognised_written_run_and_run_again_as_it_is(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    records = [{**record, "recorded": {"harmfulness": 0.25, "grade": 3}} for record in RECORDS]
    _lines("data/shop.jsonl", records)
    first = output_of(["data/shop.jsonl"], 0, capfd)
    assert "a data set in the native form (by id, question" in first.out
    assert "How long may I return a purchase?" in first.out
    assert "3 questions, 3 answers" in first.out
    assert _run_metrics("shop")["overall"]["scores"]["harmfulness"]["mean"] == 0.25
    assert "not measured, needs a language model: " in first.out
    page = f"report: outputs/shop/{Path('outputs/shop/latest').resolve().name}/report.html\n"
    assert page in first.out
    assert "judge=llm judge.model=openai/" in first.out
    assert "+experiment=shop task=plan" in first.out
    assert Path("outputs/shop/latest/report.html").is_file()
    take = _experiment("shop")["metrics"]["recorded"]["take"]
    assert take == {
        "harmfulness": {"from": "harmfulness", "low": 0, "high": 1, "higher_is_better": False},
        "grade": {"from": "grade", "low": 1, "high": 5},
    }
    written = {path: path.read_bytes() for path in Path("shop").rglob("*") if path.is_file()}
    second = output_of(["data/shop.jsonl"], 0, capfd)
    assert "shop/ was written for this file before: it is used as it is" in second.out
    assert "edited" not in second.out
    assert page in second.out
    assert {path: path.read_bytes() for path in Path("shop").rglob("*") if path.is_file()} == written
    experiment = Path("shop/experiment/shop.yaml")
    experiment.write_text(experiment.read_text().replace("name: shop\n", "name: mine\n"), encoding="utf-8")
    assert main(["data/shop.jsonl", "metrics=[faithfulness]", "dataset.limit=2"]) == 0
    assert "edited since: experiment/shop.yaml" in capfd.readouterr().out
    assert _run_metrics("mine")["n_cases"] == 2


def test_the_command_that_it_prints_runs_the_same(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _lines("shop.jsonl", RECORDS)
    out = output_of(["task=init", "from=shop.jsonl", "dir=my"], 0, capfd).out
    assert "written to my/: dataset/my.yaml, experiment/my.yaml, judge/my.yaml" in out
    assert "python -m ragpipe --config-dir my +experiment=my\n" in out
    assert not Path("outputs").exists()
    config = compose(["+experiment=my"], config_dir="my")
    assert (config.dataset.path, set(config.metrics)) == ("shop.jsonl", set(_metrics("my")))
    assert {"faithfulness", "retrieval", "context_recall"} <= set(config.metrics)
    assert "correctness" not in config.metrics
    assert "overwrites nothing" in output_of(["task=init", "from=shop.jsonl", "dir=my"], 2, capfd).err


def test_folder_and_data_may_be_moved_together(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _lines("repo/data/shop.jsonl", RECORDS)
    monkeypatch.chdir(here / "repo")
    assert main(["task=init", "from=data/shop.jsonl", "dir=eval/my"]) == 0
    monkeypatch.chdir(here)
    (here / "repo").rename(here / "elsewhere")
    config = compose(["+experiment=my"], config_dir="elsewhere/eval/my")
    assert config.dataset.path == "elsewhere/data/shop.jsonl"
    assert len(list(open_dataset(config.dataset, here))) == 3


def test_a_shape_that_is_not_known_is_written_and_not_run(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("logs.csv").write_text('nr;frage;response;passages\n7;Who?;Ada.;"[""Ada wrote it.""]"\n', encoding="utf-8")
    out = output_of(["logs.csv"], 2, capfd).out
    text = Path("logs/dataset/logs.yaml").read_text(encoding="utf-8")
    place = next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith("  question: ???"))
    assert f"logs/dataset/logs.yaml:{place}: question: ???\n" in out
    assert f"logs/dataset/logs.yaml:{place + 1}: answer: response   (guess)\n" in out
    assert 'contexts: "parse(passages)"   (guess)' in out
    assert not Path("outputs").exists()
    for name, example in (("nr", "7"), ("frage", "Who?"), ("response", "Ada."), ("passages", '["Ada wrote it."]')):
        assert any(line.split()[1:2] == [name] and line.endswith(example) for line in text.splitlines())


def test_questions_without_answers_wait_for_a_system(here, capfd, monkeypatch) -> None:
    _lines("asked.jsonl", [{"id": "q1", "question": "Who wrote it?", "reference": "Ada."}])
    Path("mybot.py").write_text("def answer(sample):\n    return {'answer': 'Ada.', 'contexts': ['Ada wrote it.']}\n")
    monkeypatch.syspath_prepend(str(here))
    assert "no answers" in output_of(["asked.jsonl"], 2, capfd).out
    assert {"faithfulness", "context_recall"} <= set(_metrics("asked"))
    assert main(["asked.jsonl", "system=python", "system.callable=mybot:answer", "plugins=[mybot]"]) == 0
    assert _run_metrics("asked")["overall"]["scores"]["faithfulness"]["n_ok"] == 1
    printed = [line for line in capfd.readouterr().out.splitlines() if "+experiment=asked" in line]
    assert len(printed) == 2
    assert all("system=python system.callable=mybot:answer 'plugins=[mybot]'" in line for line in printed)


@pytest.mark.parametrize(("words", "says"), [
    (["shop.jsonl", "a/shop.jsonl"], "one file is evaluated at a time"),
    (["--config-dir", "a", "shop.jsonl"], "--config-dir and a file"), (["a"], "give one of its files: shop.jsonl"),
    (["shop.jsonl", "dataset=ragsa"], "'ragsa'"), (["broken.jsonl"], "broken.jsonl:2"), (["text.txt"], "neither JSON nor a table"),
    (["empty.jsonl"], "an empty file (0 bytes)"),
    (["task=init", "from=shop.jsonl", "dir=b", "dataset.filter=question"], "`python -m ragpipe FILE dataset.filter=...` obeys"),
    (["task=init", "from=shop.jsonl", "dir=b", "dataset.limit=1"], "command line (dataset.limit=1)"),
])  # fmt: skip
def test_what_cannot_be_is_refused_and_nothing_is_written(here, capfd, words: list[str], says: str) -> None:
    _lines("shop.jsonl", RECORDS)
    _lines("a/shop.jsonl", RECORDS)
    Path("broken.jsonl").write_text(json.dumps(RECORDS[0]) + '\n{"id": 7, "question": "Who?"}\n', encoding="utf-8")
    Path("text.txt").write_text("only prose", encoding="utf-8")
    Path("empty.jsonl").touch()
    before = sorted(here.rglob("*"))
    assert says in output_of(words, 2, capfd).err
    assert sorted(here.rglob("*")) == before


def test_another_option_than_that_of_the_folder_is_refused(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _lines("good.jsonl", RECORDS)
    assert main(["task=init", "from=good.jsonl", "dir=good"]) == 0
    assert "did you mean ragas?" in output_of(["good.jsonl", "dataset=ragass"], 2, capfd).err
    err = output_of(["good.jsonl", "dataset=ragas"], 2, capfd).err
    assert "'ragas', and good/ was written for this file with dataset=jsonl" in err
    assert "task=init from=good.jsonl as=ragas dir=OTHER" in err


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("file", "answers", "recorded", "code"), [
    ("ragas/result.csv", 10, "harmfulness", 0),
    ("deepeval/test_run_20261122_011809.json", 11, "deepeval_faithfulness", 4),  # its Correctness has a failed verdict
    ("promptfoo/results.json", 20, "promptfoo_faithfulness", 0),
    ("langfuse/traces_full.jsonl", 10, None, 0),
    ("openinference/otlp.json", 10, None, 0),
    ("ragchecker/checking_outputs.json", 10, None, 0),
])  # fmt: skip
def test_a_file_of_a_real_package_is_a_table_at_the_first_try(here, capfd, real_data, file, answers, recorded, code) -> None:
    assert main([shutil.copyfile(real_data / "shapes" / file, f"export{Path(file).suffix}")]) == code
    out = capfd.readouterr().out
    metrics = _run_metrics("export")
    assert metrics["n_cases"] == answers
    assert f", {answers} answers" in out
    assert metrics["overall"]["scores"]["faithfulness"]["n_ok"] >= answers - 3
    assert recorded is None or metrics["overall"]["scores"][recorded]["n_ok"] > 0
    assert any(line.startswith(("faithfulness ", "faithfulness: ")) for line in out.splitlines())


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
    scores = _run_metrics("log")["overall"]["scores"]
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
    assert _run_metrics("log")["overall"]["scores"]["context_recall"]["n_ok"] == 2
    chosen = experiment.read_bytes()
    experiment.write_bytes(chosen + b"# mine\n")
    mapping.write_text(mapping.read_text(encoding="utf-8").replace("  reference: Soll", "  # reference: NAME"), encoding="utf-8")
    assert main(["log.csv"]) == 0
    assert experiment.read_bytes() == chosen + b"# mine\n", "an edited experiment is left alone"
