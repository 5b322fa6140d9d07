"""`task=compare compare.preference=true` over the wire: what is asked, what is not, and what labels, gates and verdicts make of it."""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import OpenAIServer, running, serving
from tests.support.harness import Server, asked_again, committed, finish, kill_after
from tests.support.place import output_of

pytestmark = pytest.mark.slow
KEY = "RAGPIPE_TEST_KEY"
SAME, LOST, ASKED = 3, 2, 10
"""Pairs with the same answer, with a side without one, and those that a judge is asked about."""
FIRST = [{"match": "Answer A", "reply": '{"reason": "it stands first", "winner": "A"}'}]
LONGER = [
    {"match": r"(?s)Answer A:.{0,20}Long.*Answer B:", "reply": '{"reason": "it says more", "winner": "A"}'},
    {"match": r"(?s)Answer B:.{0,20}Long", "reply": '{"reason": "it says more", "winner": "B"}'},
]


def cases(version: str) -> list[dict[str, Any]]:
    rows = []
    for place in range(SAME + LOST + ASKED):
        answer = f"Case {place} says so." if version == "before" or place < SAME else f"Long: case {place} says so, and says why."
        asked = {"id": f"q{place}", "question": f"What does case {place} say?"}
        rows.append({**asked, "answer": answer, "contexts": [f"Passage {place} of {version}."]})
    rows[SAME][{"before": "answer", "after": "category"}[version]] = ""
    if version == "before":
        rows[SAME + 1] |= {"error": "timeout", "answer": ""}
    return rows


def evaluated(name: str, rows: list[dict[str, Any]], metric: str = "format") -> int:
    Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return main(["dataset=jsonl", f"dataset.path={name}.jsonl", f"metrics=[{metric}]", f"name={name}", "report.formats=[]"])


@pytest.fixture
def here(here: Path) -> Path:
    for name in ("before", "after"):
        assert evaluated(name, cases(name), "faithfulness") in (0, 3)
    return here


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with serving(script=LONGER) as found:
        yield found


def words(url: str, *more: str) -> list[str]:
    judge = ["judge=llm", "judge.model=openai/test-model-2026-01-01", "judge.endpoint=test"]
    judge += [f"judge.api_key_env={KEY}", f"judge.api_base={url}"]
    return ["task=compare", "base=before", "candidate=after", "compare.accept=[data]", "compare.preference=true", *judge, *more]


def asked_run(name: str = "after") -> Path:
    manifests = [path for path in Path("outputs", name).glob("*/manifest.json") if "pair" in json.loads(path.read_text())["data"]]
    return max(manifests, key=lambda path: json.loads(path.read_text())["created_at"]).parent


def compared(name: str = "after") -> dict[str, Any]:
    (path,) = Path("outputs", name).glob("comparisons/*/comparison.json")
    return json.loads(path.read_text())


def test_two_calls_a_pair_none_for_equal_answers_and_none_again(here: Path, server: OpenAIServer, capsys) -> None:
    assert main(words(server.url)) == 0
    assert server.tries == 2 * ASKED
    assert "preferred: wins 8" in capsys.readouterr().out
    found = compared()["comparisons"][0]["preference"]
    assert {key: found[key] for key in ("state", "pairs", "wins", "ties", "losses", "identical", "left_out")} == {
        "state": "better", "pairs": SAME + LOST + ASKED, "wins": ASKED, "ties": SAME, "losses": 0, "identical": SAME,
        "left_out": {"no_answer of the base": 1, "system_error": 1},
    }  # fmt: skip
    assert found["win_rate"]["value"] == pytest.approx((ASKED + SAME / 2) / (ASKED + SAME))
    assert (found["first"]["value"], found["inconsistent"]["value"], found["longer"]["value"]) == (0.5, 0.0, 1.0)
    assert found["equal_length"]["reason"] == "one_sided"
    (verdict,) = json.loads(next(Path("outputs/after/comparisons").glob("*/verdict.json")).read_text())["verdicts"]
    assert "preference" in [reason["code"] for reason in verdict["reasons"]]
    for page in ("comparison.md", "compare.html"):
        assert "preferred: wins 8" in next(Path("outputs/after/comparisons").glob(f"*/{page}")).read_text()
    assert main(words(server.url)) == 0
    assert main([*words(server.url)[:4], "compare.preference=false"]) == 0
    assert (server.tries, compared()["comparisons"][0]["preference"]) == (2 * ASKED, found)
    assert main(["task=verify", f"run={asked_run()}"]) == 0
    assert Path("outputs/after/latest").resolve().name != asked_run().name


