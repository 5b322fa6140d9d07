"""What is sealed beside the derived files, what verify says of runs that are healthy, and what is made of a changed one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.engine import evaluation
from ragpipe.metrics.judged.faithfulness import FaithfulnessMetric
from ragpipe.schema.format_version import FORMAT
from ragpipe.testing.openai_server import serving
from tests.integration.tasks.test_verify import cell, flipped
from tests.support.rejudged import KEY, travelled
from tests.support.rows import first_rows

pytestmark = pytest.mark.slow  # several whole runs

WORDS = ["dataset=demo", "dataset.limit=2", "name=x", "report.formats=[markdown]"]
OTHER = "openai/other-model-2026-01-01"


@pytest.fixture
def run(travelled_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv(KEY, "sk-sentinel-4242")
    return Path(shutil.copytree(travelled_run, tmp_path / "runs" / "run"))


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run by the packaged judge."""
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, "metrics=[faithfulness,retrieval]"]) == 0
    return (tmp_path / "outputs/x/latest").resolve()


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["task=verify", f"run={run}"])
    said = capsys.readouterr()
    return code, said.out + said.err


def sibling(run: Path) -> Path:
    (found,) = [path for path in run.parent.iterdir() if path.is_dir() and not path.is_symlink() and path != run]
    return found


def tampered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.thorough
def test_the_agreement_of_two_judges_is_sealed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        judge = ["judge=llm", f"judge.model={OTHER}", "judge.endpoint=test", "judge.api_key_env=RAGPIPE_TEST_KEY"]
        assert main(["task=rejudge", f"run={run}", *judge, f"judge.api_base={server.url}"]) == 0
    made = sibling(run)
    code, said = verified(made, capsys)
    assert (code, "sealed   agreement.json" in said, "sealed   agreement.md" in said) == (0, True, True), said
    for name in ("agreement.json", "agreement.md"):
        good = (made / name).read_bytes()
        tampered(made / name)
        code, said = verified(made, capsys)
        assert (code, f"differs  {name}: its bytes" in said) == (3, True), said
        (made / name).write_bytes(good)
    (made / "agreement.md").unlink()
    assert verified(made, capsys)[0] == 0, "a file that is not there says nothing wrong"


@pytest.mark.thorough
def test_exports_are_sealed_and_a_later_start_does_not_bless_a_changed_one(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["task=export", f"run={demo}", "formats=[csv,json,junit]"]) == 0
    code, said = verified(demo, capsys)
    assert (code, said.count("sealed   ")) == (0, 1 + len([p for p in demo.glob("export/**/*") if p.is_file()])), said
    exported = next(path for path in sorted(demo.glob("export/**/*.csv")) if path.stat().st_size)
    for path in (exported, demo / "report.junit.xml"):
        good = path.read_bytes()
        tampered(path)
        assert main([*WORDS, "metrics=[faithfulness,retrieval]"]) == 0
        code, said = verified(demo, capsys)
        assert (code, f"differs  {path.relative_to(demo)}" in said) == (3, True), said
        path.write_bytes(good)


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "labels": (cell("samples.parquet", "relevant_chunks", 2, lambda _: None), "relevant_chunks changed in row 2 (q2)"),
    "chunks": (cell("outputs.parquet", "chunks", 4, flipped), "chunks changed in row 4 (q4"),
    "a reply": (cell("iteration-1/judge_inputs.parquet", "reply", 3, flipped), "reply changed in row 3 (q"),
    "a score": (cell("iteration-1/scores.parquet", "value", 1, lambda _: 0.5), "its bytes are not what they were"),
}


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("what", first_rows(CHANGES, {"chunks", "a score"}))
def test_nothing_is_made_of_a_run_that_was_changed(run: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, said = CHANGES[what]
    change(run)
    for words in (["task=rescore", "scoring.thresholds.faithfulness=0.1"], ["task=rejudge", "rejudge.mode=stored"]):
        if what == "a score" and "task=rejudge" in words:
            continue  # scores are made again there
        capsys.readouterr()
        assert main([*words, f"run={run}"]) == 2
        shown = " ".join(capsys.readouterr().err.split())
        assert said in shown
        assert "restore the file" in shown
        assert "task=evaluate" in shown
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_run_without_a_seal_is_taken_as_it_is(run: Path) -> None:
    (run / "seal.json").unlink()
    CHANGES["labels"][0](run)
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.faithfulness=0.1"]) == 0


def test_a_damaged_seal_vouches_for_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seal = run / "seal.json"
    seal.write_text(seal.read_text().replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'))
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.faithfulness=0.1"]) == 2
    assert "seal.json" in capsys.readouterr().err


def test_metrics_in_another_order_verify(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["metrics=[chunk_faithfulness,faithfulness,retrieval]"]
    assert main(["task=rescore", f"run={run}", *words]) == 0
    code, said = verified(sibling(run), capsys)
    assert (code, "identical" in said) == (0, True), said


def test_a_run_that_kept_no_replies_cannot_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = travelled(tmp_path, "keep_messages=false")
    code, said = verified(run, capsys)
    assert (code, "differs" in said) == (2, False)
    assert "cannot be verified: its replies were not kept" in said
    metrics = run / "iteration-1" / "metrics.json"
    metrics.write_text(metrics.read_text().replace('"n_cases": 10', '"n_cases": 11'))
    code, said = verified(run, capsys)
    assert (code, "differs  iteration-1/metrics.json" in said) == (3, True)


def test_recorded_errors_of_a_metric_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = FaithfulnessMetric.measure

    async def broken(self, case, judge):  # type: ignore[no-untyped-def]
        if case.output.method == "baseline":
            raise ZeroDivisionError("planted")
        return await whole(self, case, judge)

    monkeypatch.setattr(FaithfulnessMetric, "measure", broken)
    assert main([*WORDS, "metrics=[faithfulness]", "on_metric_error=record"]) == 4
    run = tmp_path / "outputs/x/latest"
    assert "planted" in str(pq.read_table(run / "iteration-1/scores.parquet")["reason"].to_pylist())
    code, said = verified(run, capsys)
    assert (code, "identical" in said) == (0, True), said


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("stage", ["run_async", "seal_run"])
def test_a_start_that_was_killed_while_it_added_an_iteration_is_no_false_alarm(
    demo: Path, stage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(*args: object, **_: object) -> None:
        for one in args:
            getattr(one, "close", lambda: None)()  # a coroutine that is not awaited
        raise SystemExit(137)

    with monkeypatch.context() as patched:
        patched.setattr(evaluation, stage, ends)
        assert main([*WORDS, "metrics=[faithfulness,retrieval]", "iterations=2"]) == 137
    code, said = verified(demo, capsys)
    assert (code, "config.yaml" in said) == (0, False), said
    assert main([*WORDS, "metrics=[faithfulness,retrieval]", "iterations=2"]) == 0
    assert "config.yaml" in json.loads((demo / "seal.json").read_text())["files"]
    assert verified(demo, capsys)[0] == 0
