"""People's labels of claims, given as the judge's replies, through the real metrics: the figures of trusted libraries."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ragpipe
from ragpipe.core.score import Score
from ragpipe.testing.scripted import JudgeQuestion, ScriptedJudge, make_case, score_of, shipped_metric
from tests.support.claim_verdicts import in_both_forms


def refchecker(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]], dict[str, Any]]]:
    """Each file with its records and its figures."""
    expected = json.loads((folder / "EXPECTED.json").read_text(encoding="utf-8"))["refchecker"]
    for name, figures in expected.items():
        if name.endswith(".json"):
            yield name, json.loads((folder / "refchecker" / name).read_text(encoding="utf-8")), figures


def judged(record: dict[str, Any], **parameters: Any) -> Score:
    """Faithfulness of one answer, where the judge is the person who labelled its claims."""
    claims = record["claude2_response_kg"]
    # one line a triplet; the number keeps two equal triplets apart, which their annotators labelled one by one
    texts = [f"{place}. {' | '.join(claim['triplet'])}" for place, claim in enumerate(claims, 1)]
    entailed = {text: claim["human_label"] == "Entailment" for text, claim in zip(texts, claims, strict=True)}

    def reply(question: JudgeQuestion) -> dict[str, Any]:
        if question.step == "extract":
            return {"claims": texts}
        asked = question.values["claims"]
        return {"verdicts": [
            {"index": i, "evidence": "", "reason": ""} | in_both_forms(entailed[c])
            for i, c in enumerate(asked, 1)
        ]}  # fmt: skip

    # an answer without a word is skipped before anybody is asked; the figures count the one here as without claims
    answer = record["response"] if any(c.isalnum() for c in record["response"]) else "(no words)"
    case = make_case(answer=answer, chunks=["(the passage is not in the file)"])
    metric = shipped_metric("faithfulness", **parameters)
    return score_of(metric, case, ScriptedJudge(reply))["faithfulness"]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [20, 3])
def test_claims_that_people_labelled_give_the_figures_of_refchecker(real_data: Path, batch: int) -> None:
    for name, records, figures in refchecker(real_data):
        one = [judged(record, batch=batch) for record in records]
        skip = [judged(record, batch=batch, without_claims="skip") for record in records]
        zero = [judged(record, batch=batch, without_claims="zero") for record in records]
        kept = [score.value for score in skip if score.status == "ok"]
        assert len(records) - len(kept) == figures["without_claims"], name
        assert {score.reason for score in skip if score.status == "skipped"} <= {"no_factual_claims"}
        assert mean(one) == pytest.approx(figures["macro_one"], abs=1e-6), name
        assert sum(kept) / len(kept) == pytest.approx(figures["macro_skip"], abs=1e-6), name
        # by the definitions: what counts one in macro_one counts nothing here
        assert mean(zero) == pytest.approx(figures["macro_skip"] * len(kept) / len(records), abs=1e-6), name
        assert sum(value == 1 for value in kept) / len(kept) == pytest.approx(figures["strict"], abs=1e-6), name
        supported = sum(score.details["supported"] for score in one)
        assert supported / sum(score.details["total"] for score in one) == pytest.approx(figures["micro"], abs=1e-6), name


def mean(scores: list[Score]) -> float:
    return sum(score.value or 0.0 for score in scores) / len(scores)


LENIENT = ("Complete", "Partial", "Incomplete")


def expertqa(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each answer with its field and its system."""
    for line in (folder / "expertqa" / "rand_val.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        for system, answer in record["answers"].items():
            yield record["metadata"]["field"], system, answer


def cited(answer: dict[str, Any], supports: Sequence[str], *, worthy: bool = False) -> Counter[str]:
    """Counts of one answer by the citation metric, where the judge is the expert who labelled its claims.

    A claim with evidence is a citation of one chunk, that evidence. `worthy` leaves the claims that need no citation out.
    """
    claims = [claim for claim in answer["claims"] if claim["worthiness"] == "Yes" or not worthy]
    # the number keeps claims apart that are worded alike and were labelled one by one
    texts = [f"{place}. {claim['claim_string']}" for place, claim in enumerate(claims, 1)]
    labels = dict(zip(texts, claims, strict=True))
    with_evidence = {f"e{place}": text for place, text in enumerate(texts, 1) if labels[text]["evidence"]}

    def reply(question: JudgeQuestion) -> dict[str, Any]:
        if question.step == "coverage":
            return {"claims": [{"claim": t, "marker": "", "cited": bool(labels[t]["evidence"])} for t in texts]}
        verdicts = [labels[asked["text"]]["support"] in supports for asked in question.values["citations"]]
        return {"verdicts": [{"index": i, "accurate": verdict} for i, verdict in enumerate(verdicts, 1)]}

    case = make_case(
        answer=answer["answer_string"],
        chunks=[{"id": name, "text": "\n".join(labels[text]["evidence"])} for name, text in with_evidence.items()],
        citations=[{"chunk_id": name, "text": text} for name, text in with_evidence.items()],
    )
    scores = score_of(shipped_metric("citation"), case, ScriptedJudge(reply))
    if not with_evidence:  # 0 without a call: nobody lists the claims of an answer that cites nothing
        assert {(score.value, score.reason) for score in scores.values()} == {(0.0, "no_citations_provided")}
        return Counter(claims=len(claims))
    found = {part: scores[f"citation_{part}"].details for part in ("valid", "accuracy", "coverage")}
    assert scores["citation_valid"].value == 1
    assert scores["citation_accuracy"].value == found["accuracy"]["accurate"] / len(with_evidence)
    return Counter(
        claims=found["coverage"]["claims"], cited=found["coverage"]["cited"],
        citations=found["accuracy"]["citations"], accurate=found["accuracy"]["accurate"],
    )  # fmt: skip


@pytest.mark.slow
def test_citations_that_experts_labelled_give_the_figures_of_expertqa(real_data: Path) -> None:
    expected = json.loads((real_data / "EXPECTED.json").read_text(encoding="utf-8"))["expertqa"]
    strict, lenient, worthy = (defaultdict[str, Counter[str]](Counter) for _ in range(3))
    for field, system, answer in expertqa(real_data):
        for group in ("all", f"system {system}", f"field {field}"):
            strict[group] += cited(answer, ["Complete"])
            if group != f"field {field}":
                lenient[group] += cited(answer, LENIENT)
                worthy[group] += cited(answer, ["Complete"], worthy=True)
    named = {group: figures for group, figures in expected.items() if isinstance(figures, dict) and "claims" in figures}
    assert set(strict) == set(named)
    for group, figures in named.items():
        found = strict[group]
        assert found["claims"] == figures["claims"], group
        assert found["cited"] / found["claims"] == pytest.approx(figures["coverage"], abs=1e-6), group
        assert found["accurate"] / found["citations"] == pytest.approx(figures["accuracy"], abs=1e-6), group
        if "worthy" in figures:
            assert worthy[group]["claims"] == figures["worthy"], group
            share = worthy[group]["cited"] / worthy[group]["claims"]
            assert share == pytest.approx(figures["coverage_worthy"], abs=1e-6), group
            share = lenient[group]["accurate"] / lenient[group]["citations"]
            assert share == pytest.approx(figures["accuracy_lenient"], abs=1e-6), group


@pytest.mark.thorough
@pytest.mark.slow
def test_groundedness_ranks_answers_and_systems_as_people_do(real_data: Path, here: Path) -> None:
    """RAGTruth requires no citations: a cap on uncited answers made the six systems' order one without meaning."""
    metrics, stats = pytest.importorskip("sklearn.metrics"), pytest.importorskip("scipy.stats")
    path = real_data / "ragtruth_qa" / "ragtruth_qa.jsonl"
    asked = "metrics=[faithfulness,groundedness,recorded]"
    run = ragpipe.run(["+experiment=ragtruth", f"dataset.path={path}", asked, "report.formats=[]"])
    wide = run.scores.pivot_table(index=["sample_id", "method"], columns="score_name", values="value")
    for label in ("human_hallucinated", "human_hallucinated_strict"):
        area = {
            name: metrics.roc_auc_score(pairs[label], -pairs[name])
            for name in ("faithfulness", "groundedness")
            for pairs in [wide[[name, label]].dropna()]
        }
        assert area["groundedness"] == pytest.approx(area["faithfulness"], abs=0.03), label
        assert area["groundedness"] > 0.7
        systems = wide.groupby("method").mean()
        assert len(systems) == 6
        assert stats.spearmanr(systems["groundedness"], -systems[label]).statistic > 0.5
    assert not any("missing_citation" in modes for modes in run.records["failure_modes"]), "nobody requires citations"