def test_the_judge_sees_the_contexts_of_both_sides(here: Path, server: OpenAIServer) -> None:
    assert main(words(server.url)) == 0
    table = pq.read_table(asked_run() / "iteration-1" / "judge_inputs.parquet").to_pylist()
    shown = [json.loads(row["messages"])[-1]["content"] for row in table if row["sample_id"] == "q9"]
    assert len(shown) == 2
    for text in shown:
        assert text.count("Passage 9 of before.") == text.count("Passage 9 of after.") == 1
    assert [text.index("Long: case 9") < text.index("Case 9 says so.") for text in shown] == [False, True]


def test_what_cannot_be_asked_is_refused_before_a_call(here: Path, server: OpenAIServer, capsys) -> None:
    asked = words(server.url)
    for given, said in (
        ([*asked[:5], "judge=rules"], "the rules judge, which cannot say which of two answers is better"),
        ([*asked, "compare.accept=[]"], "the runs cannot be compared"),
        ([*asked, "metrics.preference.criteria=''"], "metrics.preference.criteria"),
    ):
        assert said in output_of(given, 2, capsys).err
    assert server.tries == 0


def test_a_judge_that_goes_by_the_order_finds_ties_and_no_result_is_counted_by_its_code(here: Path) -> None:
    with serving(script=[{"match": ".", "reply": "Who knows: q1"}]) as server:
        assert main(words(server.url)) == 4
    assert compared()["comparisons"][0]["preference"]["left_out"] == {"no_answer of the base": 1, "system_error": 1, "unparsable": ASKED}
    with serving(script=FIRST) as server:
        assert main([*words(server.url), "judge.season=first"]) == 0
    found = compared()["comparisons"][0]["preference"]
    assert (found["ties"], found["first"]["value"], found["inconsistent"]["value"]) == (ASKED + SAME, 1.0, 1.0)


def test_a_budget_stops_it_and_the_next_start_goes_on(here: Path, server: OpenAIServer) -> None:
    assert main(words(server.url, "judge.budget.calls=7", "judge.concurrency=1")) == 4
    assert server.tries == 7
    assert main(words(server.url)) == 0
    assert server.tries == 2 * ASKED


def test_no_finished_call_is_repeated_after_a_kill(here: Path) -> None:
    with Server(here / "requests.jsonl", ["--latency-ms", "60"]) as server:
        given = words(server.url, "judge.concurrency=2")
        moment = kill_after(given, here, server, 9)
        assert moment is not None
        done = committed(here / "outputs")
        code, text = finish(given, here)
        assert code == 0, text
        answered = {request["body"] for request in server.requests() if request["status"] == 200 and request["written"]}
        assert (len(answered), bool(done)) == (2 * ASKED, True)
        assert asked_again(server.requests(), [(moment, done)]) == []


def test_a_batch_asks_the_same_and_live_asks_nothing_after_it(here: Path) -> None:
    batches = pytest.importorskip("tests.extras.batch.batch_server")
    with running(batches.BatchServer(script=LONGER)) as server:
        assert main(words(server.url, "transport=batch")) == 0
        assert (len(server.batches.made), server.tries) == (1, 0)
        assert main(words(server.url)) == 0
        assert server.tries == 0
    assert compared()["comparisons"][0]["preference"]["win_rate"]["n"] == ASKED + SAME


