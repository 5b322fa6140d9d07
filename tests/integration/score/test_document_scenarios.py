"""llamaindex-evaluators.md: its worked example and its failure scenarios, from their texts to their diagnosis.

The replies are those of a large language model that read each prompt by itself (2026-11-28). The document prints no contexts for
B to D and no answer for C; those here say what it tells of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.score import ScoreSpec
from ragpipe.judge.rules.rules_judge import RulesJudge
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.support.run_tables import Row, records, score, write_run

STATUS = "What is the status of the STIP proposal and who proposed it?"
STIP = [
    "# Arbitrum Short-Term Incentive Program (STIP)\n\nAuthor: Arbitrum Foundation\nCategory: Incentives\nCreated: 2023-10-15\n\n"
    "## Tally On-chain Vote\nStatus: executed\nOn-chain ID: 47832\nVoting Start: 2023-11-01\nVoting End: 2023-11-15",
    "# Arbitrum Short-Term Incentive Program (STIP)\n\n## Snapshot Temperature Check\nStatus: closed\nVoting Start: 2023-10-20",
    "The STIP program allocated 50 million ARB tokens to incentivize\nprotocol growth on Arbitrum. Delegates raised concerns about the\n"
    "lack of accountability metrics and the short timeline for\ndistributing funds.",
]
TREASURY = (
    "# Treasury Management\n\nAuthor: Arbitrum Foundation\nCreated: 2024-01-10\n\n## Snapshot Vote\nStatus: active\nVoting End: 2024-03-15"
)
VOTING = "Snapshot voting for Arbitrum proposals is an off-chain temperature check where ARB token holders vote without gas fees."


@dataclass
class Told:
    """A case of the document: what the reader replied to each metric, with the first relevant rank what follows, and what follows by
    the rules judge."""

    case: dict[str, Any]
    mrr: float | None
    replies: dict[str, Sequence[Any]]
    scores: dict[str, float]
    diagnosis: list[str]
    by_rules: list[str]


def relevance(score: float, *, on_topic: bool = True) -> list[dict[str, Any]]:
    return [{"reason": "", "addresses_question": score > 0, "on_topic": on_topic, "score": score}]


TABLE = {
    "the worked example": Told(
        {"question": STATUS, "chunks": STIP, "references": ["The STIP proposal was proposed by the Arbitrum Foundation. Its current status "
            "is 'executed' — it passed the Tally on-chain vote after clearing the Snapshot temperature check."],
         "answer": "The STIP (Short-Term Incentive Program) proposal was authored by the Arbitrum Foundation. It has been executed after "
            "passing both the Snapshot temperature check and the Tally on-chain vote. The program allocated 50 million ARB tokens for "
            "protocol incentives."},
        1.0, {"chunk_faithfulness": ["YES"], "chunk_relevancy": ["YES"], "answer_relevance": relevance(1.0),
              "correctness": [{"reason": "", "score": 4.5}]},
        {"chunk_faithfulness": 1.0, "chunk_relevancy": 1.0, "correctness": 4.5}, [], [],
    ),
    "its failure": Told(
        {"question": STATUS, "chunks": STIP, "answer": "The STIP proposal was authored by Offchain Labs and requested 100 million ARB "
            "tokens. It was vetoed by the Security Council."},
        1.0, {"chunk_faithfulness": ["NO", "NO", "NO"], "chunk_relevancy": ["YES"], "answer_relevance": relevance(1.0)},
        {"chunk_faithfulness": 0.0}, ["hallucination"], ["unsupported_answer"],
    ),
    "A": Told(
        {"question": "What is the voting deadline for the Treasury Management proposal?", "chunks": [TREASURY],
         "answer": "The voting deadline is March 30, 2024, and the proposal needs a 60% supermajority to pass."},
        1.0, {"chunk_faithfulness": ["NO"], "chunk_relevancy": ["YES"], "answer_relevance": relevance(1.0)},
        {"chunk_faithfulness": 0.0, "chunk_relevancy": 1.0}, ["hallucination"], ["unsupported_answer"],
    ),
    "B": Told(
        {"question": "Who proposed the Security Council Elections?", "chunks": [
            "# Security Council Elections\n\nAuthor: L2BEAT\n\n## Snapshot\nStatus: closed",
            "The Security Council Elections begin with a contender phase of one week.", TREASURY],
         "answer": "The Treasury Management proposal was created by the Arbitrum Foundation on January 10, 2024. It is currently in the "
            "Snapshot voting phase."},
        None, {"chunk_faithfulness": ["NO", "NO", "YES"], "chunk_relevancy": ["NO", "NO", "NO"],
               "answer_relevance": relevance(0.0, on_topic=False)},
        {"chunk_faithfulness": 1.0, "chunk_relevancy": 0.0}, ["off_topic"], [],
    ),
    "C": Told(
        {"question": "What concerns were raised about the Arbitrum Orbit proposal?", "chunks": [TREASURY, STIP[2], "The Gaming Catalyst "
            "Program was proposed by Treasure DAO."],
         "answer": "Delegates raised concerns about the lack of accountability metrics and the short timeline for distributing funds."},
        0.0, {"chunk_faithfulness": ["NO", "YES"], "chunk_relevancy": ["NO", "NO", "NO"], "answer_relevance": relevance(1.0)},
        {"chunk_faithfulness": 1.0}, ["retrieval_failure"], ["retrieval_failure"],
    ),
    "D": Told(
        {"question": "How does the Snapshot voting process work for Arbitrum proposals?", "chunks": [VOTING],
         "references": [f"{VOTING} The results gauge community sentiment before a proposal moves to an on-chain Tally vote."],
         "answer": "Snapshot is used for voting on Arbitrum proposals."},
        1.0, {"chunk_faithfulness": ["YES"], "chunk_relevancy": ["YES"], "answer_relevance": relevance(0.25),
              "correctness": [{"reason": "", "score": 2}]},
        {"correctness": 2.0}, ["partly_correct"], [],
    ),
}  # fmt: skip


class _Rules(ScriptedJudge):
    async def __call__(self, prompt: Any, answer: Any, /, **values: Any) -> Any:
        return RulesJudge(RulesSettings()).answer(prompt, answer, values)


def diagnosed(root: Path, told: Told, names: Sequence[str], judge: str) -> tuple[dict[str, float | None], list[str]]:
    """The values of the metrics `names` and the diagnosis of one case, with what its labels say of the retrieval."""
    results, details, specs = {}, {}, []
    case = make_case(**told.case)
    for name in names:
        metric = shipped_metric(name, **({"markers": True} if name == "citation" else {}))
        asked = ScriptedJudge(told.replies[name]) if judge == "reader" else _Rules()
        for score_name, found in score_of(metric, case, asked).items():
            results[score_name] = (found.status, found.reason) if found.value is None else found.value
            details[score_name] = found.details
        assert judge != "reader" or len(asked.asked) == len(told.replies[name])
        specs += metric.score_specs
    if told.mrr is not None:
        results["mrr"], specs = told.mrr, [*specs, ScoreSpec("mrr")]
    write_run(root, [Row("q", "a", results, {"answerable": case.sample.answerable}, {"answer": case.answer}, details)])
    score(root, specs, judge={"label": judge, "calibrated": None})
    values = {name: value for name, value in results.items() if not isinstance(value, tuple)}
    return values, records(root)[0]["diagnosis"]


@pytest.mark.parametrize("name", TABLE)
def test_the_reader_gets_what_the_document_prints(tmp_path: Path, name: str) -> None:
    told = TABLE[name]
    values, diagnosis = diagnosed(tmp_path, told, list(told.replies), "reader")
    assert {metric: values[metric] for metric in told.scores} == told.scores
    assert diagnosis == told.diagnosis


@pytest.mark.parametrize("names", [["faithfulness"], ["groundedness"], ["chunk_faithfulness"], ["faithfulness", "groundedness"]])
@pytest.mark.parametrize("name", TABLE)
def test_the_embedded_judge_says_what_strings_can_show(tmp_path: Path, name: str, names: list[str]) -> None:
    assert diagnosed(tmp_path, TABLE[name], names, "rules-v1")[1] == TABLE[name].by_rules


BRIDGE = {
    "de": ("Wann wurde die Brücke eröffnet?", "Die Brücke wurde 1937 eröffnet", "Der Turm ist sechzig Meter hoch."),
    "fr": ("Quand le pont a-t-il été ouvert ?", "Le pont a été ouvert en 1937", "La tour est en pierre."),
    "zh": ("大桥是什么时候开通的？", "大桥于1937年开通", "塔高六十米，由石头建成。"),
    "ja": ("橋はいつ開通しましたか。", "橋は1937年に開通しました", "塔は石で造られています。"),
}
DECLINED = {
    "fr": "Les documents fournis ne contiennent pas cette information.", "zh": "文档中没有提到这个信息。",
    "ja": "提供された文書にはその情報が記載されていません。",
}  # fmt: skip


@pytest.mark.parametrize("language", BRIDGE)
@pytest.mark.parametrize(("mark", "accurate", "expected"), [
    ("[7]", True, ["citations_made_up"]), ("【7】", True, ["citations_made_up"]), ("[2]", False, ["citations_wrong"]), ("[1]", True, []),
])  # fmt: skip
def test_citations_are_diagnosed_in_other_languages(tmp_path: Path, language: str, mark: str, accurate: bool, expected: list[str]) -> None:
    question, fact, other = BRIDGE[language]
    supports = [] if "7" in mark else [{"verdicts": [{"index": 1, "evidence": "", "reason": "", "accurate": accurate}]}]
    replies = [{"claims": [{"claim": fact, "marker": mark, "cited": True}]}, *supports]
    case = {"question": question, "answer": f"{fact} {mark}.", "chunks": [fact, other]}
    told = Told(case, None, {"citation": replies}, {}, expected, expected)
    assert diagnosed(tmp_path / "reader", told, ["citation"], "reader")[1] == expected
    if mark != "[2]":  # whether a passage says it is more than strings can show there
        assert diagnosed(tmp_path / "rules", told, ["citation"], "rules-v1")[1] == expected


@pytest.mark.parametrize("chunks", [[], ["The tower is built of stone."]], ids=["nothing retrieved", "something else"])
@pytest.mark.parametrize("language", DECLINED)
def test_a_right_refusal_in_another_language_has_no_diagnosis(tmp_path: Path, language: str, chunks: list[str]) -> None:
    case = {"question": BRIDGE[language][0], "answer": DECLINED[language], "chunks": chunks, "answerable": False}
    names = ["faithfulness", "groundedness", "chunk_faithfulness", "abstention"]
    values, diagnosis = diagnosed(tmp_path, Told(case, None, {}, {}, [], []), names, "rules-v1")
    assert (diagnosis, values["abstention"]) == ([], 1.0)
