"""`task=verify` on a copied run folder: identical, whatever derived file is missing, and every flipped byte is named."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.judging.replies.answer_parsing import PARSER
from ragpipe.schema.format_version import FORMAT
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments
from tests.support.rows import first_rows

METRICS = "retrieval,faithfulness,chunk_faithfulness"
PRICES = "{input: 1.0, output: 2.0}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run folder alone, far from its data set and its call store, which are gone."""
    here = tmp_path_factory.mktemp("verified")
    data = here / "data.jsonl"
    records = [
        {"id": f"q{i}", "question": f"What does case {i} say?", "category": "even" if i % 2 == 0 else "odd",
         "answer": f"Case {i} says {i * 3} things. It also names word{i}.", "relevant_chunks": [f"c{i}-1"],
         "chunks": [{"id": f"c{i}-{k}", "text": f"Passage {k} of case {i} says {i * 3} things."} for k in range(3)]}
        for i in range(6)
    ]  # fmt: skip
    data.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    before, key = os.getcwd(), "RAGPIPE_TEST_KEY"
    os.chdir(here)
    os.environ[key] = "sk-sentinel-4242"
    try:
        with serving() as server:
            words = arguments(data, here / "out", server.url, f"judge.prices={PRICES}", "iterations=2", metrics=METRICS)
            assert main(words) == 0
        shutil.copytree((here / "out" / "torture" / "latest").resolve(), here / "elsewhere" / "run")
        shutil.rmtree(here / "out")
        data.unlink()
        yield here / "elsewhere" / "run"
    finally:
        os.chdir(before)
        del os.environ[key]


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(finished, tmp_path / "run"))


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["task=verify", f"run={run}"])
    return code, capsys.readouterr().out


def frozen(run: Path) -> set[Path]:
    """What the figures rest on: everything else is derived."""
    inputs = {run / "manifest.json", run / "config.yaml", run / "seal.json", run / "samples.parquet", run / "outputs.parquet"}
    return inputs | set(run.glob("prompts/**/*")) | set(run.glob("iteration-*/judge_inputs.parquet"))


