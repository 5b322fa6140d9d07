"""`task=rejudge` on a copied run folder: what is asked, what is not, and how far both judges agree."""

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.version import FORMAT
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.integration.cli.test_rescore import cell
from tests.support.place import output_of
from tests.support.rejudged import CASES, CHUNKS, content, travelled

pytestmark = pytest.mark.slow
ALWAYS_NO = [{"match": "Reply with one word: YES or NO", "reply": "NO"}]
SAME, OTHER = "openai/test-model-2026-01-01", "openai/other-model-2026-01-01"


@pytest.fixture
def run(travelled_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return Path(shutil.copytree(travelled_run, tmp_path / "runs" / "run"))


def words(run: Path, server: OpenAIServer | None, *extra: str, model: str = SAME) -> list[str]:
    judge = ["judge=llm", f"judge.model={model}", "judge.endpoint=test", "judge.api_key_env=RAGPIPE_TEST_KEY"]
    return ["task=rejudge", f"run={run}", *([*judge, f"judge.api_base={server.url}"] if server else []), *extra]


def inputs(folder: Path) -> list[dict]:
    return pq.read_table(folder / "iteration-1" / "judge_inputs.parquet").to_pylist()


def sibling(run: Path) -> Path:
    (found,) = [path for path in run.parent.iterdir() if path.is_dir() and not path.is_symlink() and path != run]
    return found


def test_the_same_judge_is_asked_nothing_and_the_run_stays_as_it_is(run: Path) -> None:
    before = content(run)
    with serving() as server:
        assert main(words(run, server)) == 0
        assert server.tries == 0
    assert (content(run), [path.name for path in run.parent.iterdir()]) == (before, ["run"])


def test_another_judge_asks_new_questions_only_where_a_chain_went_another_way(run: Path, capsys) -> None:
    with serving(script=ALWAYS_NO) as server:
        assert main(words(run, server, model=OTHER)) == 0
        made, said, asked = sibling(run), capsys.readouterr().out, server.tries
        first = content(made)
        assert main(words(run, server, model=OTHER)) == 0
        assert main(words(run, server, model=OTHER)) == 0
        assert server.tries == asked, "a second start asks nothing"
    assert content(made) == first, "and rewrites nothing"
    old = {row["payload_id"] for row in inputs(run)}
    new = {row["payload_id"] for row in inputs(made)}
    chain = {row["payload_id"] for row in inputs(run) if row["metric"] == "chunk_faithfulness"}
    # a judge that never says YES is asked about every chunk; the other judge's chains are beginnings of these
    assert len(new - old) == CASES * CHUNKS - len(chain) > 0
    assert asked == len(new) == len(old | new)
    assert f"{len(new & old)} the same as there, {len(new - old)} new" in said
    found = json.loads((made / "agreement.json").read_text())
    assert found["questions"] == {"old": len(old), "new": len(new), "new_payloads": len(new - old), "calls": asked, "same_calls": 0}


def test_prompts_travel_with_the_run_unless_those_of_now_are_asked_for(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "chunk_faithfulness"
    mine.mkdir(parents=True)
    text = (run / "prompts" / "chunk_faithfulness" / "first.v3.jinja").read_text()
    (mine / "first.v3.jinja").write_text(text.replace("Task: does the", "Task: now, does the"))
    with serving() as server:
        assert main(words(run, server, f"prompt_dirs=[{mine.parent}]")) == 0
        assert server.tries == 0
        assert main(words(run, server, f"prompt_dirs=[{mine.parent}]", "rejudge.prompts=current")) == 0
        assert server.tries >= CASES
    firsts = [json.loads(row["messages"])[-1]["content"] for row in inputs(sibling(run)) if row["step"] == "first"]
    assert len(firsts) == CASES
    assert all("Task: now, does the" in text for text in firsts)


def test_stored_names_case_metric_and_step_and_a_live_start_asks_for_the_rest(run: Path, capsys) -> None:
    with serving() as server:
        assert main(words(run, server, "rejudge.mode=stored", model=OTHER)) == 4
        assert server.tries == 0
        made = sibling(run)
        said = " ".join(capsys.readouterr().err.split())
        assert "transport=live (and not rejudge.mode=stored, but replay)" in said
        assert "retry_errors" not in said, "nothing that failed is kept, and nobody can be asked"
        reasons = pq.read_table(made / "iteration-1" / "scores.parquet").to_pylist()
        missing = [row for row in reasons if row["metric"] == "chunk_faithfulness"]
        assert [row["status"] for row in missing] == ["error"] * CASES
        assert re.match(r"missing_reply: .*q0/default / chunk_faithfulness / first", missing[0]["reason"])
        score = json.loads((made / "agreement.json").read_text())["scores"]["chunk_faithfulness"]
        assert (score["n_both"], score["new"]["coverage"], score["difference"]["mean"]) == (0, 0.0, None)
        assert main(words(run, server, model=OTHER)) == 0
        assert server.tries == len({row["payload_id"] for row in inputs(made)})
    again = pq.read_table(made / "iteration-1" / "scores.parquet").to_pylist()
    assert {row["status"] for row in again if row["metric"] == "chunk_faithfulness"} == {"ok"}


def test_a_strangers_folder_decides_nothing_about_a_live_call(run: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECIOUS", "sk-precious-1234567890")
    config = run / "config.yaml"
    with serving() as theirs, serving() as ours:
        text = re.sub(r"api_base: .*", f"api_base: {theirs.url}", config.read_text())
        text = text.replace("api_key_env: RAGPIPE_TEST_KEY", "api_key_env: PRECIOUS")
        text = text.replace("output_dir: ", "output_dir: stolen # ").replace("plugins: []", "plugins: [antigravity]")
        config.write_text(text)
        (run / "seal.json").unlink()  # a stranger may make a new one
        for extra in ((), ("judge.model=openai/other-2026-01-01",), ("judge.temperature=0.3",)):
            assert "a judge that you name" in output_of(words(run, None, *extra), 2, capsys).err
        assert main(words(run, ours, model=OTHER)) == 0
        assert (theirs.tries, ours.tries > 0) == (0, True)
    assert not Path("stolen").exists()
    assert main(words(run, None, "rejudge.mode=stored")) == 0


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("extra", "said"), [
    ("dataset.limit=3", "a change of what is frozen"), ("rejudge.mode=again", "one of replay, stored"), ("judge.max_calls=3", "judge.max_calls"),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_and_leaves_nothing(run: Path, capsys, extra: str, said: str) -> None:
    nowhere = OpenAIServer()
    nowhere.url = "http://127.0.0.1:9/v1"  # asking there would end with exit code 5
    assert said in output_of([*words(run, nowhere, model=OTHER), extra], 2, capsys).err
    assert [path.name for path in run.parent.iterdir()] == ["run"]


DEMO = ["dataset=demo", "dataset.limit=2", "name=x", "report.formats=[markdown]", "metrics=[faithfulness,retrieval]"]


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    return main(["task=verify", f"run={run}"]), "".join(capsys.readouterr())


def tampered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.thorough
def test_exports_are_sealed_and_a_later_start_does_not_bless_a_changed_one(here, capsys) -> None:
    assert main(DEMO) == 0
    demo = (here / "outputs/x/latest").resolve()
    assert main(["task=export", f"run={demo}", "formats=[csv,json,junit]"]) == 0
    code, said = verified(demo, capsys)
    assert (code, said.count("sealed   ")) == (0, 1 + len([p for p in demo.glob("export/**/*") if p.is_file()])), said
    exported = next(path for path in sorted(demo.glob("export/**/*.csv")) if path.stat().st_size)
    for path in (exported, demo / "report.junit.xml"):
        good = path.read_bytes()
        tampered(path)
        assert main(DEMO) == 0
        code, said = verified(demo, capsys)
        assert (code, f"differs  {path.relative_to(demo)}" in said) == (3, True), said
        path.write_bytes(good)


def test_a_run_without_a_seal_is_taken_as_it_is(run: Path) -> None:
    (run / "seal.json").unlink()
    cell("samples.parquet", "relevant_chunks", 2, lambda _: None)(run)
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.faithfulness=0.1"]) == 0


def test_a_damaged_seal_vouches_for_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seal = run / "seal.json"
    seal.write_text(seal.read_text().replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'))
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.faithfulness=0.1"]) == 2
    assert "seal.json" in capsys.readouterr().err


def test_a_run_that_kept_no_replies_cannot_be_verified(here, capsys) -> None:
    run = travelled(here, "keep_messages=false")
    code, said = verified(run, capsys)
    assert (code, "differs" in said) == (2, False)
    assert "cannot be verified: its replies were not kept" in said
    metrics = run / "iteration-1" / "metrics.json"
    metrics.write_text(metrics.read_text().replace('"n_cases": 10', '"n_cases": 11'))
    code, said = verified(run, capsys)
    assert (code, "differs  iteration-1/metrics.json" in said) == (3, True)