def test_another_judge_over_the_pairs_is_a_preference_too(here: Path, server: OpenAIServer) -> None:
    assert main(words(server.url)) == 0
    first = asked_run()
    judge = [word for word in words(server.url) if word.startswith("judge")]
    again = [word.replace("test-model", "other-model") for word in judge]
    assert main(["task=rejudge", f"run={first}", *again]) == 0
    assert server.tries == 4 * ASKED
    second = asked_run()
    assert second != first
    for given, shown in ((words(server.url)[:4], second), (words(server.url), first)):
        assert main(given) == 0
        assert compared()["comparisons"][0]["preference"]["run_id"] == shown.name
    assert server.tries == 4 * ASKED


def test_every_two_methods_of_a_run_and_their_strengths(here: Path, server: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": f"m{place}", "question": f"Q{place}?", "outputs": [
            {"method": method, "answer": f"{word} {place}."} for method, word in (("a", "Short"), ("b", "Long: b"), ("c", "Long: c"))
        ]} for place in range(8)
    ]  # fmt: skip
    assert evaluated("three", rows) == 0
    given = [word for word in words(server.url) if not word.startswith(("base=", "candidate="))]
    assert main([*given, "compare=methods", "run=three"]) == 0
    assert server.tries == 2 * 3 * 8
    document = compared("three")
    assert [item["preference"]["wins"] for item in document["comparisons"]] == [8, 8]
    strengths = {row["method"]: row["strength"] for row in document["strengths"]}
    assert strengths["a"] == 0.0
    assert strengths["b"] > 1
    assert main([*given[:1], "compare=methods", "run=three", "compare.base_method=c"]) == 0
    assert main([*given, "base=three", "candidate=three", "compare.base_method=a"]) == 0  # other pairs of the same tables
    assert server.tries == 2 * 3 * 8
    assert output_of([*given[:1], "compare=methods", "run=three"], 0, capsys).out.count("preference by") == 2


@pytest.mark.parametrize(("method", "shown"), [("m1", True), ("m2", False)])
def test_a_preference_counts_for_the_methods_that_were_paired(here, server, method: str, shown: bool, capsys) -> None:
    for name, methods in (("two", ("m1", "m2")), ("one", ("new",))):
        outputs = [[{"method": own, "answer": f"{own} {place}."} for own in methods] for place in range(8)]
        rows = [{"id": f"q{n}", "question": f"Q{n}?", "outputs": given} for n, given in enumerate(outputs)]
        assert evaluated(name, rows) == 0
    given = ["task=compare", "base=two", "candidate=one"]
    assert main([*given, *words(server.url)[4:], "compare.accept=[data]", "compare.base_method=m1"]) == 0
    assert ("preference by" in output_of([*given, f"compare.base_method={method}"], 0, capsys).out) is shown
    gate = "+scoring.gates.chosen={preference_against: two}"
    assert main(["task=rescore", "run=one", gate, "report.formats=[]"]) == 3
    (gates,) = [json.loads(path.read_text())["gates"] for path in Path("outputs/one").glob("*/gates.json") if "chosen" in path.read_text()]
    assert gates[0]["verdict"] == "no_evidence"


