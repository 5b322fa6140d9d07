"""The pages that are made from the code are those of this code, and say what a run really writes."""

import json
import re
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from tests.support.docs_site import docs_script
from tests.support.pages import DOCS

REJUDGED = {"agreement.json", "agreement.md", "agreement.html"}
LABELLED = {"draw.json", "draw.parquet", "label.html", "labels.parquet"}
"""Files of the draws of `task=label`."""
MUTATED = {"selftest.json", "selftest.md", "selftest.html"}
OF_A_NAME = {"history.parquet"}
"""Files that only a run made from a run has."""
WEIGHED = {"weights.json", "weights.md"}
"""Files of `task=weights`."""


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return docs_script("generate.py")


@pytest.mark.slow
@pytest.mark.parametrize("page", ["file-formats.md", "metrics.md", "configuration.md"])
def test_a_generated_page_is_up_to_date(generate: ModuleType, page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == generate.PAGES[page](), "run `python docs/generate.py`"


@pytest.mark.slow
def test_a_run_holds_the_files_and_columns_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-m", "dataset=demo", "dataset.limit=2", "metrics=[faithfulness]", "name=x"]
    assert main([*words, "scoring.composites.ragas_score=null"]) == 0  # the page shows the columns of one score
    run, page = tmp_path / "outputs" / "x" / "latest", (DOCS / "file-formats.md").read_text(encoding="utf-8")
    listed = [name.replace("-N", "-1") for name in re.findall(r"`([^`]+)`", page.split("\n## ")[0].split("|---|---|")[1])]
    files = {name for name in listed if re.fullmatch(r"[\w./\-]+\.(json|jsonl|yaml|parquet|md|html)|prompts/", name)}
    there = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and "prompts" not in path.parts}
    # of a live system and its budget, an index manifest, a gate, and of an iteration that is not done
    live = {
        "outputs.journal.jsonl",
        ".system-budget.jsonl",
        "iteration-1/journal.jsonl",
        "index.json",
        "index.parquet",
        "baseline.parquet",
        "calibration.json",
    }
    assert there | {"prompts/"} | live | REJUDGED | MUTATED | WEIGHED | LABELLED == files
    described = dict(section.split("\n", 1) for section in re.split(r"\n## ", page)[1:])
    for name in (name for name in described if name.endswith(".parquet") and name not in REJUDGED | MUTATED | OF_A_NAME | live):
        columns = re.findall(r"^\| `([^`]+)` \|", described[name], re.M)
        folders = (run, run / "iteration-1", *(run.parent / "sweeps").iterdir())
        (path,) = (folder / name for folder in folders if (folder / name).exists())
        assert pq.read_schema(path).names == columns, name  # others: test_rejudge.py, test_history.py
    metrics = json.loads((run / "iteration-1" / "metrics.json").read_text())
    score = metrics["overall"]["scores"]["faithfulness"]
    missing = {
        key
        for key in (*metrics, *metrics["declared"]["faithfulness"], *metrics["shared"], *score)
        if f"`{key}`" not in described["metrics.json"]
    }
    for name, path in (("cost.json", run / "iteration-1" / "cost.json"), ("gates.json", run / "gates.json")):
        missing |= {f"{name}: {key}" for key in json.loads(path.read_text()) if f"`{key}`" not in described[name]}
    assert not missing
