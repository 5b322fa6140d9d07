"""`task=compare` on real runs of the demonstration set: runs, methods, how runs are named, what is refused, what is written."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as Xml

import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

import ragpipe
from ragpipe.cli import main
from ragpipe.core.errors import ConfigError
from ragpipe.engine.runs.run_list import list_runs, run_list_folders
from ragpipe.store.run.run_folder import RunFolder
from tests.support.page_blocks import block_json

pytestmark = pytest.mark.slow  # whole runs, several per test

METRICS = ("dataset=demo", "metrics=[retrieval,faithfulness]", "report.formats=[]")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of the demonstration set: `first`; `second` with another judge; `third` with fewer cases."""
    home = tmp_path_factory.mktemp("home") / "outputs"
    for name, words in (("first", ()), ("second", ("judge.threshold=0.9",)), ("third", ("dataset.limit=30",))):
        assert main([*METRICS, f"output_dir={home}", f"name={name}", *words]) == 0
    return home


@pytest.fixture
def here(outputs: Path, tmp_path: Path) -> Path:
    shutil.copytree(outputs, tmp_path / "outputs", symlinks=True)
    return tmp_path / "outputs"


def compare(here: Path, *words: str) -> int:
    return main(["task=compare", f"output_dir={here}", *words])


def document(here: Path, name: str = "first") -> dict:
    (folder,) = (here / name / "comparisons").iterdir()
    return json.loads((folder / "comparison.json").read_text())


def test_the_methods_of_a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(here, "compare=methods", "run=first", "compare.base_method=baseline") == 0
    out = capsys.readouterr().out
    comparison = document(here)
    assert [side["method"] for side in comparison["candidates"]] == ["rerank", "no_rerank_small_k"]
    assert out.startswith(comparison["comparisons"][0]["verdict"]["sentence"])
    assert comparison["comparisons"][1]["cases"] == {"both": 21, "only_base": 19, "only_candidate": 0, "questions": 21}
    (folder,) = (here / "first" / "comparisons").iterdir()
    assert {path.name for path in folder.iterdir()} >= {
        "comparison.json",
        "comparison.md",
        "comparison.parquet",
        "comparison.junit.xml",
        "compare.html",
    }
    rows = pq.read_table(folder / "comparison.parquet").to_pylist()
    score = comparison["comparisons"][0]["scores"]["faithfulness"]
    differences = [
        row["difference"]
        for row in rows
        if (row["comparison"], row["score"]) == (0, "faithfulness") and row["difference"] is not None
    ]
    assert len(differences) == score["n"]
    assert sum(differences) / len(differences) == pytest.approx(score["difference"])
    assert sum(value > 0 for value in differences) == score["wins"]


def test_the_same_comparison_writes_nothing_anew(here: Path) -> None:
    words = ("compare=methods", "run=first", "compare.base_method=baseline")
    assert compare(here, *words) == 0
    before = {path: path.stat().st_mtime_ns for path in (here / "first" / "comparisons").glob("*/*")}
    assert len(before) >= 4
    assert compare(here, *words) == 0
    assert {path: path.stat().st_mtime_ns for path in (here / "first" / "comparisons").glob("*/*")} == before


def test_a_comparison_is_no_run(here: Path) -> None:
    assert compare(here, "compare=methods", "run=first") == 0
    assert [folder.name for folder in run_list_folders(here)] == ["first", "second", "third"]
    assert len(list_runs(here / "first")[0]) == 1


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("word", ["first/latest", "{id}", "{here}/first"])
def test_a_run_by_any_of_its_names(here: Path, word: str) -> None:
    run_id = RunFolder.find(here / "first").root.name
    assert compare(here, f"base={word.format(id=run_id, here=here)}", "candidate=first") == 0
    comparison = document(here)
    assert comparison["base"]["run_id"] == comparison["candidates"][0]["run_id"] == run_id
    assert comparison["comparisons"][0]["verdict"]["state"] == "inconclusive"


def test_latest_is_that_of_the_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(here, "name=first", "base=latest", "candidate=latest") == 0
    assert document(here)["base"]["name"] == "first"
    assert compare(here, "base=latest", "candidate=first") == 2
    assert "'latest' of 3 names" in capsys.readouterr().err


def test_a_run_that_is_not_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(here, "base=frist", "candidate=first") == 2
    assert "did you mean first?" in capsys.readouterr().err
    assert compare(here, "candidate=first") == 2
    assert "task=compare base=RUN candidate=RUN" in capsys.readouterr().err
    assert compare(here, "base=first", "candidate=first", "run=first") == 2
    assert "no run with compare=runs" in capsys.readouterr().err


