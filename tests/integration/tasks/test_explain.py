"""`task=explain`: every figure of a case may be asked for, by the name of a metric, of a score or of a composite."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments
from tests.support.rejudged import KEY
from tests.support.rows import first_rows


@pytest.fixture
def run(travelled_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(travelled_run, tmp_path / "run"))


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize(("metric", "shown", "hidden"), first_rows([
    ("mrr", ["mrr", "precision@3"], ["faithfulness"]),
    ("overall_score", ["retrieval_score", "faithfulness"], ["chunk_faithfulness"]),  # the parts with a weight
    ("retrieval", ["mrr", "precision@3"], ["faithfulness"]),
    ("chunk_faithfulness", ["chunk_faithfulness"], ["mrr", "faithfulness"]),
], keep=2))  # fmt: skip
def test_a_figure_is_explained_by_any_of_its_names(
    run: Path, metric: str, shown: list[str], hidden: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["task=explain", f"run={run}", "case=q1", f"metric={metric}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    scores = {line.split()[1].rstrip(":") for line in lines if line.startswith("score ")}
    assert set(shown) <= scores
    assert not scores & set(hidden)
    assert any(line.startswith("overall_score = ") for line in lines)
    assert sum(line.startswith("  found: ") for line in lines) == ("chunk_faithfulness" not in shown), (
        "once for all of retrieval"
    )
    assert not any(line.startswith("  normalised: (0 - 0) / (1 - 0)") for line in lines)


@pytest.mark.slow
def test_a_wrong_name_is_told_each_right_one_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=explain", f"run={run}", "case=q1", "metric=faithfullness"]) == 2
    said = capsys.readouterr().err
    fix = next(line for line in said.splitlines() if "did you mean" in line)
    assert fix.count(" faithfulness") == 1


RANKS, SENTENCES = 8, 6


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of one case with a chain to the last of eight chunks, and six claims that are verified one by one."""
    here = tmp_path_factory.mktemp("wide")
    record = {
        "id": "q", "question": "What is said?", "answer": " ".join(f"Claim {i} holds." for i in range(1, SENTENCES + 1)),
        "chunks": [{"id": f"c{k}", "text": f"Passage {k} says nothing."} for k in range(1, RANKS + 1)],
    }  # fmt: skip
    (here / "data.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    never = [{"match": "Reply with one word: YES or NO", "reply": "NO"}]
    with pytest.MonkeyPatch.context() as monkey, serving(script=never) as server:
        monkey.chdir(here)
        monkey.setenv(KEY, "sk-sentinel-4242")
        words = arguments(here / "data.jsonl", here / "out", server.url, "metrics.faithfulness.batch=1")
        assert main(words) == 0
        yield (here / "out" / "torture" / "latest").resolve()


def questions(out: str) -> list[tuple[str, str]]:
    """Who asked (metric / step), and everything that stands under it, in the order of the page."""
    parts = re.split(r"^question \d+ of \d+: (.*) \(ask\)$", out, flags=re.M)
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.slow
def test_the_questions_of_a_chain_stand_by_rank_and_those_of_a_fan_out_by_index(
    wide: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = (wide / "iteration-1" / "judge_inputs.parquet").read_bytes()
    capsys.readouterr()
    assert main(["task=explain", f"run={wide}", "case=q"]) == 0
    found = questions(capsys.readouterr().out)
    expected = [
        ("faithfulness / extract", ""),
        *(("faithfulness / verify", f"Claim {i} holds.") for i in range(1, SENTENCES + 1)),
        ("chunk_faithfulness / first", "Passage 1 says"),
        *(("chunk_faithfulness / refine", f"Passage {k} says") for k in range(2, RANKS + 1)),
    ]
    assert [asker for asker, _ in found] == [asker for asker, _ in expected]
    for (asker, said), (_, own) in zip(found, expected, strict=True):
        others = {text for name, text in expected if name == asker} - {own}
        assert own in said
        assert not [other for other in others if other in said], f"{asker}: the question of {own} is another's"
    assert (wide / "iteration-1" / "judge_inputs.parquet").read_bytes() == table


@pytest.mark.slow
def test_questions_without_their_replies_are_all_shown(
    wide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which claims were verified is not known there: what is asked first stands first, the rest as the table has it."""
    run = shutil.copytree(wide, tmp_path / "run")
    path = run / "iteration-1" / "judge_inputs.parquet"
    table = pq.read_table(path)
    for name in ("messages", "schema", "reply"):
        nothing = pa.nulls(len(table), pa.string())
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), nothing)
    pq.write_table(table, path)
    (run / "seal.json").unlink()
    capsys.readouterr()
    assert main(["task=explain", f"run={run}", "case=q"]) == 0
    askers = [asker for asker, _ in questions(capsys.readouterr().out)]
    assert askers == [
        "faithfulness / extract", *["faithfulness / verify"] * SENTENCES,
        "chunk_faithfulness / first", *["chunk_faithfulness / refine"] * (RANKS - 1),
    ]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.slow
def test_a_question_of_several_methods_is_a_table_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """a says what its context says, b something else, c failed; q2 was asked of a alone, which is a chain."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    context = "The plant erica vagans is called Cornish heath."
    rows = [
        {"id": "q1", "question": "What is erica vagans called?", "outputs": [
            {"method": "a", "answer": "The plant erica vagans is called Cornish heath.", "contexts": [context]},
            {"method": "b", "answer": "The plant grows on Mount Everest since 1953.", "contexts": [context]},
            {"method": "c", "error": "HTTP 500 from the index", "contexts": []},
        ]},
        {"id": "q2", "question": "And?", "method": "a", "answer": "The plant erica vagans is called Cornish heath.", "contexts": [context]},
    ]  # fmt: skip
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["dataset=jsonl", "dataset.path=d.jsonl", "metrics=[faithfulness,chunk_faithfulness]", "name=x"]
    assert main([*words, "report.formats=[]"]) in (0, 4)
    capsys.readouterr()
    explained = ["task=explain", "run=outputs/x/latest"]
    assert main([*explained, "case=q1"]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if line.strip()}
    assert lines["score"] == ["score", "a", "b", "c"]
    assert lines["faithfulness"][:3] == ["faithfulness", "1 passed", "0 failed"]
    assert lines["faithfulness"][3].startswith("skipped: ")
    assert lines["overall_score"][1:3] == ["1 passed", "0 failed"]
    assert "Cornish heath" in out
    assert "HTTP 500 from the index" in out
    assert "What is erica vagans called?" in out
    assert main([*explained, "case=q1", "metric=faithfulness"]) == 0
    assert "chunk_faithfulness" not in capsys.readouterr().out
    assert main([*explained, "case=q1", "method=b"]) == 0
    assert "score faithfulness = 0" in capsys.readouterr().out
    assert main([*explained, "case=q2"]) == 0
    assert "score faithfulness = 1" in capsys.readouterr().out
    assert main([*explained, "case=q9"]) == 2
    assert "q1" in capsys.readouterr().err