@pytest.mark.slow
def test_a_run_that_nobody_touched_is_identical(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, said = verified(run, capsys)
    assert (code, "verify: identical." in said) == (0, True)
    made = {line.split()[1] for line in said.splitlines() if line.startswith("same")}
    derived = {str(p.relative_to(run)) for p in before if p not in frozen(run) and "journal" not in p.name and p.name[0] != "."}
    assert derived <= made
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_with_every_derived_file_deleted_it_is_identical(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = [path for path in run.rglob("*") if path.is_file() and path not in frozen(run)]
    assert {"scores.parquet", "records.parquet", "metrics.json", "cost.json", "report.md"} <= {path.name for path in gone}
    for path in gone:
        path.unlink()
    code, said = verified(run, capsys)
    assert (code, "verify: identical." in said) == (0, True)


def cell(table: str, column: str, row: int, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        path = run / table
        found = pq.read_table(path)
        values = found[column].to_pylist()
        values[row] = change(values[row])
        field = found.schema.field(column)
        place = found.schema.get_field_index(column)
        pq.write_table(found.set_column(place, field, pa.array(values, field.type)), path, compression="zstd")

    return apply


def text(file: str, old: str, new: str) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        path = run / file
        content = path.read_text(encoding="utf-8")
        assert old in content
        path.write_text(content.replace(old, new, 1), encoding="utf-8")

    return apply


def flipped(value: str) -> str:
    """One bit of one letter, away from the start where there is one."""
    place = next(i for i, letter in enumerate(value) if (letter.isalpha() and i >= len(value) // 3) or i == len(value) - 1)
    return value[:place] + chr(ord(value[place]) ^ 1) + value[place + 1 :]


FLIPS = {
    "a reply": (cell("iteration-1/judge_inputs.parquet", "reply", 3, flipped), "iteration-1/judge_inputs.parquet: reply changed in row 3 (q"),
    "a reply of iteration 2": (cell("iteration-2/judge_inputs.parquet", "reply", 0, flipped), "iteration-2/judge_inputs.parquet: reply changed in row 0 (q0"),
    "a context": (cell("outputs.parquet", "chunks", 4, flipped), "outputs.parquet: chunks changed in row 4 (q4"),
    "a label": (cell("samples.parquet", "relevant_chunks", 2, lambda ids: [flipped(ids[0])]), "samples.parquet: relevant_chunks changed in row 2 (q2"),
    "a category": (cell("samples.parquet", "category", 5, flipped), "samples.parquet: category changed in row 5 (q5"),
    "the price of a call": (cell("iteration-1/judge_inputs.parquet", "paid_usd", 1, lambda usd: usd * 2), "iteration-1/judge_inputs.parquet: paid_usd changed in row 1 (q0"),
    "the price of the model": (text("config.yaml", "input: 1.0", "input: 1.5"), "config.yaml: its bytes are not what they were: its prices are not those of cost.json (openai/test-model-2026-01-01@test: input 1 -> 1.5)"),
    "the other price of the model": (text("config.yaml", "output: 2.0", "output: 0.5"), "config.yaml: its bytes are not what they were: its prices are not those of cost.json (openai/test-model-2026-01-01@test: output 2 -> 0.5)"),
    "both prices of the model": (text("config.yaml", "input: 1.0\n    output: 2.0", "input: 3.0\n    output: 5.0"), "config.yaml: its bytes are not what they were: its prices are not those of cost.json (openai/test-model-2026-01-01@test: input 1 -> 3, output 2 -> 5)"),
    "the prices": (text("config.yaml", "  prices:\n    input: 1.0\n    output: 2.0\n    cached_input: null\n    reasoning: null\n    written_input: null", "  prices: null"), "config.yaml: its bytes are not what they were: its prices are not those of cost.json ("),
    "a setting that no figure rests on": (text("config.yaml", "concurrency: 8", "concurrency: 9"), "config.yaml: its bytes are not what they were"),
    "a threshold": (text("config.yaml", "faithfulness: 0.85", "faithfulness: 0.95"), "scoring.thresholds.faithfulness: 0.85 -> 0.95"),
    "a weight in the configuration": (text("config.yaml", "faithfulness: 0.2", "faithfulness: 0.3"), "scoring.weights.faithfulness: 0.2 -> 0.3"),
    "a prompt": (text("prompts/faithfulness/verify.v2.jinja", "Task: decide", "Task: decidf"), "metrics.faithfulness.prompts.verify"),
    "a comment in a prompt": (text("prompts/faithfulness/verify.v2.jinja", "{# Faithfulness", "{# faithfulness"), "prompts/faithfulness/verify.v2.jinja: its bytes"),
    "the data's digest": (text("manifest.json", f'"parser": {PARSER}', '"parser": 1'), f"manifest.json: identity.parser: {PARSER} -> 1"),
    "a score": (cell("iteration-1/scores.parquet", "value", 1, lambda value: 0.123), "iteration-1/scores.parquet: row 1 (q0 / default / 1 / retrieval"),
    "a record": (cell("iteration-1/records.parquet", "answer", 1, flipped), "iteration-1/records.parquet: row 1 (q1"),
    "a mean": (text("iteration-1/metrics.json", '"n_cases": 6', '"n_cases": 7'), "iteration-1/metrics.json: n_cases: 7, expected 6"),
    "a sum": (text("iteration-2/cost.json", '"calls"', '"cblls"'), "iteration-2/cost.json: "),
    "a word of the report": (text("report.md", "Evaluation report", "Evaluation Report"), "report.md: line 1"),
    "the seal": (text("seal.json", f'"format": {FORMAT}', f'"format": {FORMAT + 1}'), "seal.json: the seal itself was changed"),
}  # fmt: skip


@pytest.mark.thorough(tried=4)
@pytest.mark.slow
@pytest.mark.parametrize("what", first_rows(FLIPS, {"a reply", "the price of the model", "a score"}))
def test_what_was_changed_is_named_first(run: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, named = FLIPS[what]
    change(run)
    code, said = verified(run, capsys)
    first = next(line for line in said.splitlines() if line.startswith("differs"))
    assert code == 3
    assert named in first, said
    assert "judge.prices" in named or "judge.prices" not in first


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("file", first_rows(["iteration-1/scores.parquet", "outputs.parquet", "iteration-1/judge_inputs.parquet"]))
def test_a_flipped_bit_of_a_file_is_found_wherever_it_falls(run: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray((run / file).read_bytes())
    content[len(content) // 3] ^= 4
    (run / file).write_bytes(content)
    code, said = verified(run, capsys)
    assert code == 3
    assert f"differs  {file}: " in said


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("file", first_rows(["prompts/faithfulness/verify.v2.jinja", "outputs.parquet", "seal.json"]))
def test_what_cannot_be_made_again_must_be_there(run: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (run / file).unlink()
    code, said = verified(run, capsys)
    assert code == 3
    assert f"{file}: missing" in said


@pytest.mark.slow
def test_a_second_start_of_a_finished_run_does_not_bless_a_changed_file(run: Path) -> None:
    seal = (run / "seal.json").read_bytes()
    FLIPS["a label"][0](run)
    assert main(["task=rescore", f"run={run}"]) == 2  # nothing is computed
    assert (run / "seal.json").read_bytes() == seal


@pytest.mark.slow
def test_another_report_of_a_finished_run_is_still_what_it_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["dataset=demo", "dataset.limit=2", "metrics=[faithfulness]", "name=x"]
    assert main(words) == 0
    assert main([*words, "report.percent=[faithfulness]"]) == 0
    code, said = verified(here / "outputs/x/latest", capsys)
    assert (code, "identical" in said) == (0, True), said