def test_another_judge_and_other_data_are_refused_and_can_be_accepted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(here, "base=first", "candidate=[second,third]") == 2
    err = capsys.readouterr().err
    assert "judge.threshold" in err
    assert "0.33 -> 0.9" in err
    assert ": data\n    found:    samples" in err
    assert "compare.accept=[judge]" in err
    assert "compare.accept=[data]" in err
    assert not (here / "third" / "comparisons").exists()
    assert compare(here, "base=first", "candidate=[second,third]", "compare.accept=[judge,data]") == 0
    out = capsys.readouterr().out
    assert "differs (accepted): judge: judge.threshold: 0.33 -> 0.9" in out
    comparison = document(here, "third")["comparisons"]
    assert comparison[0]["cases"]["both"] == 101
    assert comparison[1]["cases"]["both"] == 78  # the outputs of 30 samples
    assert comparison[1]["cases"]["only_base"] == 23


def test_markdown_and_junit(here: Path) -> None:
    assert compare(here, "compare=methods", "run=first", "compare.base_method=baseline") == 0
    (folder,) = (here / "first" / "comparisons").iterdir()
    page = (folder / "comparison.md").read_text()
    tokens = MarkdownIt("commonmark", {"html": False}).enable("table").parse(page)
    heads = [after.content for token, after in pairwise(tokens) if token.type == "th_open"]
    assert heads[:7] == ["score", "base", "new", "difference", "w/t/l", "verdict", "could show"]
    assert "| --- | ---: | ---: | ---: | ---: | --- | ---: |" in page, "words are aligned left, figures right"
    suites = Xml.parse(folder / "comparison.junit.xml").getroot().findall("testsuite")
    comparison = json.loads((folder / "comparison.json").read_text())
    assert len(suites) == 2
    for suite, item in zip(suites, comparison["comparisons"], strict=True):
        scores = {name: score for name, score in item["scores"].items() if score["headline"]} | item["operations"]
        states = {case.get("name"): {child.tag for child in case} for case in suite.iter("testcase")}
        expected = {"worse": {"failure"}, "inconclusive": {"skipped"}, "better": {"system-out"}, "same": {"system-out"}}
        assert states == {name: expected[score["state"]] for name, score in scores.items()}
        assert suite.get("failures") == str(sum(score["state"] == "worse" for score in scores.values()))


def test_looking_early_decides_less(here: Path) -> None:
    words = ("compare=methods", "run=first", "compare.base_method=baseline", "compare.candidate_methods=[rerank]")
    states = {}
    for planned in (40, 80, 400):  # 40 cases are there: all, half, a tenth
        assert compare(here, *words, f"compare.planned={planned}") == 0
    for folder in (here / "first" / "comparisons").iterdir():
        comparison = json.loads((folder / "comparison.json").read_text())["comparisons"][0]
        score = comparison["scores"]["overall_score"]
        interval = score["interval"]
        states[comparison["look"]["planned"]] = (
            comparison["look"]["share"],
            score["state"],
            interval["high"] - interval["low"],
        )
    assert [states[planned][0] for planned in (40, 80, 400)] == [1.0, 0.5, 0.0]
    assert states[40][1] == "better"
    assert states[400][1] == "inconclusive"
    assert states[80][2] > states[40][2]


def test_from_python(here: Path) -> None:
    result = ragpipe.compare(here / "first", here / "second", {"compare": {"accept": ["judge"]}}, quiet=True)
    assert result["comparisons"][0]["differs"][0]["accepted"]
    with pytest.raises(ConfigError, match=r"judge\.threshold"):
        ragpipe.compare(here / "first", [here / "second"], quiet=True)


def test_why_a_score_changed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same answers by another judge: all of it is the judge's, and what no judge decides did not change."""
    assert compare(here, "base=first", "candidate=second", "compare.accept=[judge]", "compare.why=true") == 0
    comparison = document(here, "second")["comparisons"][0]
    why, scores = comparison["why"], comparison["scores"]
    assert set(why) == {name for name, score in scores.items() if score["headline"]}
    for name, sources in why.items():
        assert sources["parts"][0]["parts"] == ["judge"]
        assert sum(part["change"] for part in sources["parts"]) == pytest.approx(sources["total"])
        assert sources["parts"][0]["change"] == pytest.approx(scores[name]["difference"])
    assert why["retrieval_score"]["total"] == 0
    assert "faithfulness changed by" in capsys.readouterr().out


def test_a_page_with_too_much_data_has_files_beside_it(here: Path) -> None:
    words = ("compare=methods", "run=first", "compare.base_method=baseline")
    assert compare(here, *words, "report.single_file_mb=0") == 0
    (folder,) = (here / "first" / "comparisons").iterdir()
    html = (folder / "compare.html").read_text(encoding="utf-8")
    files = block_json(html, "files")
    assert {name for name, _ in files["files"]} == {path.name for path in (folder / "compare.data").iterdir()}
    assert compare(here, *words) == 0  # it fits: nothing is left beside it
    assert not (folder / "compare.data").exists()
