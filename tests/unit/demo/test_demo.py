"""The demonstration data: its form, and that the failures it declares are really there and nowhere else."""

import json
import re
from collections import Counter
from pathlib import Path

import yaml

import ragpipe
from ragpipe.core.resources import conf_dir
from ragpipe.core.sample import Case, Output, Sample
from ragpipe.data.dataset import open_dataset
from ragpipe.data.settings import DatasetSettings

FOLDER = Path(ragpipe.__file__).parent / "data" / "demo"
METHODS = ("baseline", "rerank", "no_rerank_small_k")
KINDS = {
    "unsupported_claim", "irrelevant_context", "irrelevant_answer", "missing_citation", "quote_only_violation",
    "policy_violation", "false_rejection", "false_acceptance", "training_cutoff_excuse", "retrieval_miss", "incomplete_answer",
    "hallucinated_unanswerable", "system_error", "wrong_number", "wrong_name", "dangling_citation", "scope_miss",
    "stale_source", "empty_answer", "refusal_then_answer",
}  # fmt: skip
LINES = [json.loads(line) for line in (FOLDER / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
SAMPLES = [{key: value for key, value in line.items() if key != "outputs"} for line in LINES]
CASES = [
    Case(Sample.model_validate(sample), Output(**output, sample_id=sample["id"]))
    for sample, line in zip(SAMPLES, LINES, strict=True) for output in line["outputs"]
]  # fmt: skip


def planted(case: Case) -> list[str]:
    return case.sample.meta["planted"].get(case.output.method, [])


def test_every_kind_occurs_and_no_other() -> None:
    assert {kind for case in CASES for kind in planted(case)} == KINDS


def test_forty_questions_ten_of_each_domain_with_unique_ids() -> None:
    ids = [line["id"] for line in LINES]
    assert len(set(ids)) == len(ids) == 40
    assert Counter(line["tags"][0] for line in LINES) == dict.fromkeys(("dao", "courses", "earnings", "novels"), 10)
    assert all(line["id"].rsplit("-", 1)[0] == line["tags"][0] for line in LINES)
    assert len({case.key for case in CASES}) == len(CASES)
    for line in LINES:
        methods = [output["method"] for output in line["outputs"]]
        assert methods in (list(METHODS), list(METHODS[:2])), line["id"]
        assert set(line["meta"]["planted"]) <= set(methods), line["id"]


def test_the_four_failure_scenarios_and_the_worked_example_are_there() -> None:
    assert {line["meta"]["scenario"]: line["meta"]["planted"]["baseline"] for line in LINES if "scenario" in line["meta"]} == {
        "worked example": ["unsupported_claim", "wrong_number", "wrong_name"], "A: hallucination": ["unsupported_claim", "wrong_number"],
        "B: off topic": ["irrelevant_answer"], "C: retrieval failure": ["retrieval_miss", "irrelevant_context", "irrelevant_answer"],
        "D: partial correctness": ["incomplete_answer"],
    }  # fmt: skip


def test_rerank_is_better_than_the_baseline_but_not_perfect() -> None:
    failing = Counter(case.output.method for case in CASES if set(planted(case)) - {"refusal_then_answer"})
    total = Counter(case.output.method for case in CASES)
    assert 0 < failing["rerank"] / total["rerank"] <= 0.2
    assert failing["baseline"] / total["baseline"] >= 0.5
    assert failing["baseline"] < total["baseline"]


def test_the_readme_counts_what_is_there() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    there = Counter((kind, case.output.method) for case in CASES for kind in planted(case))
    assert {row[0]: [int(n) for n in row[1:]] for row in rows} == {k: [there[k, m] for m in METHODS] for k in KINDS}


def test_the_shipped_option_reads_every_case_in_the_order_of_the_file_and_loses_nothing(tmp_path: Path) -> None:
    """No label, and no chunk."""
    section = yaml.safe_load((conf_dir() / "dataset" / "demo.yaml").read_text("utf-8"))
    records = list(open_dataset(DatasetSettings.model_validate(section), tmp_path))
    assert [record.output for record in records] == [case.output for case in CASES]
    samples = [sample for sample, line in zip(SAMPLES, LINES, strict=True) for _ in line["outputs"]]
    assert [record.sample.model_dump(mode="json", exclude_unset=True) for record in records] == samples
