"""`task=plan` and `task=explain`: what a plan says of data and of a live system, and how near its figures come."""

import hashlib
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.resources import data_path
from ragpipe.judge.answer_parsing import PARSER
from ragpipe.judge.answers import YesNo
from ragpipe.judge.pricing import count_tokens
from ragpipe.runs import frozen_plan
from ragpipe.store.folder_lock import FolderLock
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases
from tests.support.place import output_of
from tests.support.rejudged import KEY

pytestmark = pytest.mark.slow  # whole runs
CASE = {"question": "Who wrote it?", "answer": "Ada wrote it.", "contexts": ["Ada wrote it."]}


def write(folder: Path, *cases: dict[str, object]) -> list[str]:
    lines = [json.dumps({"id": f"q{i}"} | CASE | case) for i, case in enumerate(cases)]
    (folder / "cases.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return ["dataset=jsonl", f"dataset.path={folder / 'cases.jsonl'}", f"output_dir={folder}"]


def test_the_demonstration_is_short_and_warns_of_nothing(tmp_path, capfd, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "plan.json"
    printed, warned = output_of(["+experiment=quickstart", "task=plan", f"output_dir={tmp_path}", f"plan.out={out}"], 0, capfd)
    assert warned == ""
    assert len(printed.splitlines()) <= 50
    plan = json.loads(out.read_text(encoding="utf-8"))
    assert (plan["samples"], sum(plan["cases"].values()), plan["calls"]["all"]) == (40, 101, 502)
    assert [finding["name"] for finding in plan["findings"] if finding["is_warning"]] == []


def test_what_cannot_be_measured_is_said_by_the_plan_and_when_a_run_starts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recorded = {"recorded": {"helpfulness": 0.5}}
    words = [*write(tmp_path, {"reference": "Ada."} | recorded, {}), "metrics=[faithfulness,correctness,citation]"]
    lines = (
        "warning: correctness: the rules judge cannot answer it; needs judge=llm\n",
        "warning: citation: skipped in every case (2 no_citations_recorded); it needs answer, contexts, citations",
    )
    unscored = (
        "recorded.helpfulness (1 of 2 cases) is in no score: 'metrics=[faithfulness,correctness,citation,recorded]' and "
        "'metrics.recorded.take={helpfulness: {low: 0, high: 1}}'; check the scales, and add higher_is_better: false where a "
        "high value is a bad one\n"
    )
    out, planned = output_of([*words, "task=plan"], 0, capfd)
    assert unscored in out
    out, started = output_of([*words, "name=other"], 0, capfd)
    assert unscored in out
    for line in lines:
        assert planned.count(line) == 1
        assert started.count(line) == 1


def test_a_live_system_is_counted_and_its_questions_are_profiled(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = write(tmp_path, {"answer": None, "contexts": None}, {"answer": None, "contexts": None, "id": "Q0"})
    live = ["system=http", "system.url=http://127.0.0.1:9/ask", "system.repeats=3", "metrics=[faithfulness]"]
    printed, warned = output_of([*words, *live, "task=plan"], 0, capfd)
    assert "2 samples; the http system is asked 3 times for each when the run starts: 6 questions to it" in printed
    assert "1 id differs from another in case or blanks only, first 'Q0' and 'q0'" in warned
    assert "faithfulness" not in warned


def test_a_plan_is_the_same_whether_a_run_has_frozen_the_cases_or_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The cases of a run of this name are taken as it froze them, unless they were damaged since or are others."""
    data = tmp_path / "cases.csv"
    data.write_text("id,question,answer,reference\nq1,What is it?,A cat.,NaN\nq2,And that?,A dog.,A dog.\n")
    words = ["dataset=jsonl", f"dataset.path={data}", "metrics=[format]", "name=planned", f"output_dir={tmp_path}"]

    def plan() -> str:
        assert main(["task=plan", *words]) == 0
        return "".join(capfd.readouterr())

    before = plan()
    assert "reference (1)" in before, "what reading it noticed"
    assert main(words) == 0
    capfd.readouterr()
    after = plan()
    (outputs,) = tmp_path.glob("planned/[!l]*/outputs.parquet")
    table, manifest = pq.read_table(outputs), outputs.with_name("manifest.json")
    pq.write_table(table.slice(0, 1), outputs)
    damaged = plan()
    assert before == after == damaged
    noted = json.loads(manifest.read_text())
    noted["data"]["frozen"]["outputs.parquet"] = hashlib.sha256(outputs.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(noted))
    assert "2 samples, 1 case," in plan(), "what is frozen is read, and not the data"
    data.write_text(data.read_text() + "q3,And here?,A bird.,A bird.\n")
    assert "3 cases" in plan()


def test_a_folder_that_another_process_is_filling_is_left_alone(here: Path) -> None:
    data = write_cases(here / "data.jsonl", 1)
    words = ["dataset=jsonl", f"dataset.path={data}", "metrics=[faithfulness]", "name=two"]
    assert main(words) == 0
    run = (here / "outputs" / "two" / "latest").resolve()
    shutil.rmtree(run)
    run.mkdir()
    (run / "samples.parquet").write_bytes(b"half way")  # no manifest yet: the other one is still loading
    with FolderLock(run):
        assert main(words) == 6
        assert (run / "samples.parquet").read_bytes() == b"half way"


def test_another_reader_reads_the_stored_replies_again_in_a_run_of_its_own(here: Path, monkeypatch: Any) -> None:
    data = write_cases(here / "data.jsonl", 4)

    def run_with(url: str, parser: int) -> tuple[Path, list[Any]]:
        monkeypatch.setattr("ragpipe.runs.identity.PARSER", parser)
        assert main(arguments(data, here / "out", url, metrics="chunk_faithfulness")) == 0
        folder = (here / "out" / "torture" / "latest").resolve()
        return folder, pq.read_table(folder / "iteration-1" / "scores.parquet")["value"].to_pylist()

    with serving() as server:
        with monkeypatch.context() as older:
            older.setattr("ragpipe.judge.case_judge.read_answer", lambda text, answer, _: (YesNo(verdict="NO", text=text), ()))
            before, no = run_with(server.url, PARSER - 1)
        asked = len(server.log)
        after, values = run_with(server.url, PARSER)
        assert len(server.log) == asked, "the second run takes every reply from the store"
    assert asked == 4 * 3, "a reader that knows no YES goes through all chunks"
    assert before.name != after.name
    assert (before.parent, no) == (after.parent, [0.0] * 4)
    assert 1.0 in values, "the replies do say YES somewhere"
    assert [json.loads((run / "manifest.json").read_text())["identity"]["parser"] for run in (before, after)] == [PARSER - 1, PARSER]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("metric", "shown", "hidden"), [
    ("mrr", ["mrr", "precision@3"], ["faithfulness"]),
    ("overall_score", ["retrieval_score", "faithfulness"], ["chunk_faithfulness"]),  # the parts with a weight
])  # fmt: skip
def test_a_figure_is_explained_by_any_of_its_names(run: Path, metric: str, shown: list[str], hidden: list[str], capsys) -> None:
    lines = output_of(["task=explain", f"run={run}", "case=q1", f"metric={metric}"], 0, capsys).out.splitlines()
    above = next(number for number, line in enumerate(lines) if line.startswith("overall_score = "))
    scores = set(re.findall(r"[\w@]+", " ".join(lines[lines.index("") : above])))
    assert set(shown) <= scores
    assert not scores & set(hidden)
    notes = sum(line.startswith("  found: ") and "rank" in line for line in lines)
    assert notes == int(metric == "mrr"), "once for all of retrieval"


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
        assert main(arguments(here / "data.jsonl", here / "out", server.url, "metrics.faithfulness.batch=1")) == 0
        yield (here / "out" / "torture" / "latest").resolve()


def questions(out: str) -> list[tuple[str, str]]:
    parts = re.split(r"^question \d+ of \d+: (.*) \(ask\)$", out, flags=re.M)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def test_the_questions_of_a_chain_stand_by_rank_and_those_of_a_fan_out_by_index(wide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = (wide / "iteration-1" / "judge_inputs.parquet").read_bytes()
    found = questions(output_of(["task=explain", f"run={wide}", "case=q", "messages=true"], 0, capsys).out)
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


@pytest.mark.thorough
def test_a_question_of_several_methods_is_a_table_of_them(here, monkeypatch, capsys) -> None:
    """a says what its context says, b something else, c failed; q2 was asked of a alone, which is a chain."""
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
    (here / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["dataset=jsonl", "dataset.path=d.jsonl", "metrics=[faithfulness,chunk_faithfulness]", "name=x"]
    assert main([*words, "report.formats=[]"]) in (0, 4)
    capsys.readouterr()
    explained = ["task=explain", "run=outputs/x/latest"]
    out = output_of([*explained, "case=q1"], 0, capsys).out
    lines = {line.split()[0]: re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if line.strip()}
    assert lines["faithfulness"][:3] == ["faithfulness", "1 passed", "0 failed"]
    assert lines["faithfulness"][3].startswith("skipped: ")
    assert "HTTP 500 from the index" in out
    assert "\nfaithfulness = 0" in output_of([*explained, "case=q1", "method=b"], 0, capsys).out
    assert "faithfulness 1" in output_of([*explained, "case=q2"], 0, capsys).out


MANY = 4_500  # four blocks of 1,000 and one of 500
WORDS = [
    "dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[correctness]", "judge=llm", "judge.model=openai/test-2026-01-01",
    "judge.endpoint=test", "judge.api_key_env=RAGPIPE_TEST_KEY", "judge.retries=0", "name=many", "report.formats=[]", "runner=local",
]  # fmt: skip


@pytest.fixture
def _many(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_plan, "MOST_CASES", 1_000)
    with open("cases.jsonl", "w") as file:
        for number in range(MANY):
            record = {"id": f"q{number}", "question": f"What is {number}?", "answer": f"It is {number}.", "contexts": ["None."]}
            file.write(json.dumps(record | ({} if number % 2 else {"reference": f"{number}."})) + "\n")


def figures(text: str) -> dict[str, int]:
    line = re.search(r"plan: .*", " ".join(text.split()))
    assert line is not None, text
    names = {
        "cases": r"([\d,]+) cases, about", "new": r"about ([\d,]+) new", "stored": r"\(([\d,]+) replies are", "of": r"from ([\d,]+) cases",
    }  # fmt: skip
    counts = {name: re.search(pattern, line[0]) for name, pattern in names.items()}
    return {name: int(match[1].replace(",", "")) for name, match in counts.items() if match}


@pytest.mark.thorough
@pytest.mark.usefixtures("_many")
def test_a_plan_of_many_cases_is_estimated_and_replies_of_finished_blocks_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    with serving(faults=["401:after=700"]) as server:
        assert main([*WORDS, f"judge.api_base={server.url}"]) not in (0, 3, 4)
        answered = sum(line["status"] == 200 for line in server.log)
    # every second case has a reference, in each block: 4,500 / 2
    assert figures("".join(capfd.readouterr())) == {"cases": MANY, "new": MANY // 2, "of": 1_000}
    with serving() as server:
        assert main([*WORDS, f"judge.api_base={server.url}"]) == 0
        asked = len(server.log)
    assert asked == MANY // 2 - answered
    counts = figures("".join(capfd.readouterr()))
    assert (counts["cases"], counts["of"]) == (MANY, 1_000)
    # the replies of finished blocks are counted; of the block that was cut off, the blocks that are looked at say nothing
    assert answered - 500 < counts["stored"] <= answered
    assert counts["stored"] + counts["new"] == answered + asked


@pytest.mark.usefixtures("_many")
def test_task_plan_estimates_calls_and_profiles_all_cases(capfd: pytest.CaptureFixture[str]) -> None:
    with open("cases.jsonl", "a") as file:
        file.write(json.dumps({"id": "last", "question": "?", "answer": "It is."}) + "\n")
    assert main(["task=plan", *WORDS[:-1]]) == 0
    text = "".join(capfd.readouterr())
    assert figures(text) == {"cases": MANY + 1, "new": MANY // 2, "of": 1_000}
    assert "4,501 samples, 4,501 cases" in text


MODEL = "openai/gpt-4o-2024-08-06"
FIXED_STEPS = {"faithfulness/extract", "groundedness/grade", "correctness/grade", "chunk_faithfulness/first"}
"""Steps whose questions follow from the case alone. What the others show are replies, which a plan can only guess."""


def planned_steps(*words: str) -> dict[str, dict]:
    assert main(["task=plan", "plan.out=plan.json", *words]) == 0
    steps = json.loads(Path("plan.json").read_text())["steps"]
    return {f"{step['metric']}/{step['prompt'].rpartition('/')[2].partition('.')[0]}": step for step in steps}


@pytest.mark.thorough
def test_prompts_are_counted_as_the_server_counts_them(here: Path) -> None:
    """120 cases of growing length, of which 50 are rendered: the rest is counted by its length."""
    lines = write_cases(Path("data.jsonl"), 120).read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for number, record in enumerate(records):
        record["contexts"] = [text * (1 + number // 15) for text in record["contexts"]]
        record["answer"] += " It names a third thing, which is longer." * (number // 10)
    Path("data.jsonl").write_text("\n".join(map(json.dumps, records)))
    with serving(count=partial(count_tokens, model=MODEL)) as server:
        words = [
            "dataset=jsonl", "dataset.path=data.jsonl", "metrics=[faithfulness,groundedness,correctness,chunk_faithfulness]",
            "judge=llm", f"judge.model={MODEL}", f"judge.api_base={server.url}", "judge.api_key_env=RAGPIPE_TEST_KEY",
            "name=counted", "judge.endpoint=test",
        ]  # fmt: skip
        before = planned_steps(*words)
        assert main(words) == 0
        bill = sum(line["usage"]["prompt_tokens"] for line in server.log)
    tokens: defaultdict[str, list[int]] = defaultdict(list)
    replies: defaultdict[str, list[int]] = defaultdict(list)
    for row in pq.read_table("outputs/counted/latest/iteration-1/judge_inputs.parquet").to_pylist():
        tokens[f"{row['metric']}/{row['step']}"].append(row["tokens_in"])
        replies[f"{row['metric']}/{row['step']}"].append(row["tokens_out"])
    assert sum(map(sum, tokens.values())) == bill
    for step in FIXED_STEPS:
        assert before[step]["calls"] == len(tokens[step]) == 120
        assert before[step]["tokens_in"] == pytest.approx(sum(tokens[step]), rel=0.05), step
    after = planned_steps(*words, "judge.season=again")
    for step in FIXED_STEPS:
        assert after[step]["earlier_replies"] == 120
        assert after[step]["tokens_out"] == pytest.approx(sum(replies[step]), rel=0.01), step
    assert not any(step["earlier_replies"] for step in planned_steps(*words, "judge.endpoint=other").values())


def test_completions_are_those_of_a_recorded_judge_by_step(here: Path) -> None:
    """The recording has the completion tokens of a large language model for seven steps: the plan knows none of its replies."""
    recorded: defaultdict[str, list[int]] = defaultdict(list)
    _, *lines = data_path("package:demo/judge_replies.jsonl").read_text(encoding="utf-8").splitlines()
    for reply in map(json.loads, lines):
        *_, metric, step = reply["question"].split(" / ")
        if "repair" not in step:
            recorded[f"{metric}/{step.partition('.')[0]}"].append(reply["tokens_out"])
    steps = planned_steps("+experiment=quickstart_llm")
    assert set(recorded) <= set(steps)
    for name, tokens in recorded.items():
        per_call = steps[name]["tokens_out"] / steps[name]["calls"]
        assert per_call == pytest.approx(sum(tokens) / len(tokens), rel=0.25), name
        assert steps[name]["earlier_replies"] == 0
