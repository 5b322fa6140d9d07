"""A run folder far from its data: `task=rescore` decides anew without a question, `task=verify` names what was changed."""

import json
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
from tests.support.place import output_of
from tests.support.rejudged import CASES, content, travelled

pytestmark = pytest.mark.slow  # whole runs


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's address is dead and its key is not set: asking would fail."""
    monkeypatch.delenv("RAGPIPE_TEST_KEY")


def siblings(run: Path) -> list[Path]:
    found = (path for path in run.parent.iterdir() if path.is_dir() and not path.is_symlink() and path != run)
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / "iteration-1" / name).read_text())


def scores(folder: Path) -> dict:
    return read(folder, "metrics.json")["overall"]["scores"]


def test_a_threshold_flips_verdicts_and_nothing_else(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run.parent / "latest").symlink_to("run")
    assert main(["task=rescore", f"run={run.parent / 'latest'}", "scoring.thresholds.chunk_faithfulness=0"]) == 0
    (made,) = siblings(run)
    before, after = scores(run)["chunk_faithfulness"], scores(made)["chunk_faithfulness"]
    assert (after["mean"], after["pass_rate"]) == (before["mean"], 1.0)
    assert read(made, "metrics.json")["declared"]["chunk_faithfulness"]["threshold"] == 0
    assert before["pass_rate"] < 1
    flips = round(CASES * (1 - before["pass_rate"]))
    assert f"+{flips} -0" in capsys.readouterr().out
    assert (run.parent / "latest").readlink() == Path("run"), "only an evaluation becomes the latest"
    for name in ("samples.parquet", "outputs.parquet", "iteration-1/scores.parquet", "iteration-1/judge_inputs.parquet"):
        assert (made / name).stat().st_ino == (run / name).stat().st_ino, "linked, not copied"
    bill = read(made, "cost.json")
    assert (bill["spent"]["calls"], bill["used"]) == (0, read(run, "cost.json")["used"])
    first = content(made)
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.chunk_faithfulness=0"]) == 0
    assert content(made) == first


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("words", "gone", "new"), [
    (["metrics=[retrieval,faithfulness]", "metrics.retrieval.k=[2]"], {"chunk_faithfulness", "recall@5"}, {"recall@2"}),
    (["scoring=tiers"], set(), set()), (["~metrics.chunk_faithfulness"], {"chunk_faithfulness"}, set()),
])  # fmt: skip
def test_what_asks_no_other_question(run: Path, words: list[str], gone: set[str], new: set[str]) -> None:
    assert main(["task=rescore", f"run={run}", *words]) == (3 if "scoring=tiers" in words else 0)  # its gates block
    (made,) = siblings(run)
    before, after = scores(run), scores(made)
    assert gone <= before.keys() - after.keys()
    assert new <= after.keys() - before.keys()
    assert after["faithfulness"]["mean"] == before["faithfulness"]["mean"]
    assert read(made, "cost.json")["spent"]["calls"] == 0


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("words", "said"), [
    (["metrics.faithfulness.reasoning=true"], "/default / faithfulness / "), (["~metrics.faithfulnes"], "no metric of this run"),
    (["judge=llm", "judge.model=openai/other-2026-01-01"], "a change of what is frozen"),
    (["dataset.limit=1"], "a change of what is frozen"), (["iterations=2"], "a change of what is frozen"),
])  # fmt: skip
def test_what_would_have_to_ask_is_refused_and_leaves_nothing(run: Path, capsys, words: list[str], said: str) -> None:
    assert said in output_of(["task=rescore", f"run={run}", *words], 2, capsys).err
    assert siblings(run) == []


def test_without_stored_replies_scoring_changes_and_parameters_say_why_not(here: Path, capsys) -> None:
    run = travelled(here, "keep_messages=false")
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.faithfulness=0.1"]) == 0
    assert len(siblings(run)) == 1
    assert "keep_messages=false" in output_of(["task=rescore", f"run={run}", "metrics.retrieval.k=[2]"], 2, capsys).err
    assert len(siblings(run)) == 1
    row = pq.read_table(run / "iteration-1" / "judge_inputs.parquet").to_pylist()[0]
    assert (row["messages"], row["reply"]) == (None, None)


@pytest.fixture(scope="module")
def priced_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder alone, far from its data set and its call store, which are gone."""
    words = ["judge.prices={input: 1.0, output: 2.0}", "iterations=2", "report.formats=[html,markdown,terminal]"]
    return travelled(tmp_path_factory.mktemp("verified"), *words)


@pytest.fixture
def alone(priced_run: Path, here: Path) -> Path:
    return Path(shutil.copytree(priced_run, here / "run"))


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    return main(["task=verify", f"run={run}"]), capsys.readouterr().out


def frozen(run: Path) -> set[Path]:
    """What the figures rest on: everything else is derived."""
    inputs = {run / "manifest.json", run / "config.yaml", run / "seal.json", run / "samples.parquet", run / "outputs.parquet"}
    return inputs | set(run.glob("prompts/**/*")) | set(run.glob("iteration-*/judge_inputs.parquet"))


def test_a_run_that_nobody_touched_is_identical(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in alone.rglob("*") if path.is_file()}
    code, said = verified(alone, capsys)
    assert (code, "verify: identical." in said) == (0, True)
    made = {line.split()[1] for line in said.splitlines() if line.startswith("same")}
    derived = {str(p.relative_to(alone)) for p in before if p not in frozen(alone) and "journal" not in p.name and p.name[0] != "."}
    assert derived <= made
    assert {path: path.read_bytes() for path in alone.rglob("*") if path.is_file()} == before


def test_with_every_derived_file_deleted_it_is_identical(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = [path for path in alone.rglob("*") if path.is_file() and path not in frozen(alone)]
    assert {"scores.parquet", "records.parquet", "metrics.json", "cost.json", "report.md"} <= {path.name for path in gone}
    for path in gone:
        path.unlink()
    code, said = verified(alone, capsys)
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


def gone(file: str) -> Callable[[Path], None]:
    return lambda run: (run / file).unlink()


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
    "no prompt": (gone("prompts/faithfulness/verify.v2.jinja"), "prompts/faithfulness/verify.v2.jinja: missing"),
    "no outputs": (gone("outputs.parquet"), "outputs.parquet: missing"), "no seal": (gone("seal.json"), "seal.json: missing"),
}  # fmt: skip


@pytest.mark.thorough(tried=5)
@pytest.mark.parametrize("what", FLIPS)
def test_what_was_changed_or_is_gone_is_named_first(alone: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, named = FLIPS[what]
    change(alone)
    code, said = verified(alone, capsys)
    first = next(line for line in said.splitlines() if line.startswith("differs"))
    assert code == 3
    assert named in first, said
    assert "judge.prices" in named or "judge.prices" not in first