def test_people_label_pairs_blind_and_the_order_is_turned_back(here: Path, server: OpenAIServer) -> None:
    assert main(words(server.url)) == 0
    run = asked_run()
    assert main(["task=label", f"run={run}", "label.metric=preference"]) == 0
    (folder,) = (run / "labels").iterdir()
    page, rows = (folder / "label.html").read_text(), list(csv.DictReader((folder / "sheet.csv").read_text("utf-8-sig").splitlines()))
    for word in ("it says more", "candidate", run.name, '"default"', *(f'"q{place}"' for place in range(SAME + LOST + ASKED))):
        assert word not in page
    assert "Answer A" in page
    firsts = {row["answer_a"].startswith("Long") for row in rows if row["answer_a"] != row["answer_b"]}
    assert firsts == {True, False}
    with open("labels.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["item", "annotator", "label"])
        for row in rows:
            chosen = "neither" if row["answer_a"] == row["answer_b"] else "A is better" if "Long" in row["answer_a"] else "B is better"
            table.writerow([row["item"], "ann", chosen])
    assert main(["task=label", f"run={run}", "label.import=[labels.csv]"]) == 0
    values = Counter(row["label"] for row in pq.read_table(folder / "labels.parquet").to_pylist())
    assert values == {1.0: ASKED, 0.5: SAME}
    assert main(["task=calibrate", f"run={run}"]) == 0
    statistics = json.loads((run / "calibration" / "calibration.json").read_text())["scores"]["preference"]["statistics"]
    assert {name: found["value"] for name, found in statistics.items()} == {"agreement": 1.0, "kappa": 1.0, "agreement_without_ties": 1.0}
    assert main(["task=rescore", f"run={run}", "report.formats=[]"]) == 0
    rescored, tries = asked_run().name, server.tries
    assert rescored != run.name
    for again in (words(server.url)[:4], words(server.url)):
        assert main(again) == 0
        assert compared()["comparisons"][0]["preference"]["run_id"] == rescored
    assert server.tries == tries


def test_a_gate_on_a_preference_waits_for_it_and_never_asks(here: Path, server: OpenAIServer) -> None:
    gate = "+scoring.gates.chosen={preference_against: before, min_win_rate: 0.5, coverage_floor: 0.9}"
    given = ["dataset=jsonl", "dataset.path=after.jsonl", "metrics=[faithfulness]", "name=after", "report.formats=[]", gate]

    def decided(*words: str) -> dict[str, Any]:
        assert main([*words, "report.formats=[]"]) in (0, 3)
        newest = max(Path("outputs/after").glob("*/gates.json"), key=lambda path: path.stat().st_mtime_ns)
        return json.loads(newest.read_text())["gates"][0]

    first = decided(*given)
    run = Path("outputs/after/latest").resolve()
    assert (first["verdict"], first["outcome"]) == ("no_evidence", "blocked")
    assert f"candidate={run.name} compare.preference=true" in first["absent"]
    assert main(words(server.url)) == 0
    tries = server.tries
    assert decided("task=rescore", f"run={run}")["verdict"] == "uncalibrated"
    passed = decided("task=rescore", f"run={run}", "scoring.accept_uncalibrated=true")
    assert (passed["verdict"], passed["n_ok"]) == ("passed", SAME + ASKED)
    strict = decided("task=rescore", f"run={run}", "scoring.accept_uncalibrated=true", "scoring.gates.chosen.min_win_rate=0.99")
    assert (strict["verdict"], server.tries) == ("failed", tries)


@pytest.mark.parametrize(("cases", "answers", "verdict", "counts"), [
    (15, 15, "passed", (15, 15, 0, 0)), (15, 6, "not_enough_evidence", (15, 6, 9, 0)), (6, 6, "no_evidence", (6, 0, 0, 0)),
])  # fmt: skip
def test_a_gate_on_a_preference_lacks_evidence_without_most_pairs(here, server, cases, answers, verdict, counts) -> None:
    """Of the 15 cases of the older run the newer one has `cases`, and to the first of them `answers`."""
    for name, total, answered in (("older", 15, 15), ("newer", cases, answers)):
        texts = [f"Long: {name} {place}." if place < answered else "" for place in range(total)]
        rows = [{"id": f"q{n}", "question": f"Q{n}?", "answer": text, "contexts": ["P."]} for n, text in enumerate(texts)]
        assert evaluated(name, rows) == 0
    run = Path("outputs/newer/latest").resolve()
    assert main(["task=compare", "base=older", f"candidate={run}", *words(server.url)[3:]]) == 0
    gate = "+scoring.gates.chosen={preference_against: older, min_win_rate: 0.1}"
    main(["task=rescore", f"run={run}", gate, "scoring.accept_uncalibrated=true", "report.formats=[]"])
    (path,) = [path for path in Path("outputs/newer").glob("*/gates.json") if "chosen" in path.read_text()]
    assert main(["task=verify", f"run={path.parent}"]) == 0
    (decided,) = json.loads(path.read_text())["gates"]
    assert decided["verdict"] == verdict
    assert tuple(decided[name] for name in ("n_cases", "n_ok", "n_error", "n_skipped")) == counts
