"""`task=verify` on a copied run folder: identical, whatever derived file is missing, and every flipped byte is named."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.version import FORMAT
from ragpipe.judge.answer_parsing import PARSER
from tests.support.rejudged import travelled

pytestmark = pytest.mark.slow  # whole runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder alone, far from its data set and its call store, which are gone."""
    words = ["judge.prices={input: 1.0, output: 2.0}", "iterations=2", "report.formats=[html,markdown,terminal]"]
    return travelled(tmp_path_factory.mktemp("verified"), *words)


@pytest.fixture
def run(finished: Path, here: Path) -> Path:
    return Path(shutil.copytree(finished, here / "run"))


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    return main(["task=verify", f"run={run}"]), capsys.readouterr().out


def frozen(run: Path) -> set[Path]:
    """What the figures rest on: everything else is derived."""
    inputs = {run / "manifest.json", run / "config.yaml", run / "seal.json", run / "samples.parquet", run / "outputs.parquet"}
    return inputs | set(run.glob("prompts/**/*")) | set(run.glob("iteration-*/judge_inputs.parquet"))


def test_a_run_that_nobody_touched_is_identical(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, said = verified(run, capsys)
    assert (code, "verify: identical." in said) == (0, True)
    made = {line.split()[1] for line in said.splitlines() if line.startswith("same")}
    derived = {str(p.relative_to(run)) for p in before if p not in frozen(run) and "journal" not in p.name and p.name[0] != "."}
    assert derived <= made
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


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
    place = next(i for i, letter in enumerate(value) if (letter.isalpha() and i >= len(value) // 3) or i == len(value) - 1)
    return value[:place] + chr(ord(value[place]) ^ 1) + value[place + 1 :]


FLIPS = {
    "a reply": (cell("iteration-1/judge_inputs.parquet", "reply", 3, flipped), "iteration-1/judge_inputs.parquet: its bytes are not what they were"),
    "a context": (cell("outputs.parquet", "chunks", 4, lambda chunks: [{**chunks[0], "text": flipped(chunks[0]["text"])}]), "outputs.parquet: its bytes are not what they were"),
    "a label": (cell("samples.parquet", "relevant_chunks", 2, lambda ids: [flipped(ids[0])]), "samples.parquet: its bytes are not what they were"),
    "the price of the model": (text("config.yaml", "input: 1.0", "input: 1.5"), "config.yaml: its bytes are not what they were: its prices are not those of cost.json"),
    "a setting that no figure rests on": (text("config.yaml", "concurrency: 8", "concurrency: 9"), "config.yaml: its bytes are not what they were"),
    "a threshold": (text("config.yaml", "faithfulness: 0.85", "faithfulness: 0.95"), "scoring.thresholds.faithfulness: 0.85 -> 0.95"),
    "a prompt": (text("prompts/faithfulness/verify.v2.jinja", "Task: decide", "Task: decidf"), "metrics.faithfulness.prompts.verify"),
    "the data's digest": (text("manifest.json", f'"parser": {PARSER}', '"parser": 1'), f"manifest.json: identity.parser: {PARSER} -> 1"),
    "a score": (cell("iteration-1/scores.parquet", "value", 1, lambda value: 0.123), "iteration-1/scores.parquet: row 1 (q0 / default / 1 / retrieval"),
    "a mean": (text("iteration-1/metrics.json", '"n_cases": 10', '"n_cases": 11'), "iteration-1/metrics.json: n_cases: 11, expected 10"),
    "a sum": (text("iteration-2/cost.json", '"calls"', '"cblls"'), "iteration-2/cost.json: "),
    "a word of the report": (text("report.md", "Evaluation report", "Evaluation Report"), "report.md: line 1"),
    "the seal": (text("seal.json", f'"format": {FORMAT}', f'"format": {FORMAT + 1}'), "seal.json: the seal itself was changed"),
}  # fmt: skip


@pytest.mark.thorough(tried=4)
@pytest.mark.parametrize("what", FLIPS)
def test_what_was_changed_is_named_first(run: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, named = FLIPS[what]
    change(run)
    code, said = verified(run, capsys)
    first = next(line for line in said.splitlines() if line.startswith("differs"))
    assert code == 3
    assert named in first, said
    assert "judge.prices" in named or "judge.prices" not in first


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("file", ["prompts/faithfulness/verify.v2.jinja", "outputs.parquet", "seal.json"])
def test_what_cannot_be_made_again_must_be_there(run: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (run / file).unlink()
    code, said = verified(run, capsys)
    assert code == 3
    assert f"{file}: missing" in said
